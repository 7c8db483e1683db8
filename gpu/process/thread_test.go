package process

import (
	"errors"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestManyDeadThreads: a tracer keeps very many dead threads of a job's process. Few of them are looked at. What is
// not known then counts against the process.
func TestManyDeadThreads(t *testing.T) {
	const rest = " 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 500 0 987654 10 11\n"
	const leaf = "0::/htcondor/_e_slot1_1@h.slice/_e_slot1_1@h.scope"
	fs := FS{Root: t.TempDir()}
	put(t, filepath.Join(fs.Root, "self/mountinfo"), "1 1 0:1 / / rw - x y rw\n")
	for pid, cgroup := range map[string]string{
		"700": "4:memory:/\n" + leaf + "\n", "800": "4:memory:/\n0::/\n", "900": leaf + " (deleted)\n",
	} {
		put(t, filepath.Join(fs.Root, pid, "stat"), pid+" (job) Z"+rest)
		put(t, filepath.Join(fs.Root, pid, "cgroup"), cgroup)
		put(t, filepath.Join(fs.Root, pid, "mountinfo"), "2 1 0:2 / / ro - x y ro\n")
		for i := range 500 {
			tid := strconv.Itoa(10000 + i)
			put(t, filepath.Join(fs.Root, pid, "task", tid, "stat"), tid+" (job) Z"+rest)
		}
	}
	if names, err := firstNames(filepath.Join(fs.Root, "700/task"), mostDead); len(names) != mostDead || err != nil {
		t.Errorf("%d threads are looked at, %v", len(names), err)
	}
	fd, err := unix.Open(filepath.Join(fs.Root, "700/task"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	names, err := firstOf(fd, mostDead)
	if n, _ := unix.ReadDirent(fd, make([]byte, 512)); n == 0 || len(names) != mostDead || err != nil {
		t.Errorf("after %d threads the whole directory is read, %v", len(names), err)
	}
	for _, pid := range []int{700, 900} {
		if got, err := fs.Cgroup(pid); string(got) != leaf+"/dead (deleted)\n" || err != nil {
			t.Errorf("the cgroup of %d is %q, %v", pid, got, err)
		}
	}
	if got, err := fs.Cgroup(800); !errors.Is(err, ErrDeadThreads) || Gone(err) {
		t.Errorf("with cgroups of version 1: %q, %v", got, err)
	}
	if got := fs.Hiding(map[int]string{700: "/x"}); got[700] || fs.ReadOnly(700, "/x") {
		t.Error("its mounts are known")
	}
}

// TestThreadsThatCannotBeRead: unknown is not none.
func TestThreadsThatCannotBeRead(t *testing.T) {
	fs := FS{Root: t.TempDir()}
	put(t, filepath.Join(fs.Root, "7/stat"), "7 (job) Z 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 987654 10 11\n")
	put(t, filepath.Join(fs.Root, "7/cgroup"), "0::/\n")
	put(t, filepath.Join(fs.Root, "7/task"), "") // no directory
	if got, err := fs.Cgroup(7); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("its cgroup is known: %q, %v", got, err)
	}
	if its, _, err := Opens(fs, 7, 100, func(File) bool { return true }); len(its) > 0 || !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("what it has open is known: %v, %v", its, err)
	}
}
