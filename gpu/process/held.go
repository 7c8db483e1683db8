package process

import "github.com/gpuslot/gpuslot/gpu/reads"

// ErrHeld says that the kernel does not answer what a process is. ErrNotAsked is an ErrHeld because of other processes.
var (
	ErrHeld     = reads.ErrHeld
	ErrNotAsked = reads.ErrNotAsked
)

// Together does reads of processes in one goroutine, as reads.Together: by the FS that do is given, and by no other
// goroutine. One for each read costs more than the read.
func Together[T any](fs FS, do func(FS) (T, error)) (T, error) {
	if fs.reads != nil {
		return do(fs)
	}
	return reads.Together(func(c *reads.Conversation) (T, error) {
		fs.reads = c
		return do(fs)
	})
}

// answered does a read of a process, of several steps if it calls step before each.
func answered[T any](fs FS, pid int, read func(step func() error) (T, error)) (T, error) {
	return reads.One(fs.reads, target{fs, pid}, read)
}

// target is a process that is read.
type target struct {
	fs  FS
	pid int
}

func (t target) String() string { return dirOf(t.fs, t.pid) }

// Account is the real account, by a read of its own. What has root's group is root's: an MPS server of an account
// keeps it, and no user's process has it.
func (t target) Account() (uid uint32, err error) {
	own := FS{Root: t.fs.Root}
	gid, err := own.GID(t.pid)
	if err != nil || gid == 0 {
		return 0, err
	}
	uids, err := own.UIDs(t.pid)
	return uids.Real, err
}

// inStatus does a read of its status, which says whose it is. In exec(2) the kernel answers that.
func inStatus[T any](fs FS, pid int, read func(path string) (T, error)) (T, error) {
	path := fs.Path(pid, "status")
	return reads.One(fs.reads, status(path), func(func() error) (T, error) { return read(path) })
}

// status is the path of one that is read.
type status string

func (s status) String() string { return string(s) }
