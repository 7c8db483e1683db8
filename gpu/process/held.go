package process

import "github.com/gpuslot/gpuslot/gpu/reads"

// ErrHeld says that the kernel does not answer what a process is. ErrNotAsked is an ErrHeld because of other processes,
// and ErrRefused one because of its owner's.
var (
	ErrHeld     = reads.ErrHeld
	ErrNotAsked = reads.ErrNotAsked
	ErrRefused  = reads.ErrRefused
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

// answered does a read of a process, of several steps if it calls Step before each.
func answered[T any](fs FS, pid int, read func(*reads.Reading) (T, error)) (T, error) {
	return reads.One(fs.reads, target{fs, pid}, read)
}

// target is a process that is read.
type target struct {
	fs  FS
	pid int
}

func (t target) String() string { return dirOf(t.fs, t.pid) }

// Account is the effective account. What has root's group is root's: an MPS server of an account keeps it, and no
// user's process has it.
func (t target) Account() (uid uint32, err error) {
	of, err := t.fs.Owner(t.pid)
	if of.GID == 0 {
		return 0, err
	}
	return of.UID, err
}

// status is a read of the status of a process alone: in exec(2) the kernel answers that.
type status struct{ target }

func (s status) String() string { return s.fs.Path(s.pid, "status") }
