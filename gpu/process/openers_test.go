package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOpenersWithManyFiles: a look at what processes have open ends, however many files a job opens. What is not
// looked at may be open, and its process is named.
func TestOpenersWithManyFiles(t *testing.T) {
	fs := FS{Root: t.TempDir()}
	link := func(pid, fd int) {
		name := filepath.Join(fs.Root, fmt.Sprintf("%d/fd/%d", pid, fd))
		if err := os.Symlink("/dev/null", name); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(fs.Root, "4/fd/.keep"), "")
	for pid := 10; pid < 20; pid++ {
		put(t, filepath.Join(fs.Root, fmt.Sprint(pid), "fd/0"), "")
		for fd := range fewFiles {
			link(pid, fd+1)
		}
	}
	looked := 0
	fits := func(File) bool { looked++; return false }
	got := openersAmong(t.Context(), fs, 1+fewFiles+1, fits)
	want := Opener{PID: 11, Unclear: "has more than 256 files open"}
	if len(got) != mostUnclear || got[0] != want {
		t.Errorf("%+v", got)
	}
	if most := 1 + fewFiles + 1 + mostUnclear*fewFiles; looked > most {
		t.Errorf("%d files were looked at, at most %d are", looked, most)
	}
	if got := Openers(t.Context(), fs, fits); len(got) > 0 {
		t.Errorf("where all are looked at: %+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got = Openers(ctx, fs, func(File) bool { cancel(); return false })
	if len(got) != 1 || got[0].PID != 0 || !strings.Contains(got[0].Unclear, "pid 4 has 1 files open") {
		t.Errorf("after its deadline: %+v", got)
	}
}

// TestOpenersWithDeadThreads: a process whose first threads have all ended may have it open, and is named.
func TestOpenersWithDeadThreads(t *testing.T) {
	fs := FS{Root: t.TempDir()}
	const rest = " (job) Z 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 500 0 987654 10 11\n"
	put(t, filepath.Join(fs.Root, "7/stat"), "7"+rest)
	for tid := range mostDead {
		put(t, filepath.Join(fs.Root, fmt.Sprintf("7/task/%d/stat", 7+tid)), fmt.Sprint(7+tid)+rest)
	}
	got := Openers(t.Context(), fs, func(File) bool { return false })
	if len(got) != 1 || got[0].PID != 7 || !strings.Contains(got[0].Unclear, "threads runs") {
		t.Errorf("%+v", got)
	}
}
