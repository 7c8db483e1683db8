package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keptPrefix begins the names of TCP sockets in the service manager's descriptor
// store (FileDescriptorStoreMax=); the address follows.
const keptPrefix = "tcp "

// keptName is an address as a name in the store, which has no colons.
func keptName(address string) string { return keptPrefix + strings.ReplaceAll(address, ":", " ") }

// Keep has the service manager hold a TCP socket while the program is restarted, so
// that no other program gets its port. A stop of the unit ends that. Without a service
// manager it does nothing.
func (s *Sockets) Keep(address string, l net.Listener) error {
	c, ok := l.(syscall.Conn)
	if !ok {
		return fmt.Errorf("keep the port of %s: the socket is a %T", address, l)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) { sent = store("FDSTORE=1\nFDNAME="+keptName(address), int(fd)) })
	if err = errors.Join(err, sent); err != nil {
		return fmt.Errorf("have systemd keep the port of %s: %w", address, err)
	}
	return nil
}

// Kept hands out the socket that was kept for an address, once; nil if there is
// none. The store keeps that one alone: sockets of other addresses are closed.
func (s *Sockets) Kept(address string) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kept net.Listener
	var errs []error
	for name, listeners := range s.byName {
		if !strings.HasPrefix(name, keptPrefix) {
			continue
		}
		delete(s.byName, name)
		for _, l := range listeners {
			if name == keptName(address) && kept == nil {
				kept = l
				continue
			}
			errs = append(errs, l.Close())
		}
		if name != keptName(address) {
			errs = append(errs, store("FDSTOREREMOVE=1\nFDNAME="+name))
		}
	}
	if kept == nil {
		// One that was handed out before does not work any more.
		errs = append(errs, store("FDSTOREREMOVE=1\nFDNAME="+keptName(address)))
	}
	if err := errors.Join(errs...); err != nil {
		return kept, fmt.Errorf("take a port back from systemd: %w", err)
	}
	return kept, nil
}

// storeTimeout bounds a message to a service manager that does not read.
const storeTimeout = 3 * time.Second

// store sends a message with descriptors to the service manager.
func store(state string, descriptors ...int) error {
	to := os.Getenv("NOTIFY_SOCKET")
	if to == "" {
		return nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	most := unix.NsecToTimeval(storeTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &most); err != nil {
		return err
	}
	var rights []byte
	if len(descriptors) > 0 {
		rights = unix.UnixRights(descriptors...)
	}
	return unix.Sendmsg(fd, []byte(state), rights, &unix.SockaddrUnix{Name: to}, unix.MSG_NOSIGNAL)
}
