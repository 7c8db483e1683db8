package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// open opens a path inside from outside, without a program: links in it lead to where they lead inside.
func (n *Node) open(name string, flags uint64) (*os.File, error) {
	root, err := os.Open(fmt.Sprintf("/proc/%d/root", n.leader))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	fd, err := unix.Openat2(int(root.Fd()), name, &how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Socket is the path, outside, of a socket inside. It is short, as a socket's must be, and links in it lead outside.
func (n *Node) Socket(name string) string { return fmt.Sprintf("/proc/%d/root%s", n.leader, name) }

// exists says whether there is a file.
func (n *Node) exists(name string) bool {
	f, err := n.open(name, unix.O_PATH)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

// folder opens a directory inside, and makes it if it is not there. The path outside is good while it is open.
func (n *Node) folder(ctx context.Context, name string) (dir *os.File, outside string, err error) {
	if dir, err = n.open(name, unix.O_PATH|unix.O_DIRECTORY); errors.Is(err, fs.ErrNotExist) {
		if _, err = n.Run(ctx, "mkdir", "-p", name); err == nil {
			dir, err = n.open(name, unix.O_PATH|unix.O_DIRECTORY)
		}
	}
	if err != nil {
		return nil, "", err
	}
	return dir, fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), nil
}

// account is the uid and the gid of a user inside.
func (n *Node) account(name string) (uid, gid int, err error) {
	passwd, err := n.open("/etc/passwd", unix.O_RDONLY)
	if err != nil {
		return 0, 0, err
	}
	defer passwd.Close()
	all, err := io.ReadAll(passwd)
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(all)) {
		if f := strings.Split(line, ":"); len(f) > 3 && f[0] == name {
			uid, err = strconv.Atoi(f[2])
			gid, err2 := strconv.Atoi(f[3])
			return uid, gid, errors.Join(err, err2)
		}
	}
	return 0, 0, fmt.Errorf("the node has no user %q", name)
}

// WriteFile writes a file inside, and the directories on its way. It is renamed into place, so a reader sees
// the old file or the new one.
func (n *Node) WriteFile(ctx context.Context, name string, f File) error {
	if f.Mode == 0 {
		f.Mode = 0o644
	}
	uid, gid := 0, 0
	if f.Owner != "" {
		var err error
		if uid, gid, err = n.account(f.Owner); err != nil {
			return err
		}
	}
	dir, outside, err := n.folder(ctx, filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	t, err := os.CreateTemp(outside, ".node-")
	if err != nil {
		return err
	}
	_, err = t.WriteString(f.Data)
	err = errors.Join(err, t.Chown(uid, gid), t.Chmod(f.Mode.Perm()), t.Close())
	if err == nil {
		err = os.Rename(t.Name(), filepath.Join(outside, filepath.Base(name)))
	}
	if err != nil {
		_ = os.Remove(t.Name())
	}
	return err
}

// ReadFile reads a file inside; a file that does not exist is fs.ErrNotExist.
func (n *Node) ReadFile(_ context.Context, name string) (string, error) {
	f, err := n.open(name, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	return string(data), err
}

// Hold makes a file that ends for its readers when release is called: who reads it waits until then. A program that
// asks again and again would cost more than all else that a waiting job does.
func (n *Node) Hold(ctx context.Context, name string) (release func() error, err error) {
	dir, outside, err := n.folder(ctx, filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fifo := filepath.Join(outside, filepath.Base(name))
	if err := unix.Mkfifo(fifo, 0o644); err != nil {
		return nil, &fs.PathError{Op: "mkfifo", Path: name, Err: err}
	}
	writer, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return func() error {
		// Remove the name first: who opens a file without a writer waits without end.
		dir, outside, err := n.folder(ctx, filepath.Dir(name))
		if err != nil {
			return err
		}
		defer dir.Close()
		if err := os.Remove(filepath.Join(outside, filepath.Base(name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := writer.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			return err
		}
		return nil
	}, nil
}
