package deep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
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

// TestRemoveOfNone: the removal of a cgroup that has ended is an error, which says so.
func TestRemoveOfNone(t *testing.T) {
	if err := Remove(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
