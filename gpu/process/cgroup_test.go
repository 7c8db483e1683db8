package process

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCgroupReadsThatWait: of very many reads that the kernel lets wait, some have a thread and the
// others wait for these. A pipe that nobody writes to stands for the file.
func TestCgroupReadsThatWait(t *testing.T) {
	const all = 10 * mostCgroupReads
	root := t.TempDir()
	put(t, filepath.Join(root, "700/stat"), "700 (job) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 987654 10 11\n")
	pipe := filepath.Join(root, "700/cgroup")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var reads sync.WaitGroup
	for range all {
		reads.Go(func() {
			if text, err := (FS{Root: root}).Cgroup(700); err != nil || len(text) > 0 {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
	inKernel, waiting := 0, 0
	for end := time.Now().Add(5 * time.Minute); inKernel+waiting < all; time.Sleep(10 * time.Millisecond) {
		if inKernel, waiting = cgroupReaders(); time.Now().After(end) {
			t.Fatalf("%d reads are in the kernel and %d wait for them, of %d", inKernel, waiting, all)
		}
	}
	if inKernel > mostCgroupReads {
		t.Errorf("%d reads have a thread", inKernel)
	}
	w, err := os.OpenFile(pipe, os.O_RDWR, 0) // lets all open it, also those that come
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { reads.Wait(); close(done) }()
	for ended := false; !ended; {
		_ = w.Close() // the end of the file, for all that have it open
		if w, err = os.OpenFile(pipe, os.O_RDWR, 0); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			ended = true
		case <-time.After(time.Millisecond):
		}
	}
	_ = w.Close()
}

// cgroupReaders are the goroutines in FS.Cgroup that are in a system call, and those that wait.
func cgroupReaders() (inKernel, waiting int) {
	text := make([]byte, 16<<20)
	text = text[:runtime.Stack(text, true)]
	for g := range strings.SplitSeq(string(text), "\n\n") {
		switch first, rest, _ := strings.Cut(g, "\n"); {
		case !strings.Contains(rest, "FS.Cgroup("):
		case strings.Contains(first, "[syscall"):
			inKernel++
		case strings.Contains(first, "[chan send"):
			waiting++
		}
	}
	return inKernel, waiting
}
