package deep

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// earlier lets a look have begun so long ago that it is not waited for, and counts as hidden.
func earlier[T any](l Looking[T]) Looking[T] {
	looks.mu.Lock()
	defer looks.mu.Unlock()
	l.of.began = l.of.began.Add(-time.Hour)
	return l
}

// TestLook: a look that takes long is waited for once. Others of its key are not begun during that time, and do
// not wait; looks of other keys go on.
func TestLook(t *testing.T) {
	hold, begun := make(chan struct{}), 0
	stuck := func() int { begun++; <-hold; return 7 }
	l := Begin("a", stuck)
	if _, ok := l.Within(0); ok || l.Hidden() {
		t.Error("a look that has just begun is known, or hidden")
	}
	earlier(l)
	for range 3 {
		if _, ok := Begin("a", stuck).Within(Patient); ok || !l.Hidden() {
			t.Fatal("a look that does not end is known")
		}
	}
	if got, ok := Begin("b", func() int { return 8 }).Within(time.Hour); got != 8 || !ok {
		t.Error("another job's look waits:", got, ok)
	}
	time.Sleep(100 * time.Millisecond) // so that it was slow
	close(hold)
	<-l.of.done
	if begun != 1 || l.Hidden() {
		t.Errorf("%d looks were begun, hidden %t", begun, l.Hidden())
	}
	if got, ok := Begin("a", func() int { return 9 }).Within(Patient); got != 7 || !ok {
		t.Error("what a slow look has just found:", got, ok)
	}
	if got, ok := Known(5).Within(0); got != 5 || !ok {
		t.Error("a look that was not needed:", got, ok)
	}
}

// TestFindTogether: the looks into all slices begin before the first is waited for, so that all are waited for once. A
// pipe in the place of a cgroup's list stands for a slice that somebody hides.
func TestFindTogether(t *testing.T) {
	top := t.TempDir()
	var slices, pipes []string
	for _, name := range []string{"a", "b", "c"} {
		slice := filepath.Join(top, name)
		pipe := filepath.Join(slice, "cgroup.procs")
		if err := unix.Mkdir(slice, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		slices, pipes = append(slices, slice), append(pipes, pipe)
	}
	if f := Into(slices).Find(200, 0); f != (Found{Early: true}) {
		t.Errorf("at first: %+v", f)
	}
	for _, slice := range slices {
		looks.mu.Lock()
		l := looks.by[lookKey(slice)]
		looks.mu.Unlock()
		if l == nil {
			t.Fatalf("the look into %s waits for another one", slice)
		}
		earlier(Looking[below]{l})
	}
	if f := Into(slices).Find(200, Patient); f != (Found{Hidden: slices[0]}) {
		t.Errorf("when all are hidden: %+v", f)
	}
	for i, pipe := range pipes {
		write(t, pipe, []string{"100\n", "", "200\n"}[i])
	}
	if f := Into(slices).Find(200, 3*time.Hour); f != (Found{In: slices[2]}) {
		t.Errorf("when none is: %+v", f)
	}
}

// write waits for a reader of a pipe and ends what it reads, and puts a file with this text in its place.
func write(t *testing.T, pipe, text string) {
	t.Helper()
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err == nil {
		err = errors.Join(os.Remove(pipe), os.WriteFile(pipe, []byte(text), 0o600))
	}
	if err == nil {
		_, err = w.WriteString(text)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestNextJob: the slice of a slot's next job has another look than that of its last one.
func TestNextJob(t *testing.T) {
	slice := filepath.Join(t.TempDir(), "slice")
	if err := unix.Mkdir(slice, 0o755); err != nil {
		t.Fatal(err)
	}
	was := lookKey(slice)
	if err := unix.Rename(slice, slice+".old"); err != nil { // so that the next has another inode
		t.Fatal(err)
	}
	if err := unix.Mkdir(slice, 0o755); err != nil {
		t.Fatal(err)
	}
	if lookKey(slice) == was {
		t.Error("both have one look")
	}
}

// TestKept: a list counts for so long that a small part of the time is waited for it, whatever it takes.
func TestKept(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		time.Millisecond - 1: 0, time.Millisecond: 20 * time.Millisecond, time.Second: 20 * time.Second,
		Patient: 20 * Patient, time.Hour: 20 * Patient,
	} {
		if got := keptBelow(took); got != want {
			t.Errorf("one of %s counts for %s, want %s", took, got, want)
		}
	}
}
