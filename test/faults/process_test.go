package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is one line of /proc/<pid>/stat.
type process struct {
	pid, parent int
	state       byte
	program     string
}

func (p process) String() string {
	return fmt.Sprintf("%s, pid %d, parent %d, state %c", p.program, p.pid, p.parent, p.state)
}

// processes are those whose program lies in the node's directory. Zombies are gone.
func (n *node) processes() []process {
	var out []process
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		exe = strings.TrimSuffix(exe, " (deleted)")
		if err != nil || !strings.HasPrefix(exe, n.dir+"/") {
			continue
		}
		if p, ok := statOf(pid); ok {
			p.program = filepath.Base(exe)
			out = append(out, p)
		}
	}
	return out
}

func statOf(pid int) (process, bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if err != nil || !ok || len(f) < 2 || f[0] == "Z" || f[0] == "X" {
		return process{}, false
	}
	parent, err := strconv.Atoi(f[1])
	return process{pid: pid, parent: parent, state: f[0][0]}, err == nil
}

// daemonPID is the process that holds a GPU's control lock; 0 if none does.
func (n *node) daemonPID(gpu int) int {
	f, err := os.OpenFile(filepath.Join(n.pipe(gpu), "control_lock"), os.O_RDWR, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l) != nil || l.Type == unix.F_UNLCK {
		return 0
	}
	return int(l.Pid)
}
