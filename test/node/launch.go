package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// launcher is keep.sh, whose child is the "unshare" process that holds PID 1 as its own.
type launcher struct {
	pid  int
	done chan struct{} // closed when the launcher has been waited for
}

// launch starts keep.sh, and that boot.sh in new namespaces, inside the node's cgroup from its first instruction.
func launch(st *state, image string, cg *cgroup) (*launcher, error) {
	out, err := os.OpenFile(filepath.Join(st.dir, "console.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	dir, err := os.Open(cg.launcher())
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("unshare", "--mount", "sh", filepath.Join(st.dir, "keep.sh"), st.dir, image, cg.guest())
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:      true,            // Ctrl-C at the test's terminal is for the test
		Pdeathsig:   syscall.SIGKILL, // and when the test dies, so does the node
		UseCgroupFD: true,
		CgroupFD:    int(dir.Fd()),
	}
	l := &launcher{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The parent-death signal is that of the thread that forked: keep the thread for the node's lifetime.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		dir.Close()
		if err == nil {
			l.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // its exit status says nothing: a killed node is the normal end
			close(l.done)
		}
	}()
	return l, <-started
}

// leader waits for the child of the launcher's "unshare", which is PID 1 inside.
func (l *launcher) leader(ctx context.Context) (int, error) {
	for {
		for _, child := range children(l.pid) {
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child))
			if of := children(child); strings.TrimSpace(string(comm)) == "unshare" && len(of) > 0 {
				return of[0], nil
			}
		}
		if l.ended() {
			return 0, errors.New("the launcher ended at once")
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// children are the PIDs of a process's children; none if it has ended.
func children(pid int) []int {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	var all []int
	for _, f := range strings.Fields(string(data)) {
		if child, err := strconv.Atoi(f); err == nil {
			all = append(all, child)
		}
	}
	return all
}

func (l *launcher) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// end waits for the launcher, which ends with PID 1, and kills it (and so PID 1) when it does not.
func (l *launcher) end() error {
	for _, patience := range []time.Duration{time.Minute, time.Minute} {
		select {
		case <-l.done:
			return nil
		case <-time.After(patience):
			_ = syscall.Kill(l.pid, syscall.SIGKILL)
		}
	}
	return fmt.Errorf("process %d does not end", l.pid)
}
