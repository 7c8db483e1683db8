package deep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestMostBelow: a slice may have so many cgroups, itself among them, in whatever order they are below each other.
func TestMostBelow(t *testing.T) {
	for name, c := range map[string]struct {
		in, below int // how many are in the slice, and in the first of them
		many      bool
	}{
		"as many as may be":       {MostBelow - 1, 0, false},
		"one more":                {MostBelow, 0, true},
		"as many, one below":      {MostBelow - 2, 1, false},
		"one more, on two floors": {MostBelow / 2, MostBelow / 2, true},
		"one more, in a part of its own of the list": {MostBelow - 513, 513, true}, // 256 are read at a time
	} {
		slice := t.TempDir()
		for i := range c.in {
			mkdir(t, slice, i)
		}
		for i := range c.below {
			mkdir(t, filepath.Join(slice, "0"), i)
		}
		if got := list(slice); got.many != c.many || got.err != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestFindMany: of the slices that may hold a process the first counts, but for one that does hold it.
func TestFindMany(t *testing.T) {
	empty, many, holder := t.TempDir(), t.TempDir(), t.TempDir()
	for i := range MostBelow {
		mkdir(t, many, i)
	}
	if err := os.WriteFile(filepath.Join(holder, "cgroup.procs"), []byte("200\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	looks := Into([]string{empty, many, holder})
	if f := looks.Find(300, time.Hour); f != (Found{Many: many}) {
		t.Errorf("%+v", f)
	}
	if f := looks.Find(200, time.Hour); f != (Found{In: holder}) {
		t.Errorf("%+v", f)
	}
}

// TestUnlessGone: the end of a cgroup during a look is no error.
func TestUnlessGone(t *testing.T) {
	for err, want := range map[error]error{nil: nil, unix.ENOENT: nil, unix.ENODEV: nil, unix.EACCES: unix.EACCES} {
		if got := unlessGone(err); !errors.Is(got, want) {
			t.Errorf("%v became %v", err, got)
		}
	}
}

func mkdir(t *testing.T, above string, i int) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(above, fmt.Sprint(i)), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestLooksAgain: what a look found counts no longer than it should: not at all after a quick one.
func TestLooksAgain(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		again int // which look it is that answers at once
	}{
		"a quick one": {0, 2}, "a slow one": {time.Second, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			looks := 0
			find := func() int {
				looks++
				time.Sleep(c.takes)
				return looks
			}
			found := func() int {
				n, _ := Begin("again "+name, find).Within(Patient)
				synctest.Wait()
				return n
			}
			found()
			if got := found(); got != c.again {
				t.Errorf("%s, at once: look %d, want %d", name, got, c.again)
			}
			time.Sleep(time.Minute)
			if got := found(); got != c.again+1 {
				t.Errorf("%s, after a while: look %d, want %d", name, got, c.again+1)
			}
			time.Sleep(time.Minute) // nothing of it stays
		})
	}
}

// TestHidden: a look is hidden when it has taken so long that nobody waits for it any more, until it ends.
func TestHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		l := Begin("hidden", func() int { <-hold; return 1 })
		time.Sleep(Patient - 1)
		early := l.Hidden()
		time.Sleep(time.Nanosecond)
		if late := l.Hidden(); early || !late {
			t.Errorf("hidden before its time %t, then %t", early, late)
		}
		close(hold)
		if synctest.Wait(); l.Hidden() {
			t.Error("hidden at its end")
		}
		time.Sleep(time.Minute) // nothing of it stays
	})
}

// TestSlow: from when on a look is slow, so that its result counts for a while.
func TestSlow(t *testing.T) {
	const slow = 50 * time.Millisecond
	for took, want := range map[time.Duration]time.Duration{0: 0, slow: 0, slow + 1: time.Second} {
		if got := kept(took); got != want {
			t.Errorf("%s: %s, want %s", took, got, want)
		}
	}
}

// TestRemoveOfNone: the removal of a cgroup that has ended is an error, which says so.
func TestRemoveOfNone(t *testing.T) {
	if err := Remove(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestRemoveSaysWhy: the error is the first one, not that of the directory that is not empty for it. Only a thread
// without the right to change owners has one here.
func TestRemoveSaysWhy(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("directories become root's: run this test as root")
	}
	top := t.TempDir()
	child := filepath.Join(top, "child")
	if err := errors.Join(os.MkdirAll(filepath.Join(child, "below"), 0o755), os.Chown(child, 1000, 1000)); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		var rights [2]unix.CapUserData
		own := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capget(own, &rights[0]); err != nil {
			failed <- err
			return
		}
		rights[0].Effective &^= 1 << unix.CAP_CHOWN
		if err := unix.Capset(own, &rights[0]); err != nil {
			failed <- err
			return
		}
		failed <- Remove(context.Background(), top)
	}()
	if err := <-failed; !errors.Is(err, unix.EPERM) {
		t.Error(err)
	}
}
