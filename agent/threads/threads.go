// Package threads ends waits of gpuslotd's own threads for the end of a job's file.
//
// The kernel closes a file within the call that drops its last reference, and that call may be gpuslotd's. A read of
// /proc/<pid>/stat holds the memory of a process, with the files that are mapped there. A look at /proc/<pid>/fd holds
// an open file. Where the process ends in these microseconds, gpuslotd's call closes the file. It waits then as long as
// the job chose, for a TCP connection that lingers (SO_LINGER): past every deadline of ours, until a signal comes.
// On older kernels a close of any unix socket may also close what unreachable sockets of a job hold.
//
// Start at Watch. agent/server sends its own signals, sooner, because callers choose when it closes their files.
package threads

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// interval is how often the threads are looked at. A wait lasts twice as long at most.
const interval = time.Second

// calls are those that may drop the last reference to a job's file. None of others is cut off: a driver may not expect
// signals in ioctl and open, and all threads without work are in futex or epoll_pwait.
var calls = []int{
	unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_WRITE, unix.SYS_CLOSE,
	unix.SYS_GETDENTS64, unix.SYS_READLINKAT, unix.SYS_STATX, unix.SYS_KCMP,
	unix.SYS_RECVMSG, unix.SYS_SENDMSG, unix.SYS_SENDTO,
}

// Watch looks for threads that stay in one system call, and sends a signal to each until it leaves. The Go runtime
// sends SIGURG to its threads at any time. So the signal does nothing to a thread that has left by then.
type Watch struct {
	tasks  string
	signal func(thread int)
	// before are the system calls of the threads at the last look.
	before map[int]string
}

// New watches the threads of this process.
func New() *Watch {
	pid := os.Getpid()
	return &Watch{
		tasks:  "/proc/self/task",
		signal: func(thread int) { _ = unix.Tgkill(pid, thread, unix.SIGURG) }, // one that has ended needs none
	}
}

// Start looks at the threads until stop is called: also while the parts of gpuslotd come to their end.
func (w *Watch) Start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for backoff.Wait(ctx, interval) == nil {
			w.look()
		}
	})
	return func() { cancel(); wg.Wait() }
}

// look sends a signal to the threads that are in the same call as at the last look, with the same arguments.
func (w *Watch) look() {
	tasks, _ := os.ReadDir(w.tasks) // threads that are not listed wait for the next look
	now := make(map[int]string, len(tasks))
	for _, task := range tasks {
		thread, err := strconv.Atoi(task.Name())
		if err != nil {
			continue
		}
		// The number of the call, its arguments, and where the thread is: proc_pid_syscall(5).
		line, _ := os.ReadFile(filepath.Join(w.tasks, task.Name(), "syscall")) // a thread may have ended
		call := string(line)
		if !mayClose(call) {
			continue
		}
		if now[thread] = call; w.before[thread] == call {
			w.signal(thread)
		}
	}
	w.before = now
}

func mayClose(call string) bool {
	number, _, _ := strings.Cut(call, " ")
	n, err := strconv.Atoi(number)
	return err == nil && slices.Contains(calls, n)
}
