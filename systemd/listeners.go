package systemd

import (
	"fmt"
	"net"
	"sync"

	"github.com/coreos/go-systemd/v22/activation"
)

// Sockets are the listening sockets that the service manager handed over. They
// can be taken once per process: take them with TakeSockets at its start.
type Sockets struct {
	mu     sync.Mutex
	byName map[string][]net.Listener
}

// TakeSockets takes over the sockets from the service manager and clears the
// environment variables that name them, so that no child believes they are its own.
func TakeSockets() (*Sockets, error) {
	byName, err := activation.ListenersWithNames()
	if err != nil {
		return nil, fmt.Errorf("take over the sockets from systemd: %w", err)
	}
	return &Sockets{byName: byName}, nil
}

// Listeners hands out the sockets with a FileDescriptorName= once; none when
// the program was not started by such a socket unit.
func (s *Sockets) Listeners(name string) []net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.byName[name]
	delete(s.byName, name)
	return l
}

// Close closes the sockets that no caller asked for.
func (s *Sockets) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first error
	for name, listeners := range s.byName {
		for _, l := range listeners {
			if err := l.Close(); err != nil && first == nil {
				first = fmt.Errorf("close socket %s: %w", name, err)
			}
		}
	}
	s.byName = nil
	return first
}
