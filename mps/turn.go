package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// turnFile in the pipe directory keeps our own programs from disturbing each
// other: the daemon serves one connection at a time and lets the others fail.
const turnFile = "gpuslot.lock"

// turnTimeout bounds the wait where the caller does not: a program of ours
// that holds the turn and is suspended would keep it for good.
const turnTimeout = 30 * time.Second

// Pauses between looks at what does not tell that it has changed.
const (
	lockAgain = 2 * time.Millisecond  // whether a lock is free, or taken
	lookAgain = 5 * time.Millisecond  // whether processes have begun or ended
	setAgain  = 10 * time.Millisecond // whether a new daemon listens
)

// takeTurn waits until no other goroutine and no other program of ours talks
// to the daemon.
func (d *Daemon) takeTurn(ctx context.Context) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, d.noTurn(ctx.Err())
	}
	f, err := d.lockTurnFile(ctx)
	if err != nil {
		<-d.turn
		return nil, err
	}
	return func() {
		if f != nil {
			f.Close()
		}
		<-d.turn
	}, nil
}

// lockTurnFile returns nil without an error where the file cannot be made:
// another account, or no pipe directory. The end markers keep the conversation
// right even so, only slower.
func (d *Daemon) lockTurnFile(ctx context.Context) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(d.dir, turnFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) ||
			errors.Is(err, unix.ENOTDIR) {
			return nil, nil
		}
		return nil, d.fault(Unwritable, err, "%v: make %s writable", err, d.dir)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if err := backoff.Wait(ctx, lockAgain); err != nil {
			f.Close()
			return nil, d.noTurn(err)
		}
	}
}

func (d *Daemon) noTurn(err error) error {
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("control daemon of %s: %w", d.gpu, err)
	}
	return d.fault(Busy, err, "no turn to talk to it: other gpuslot programs are talking to it; try again")
}
