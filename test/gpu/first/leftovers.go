package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/test/faults/order"
)

// marker is a variable in the environment of all that a part starts.
const marker = "GPUSLOT_FIRST"

// endLeftovers ends processes that a part, or an earlier call, did not end: each by
// its pid, and only those with this run's mark. Their daemons' directories go too.
func (c *call) endLeftovers() {
	var dirs []string
	defer func() {
		for _, dir := range dirs {
			if dir == "" {
				continue
			}
			if err := order.RemoveDir(dir); err != nil {
				c.say("%s stays: %v", dir, err)
			}
		}
	}()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		left := marked(c.state.ID)
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			c.say("process %d was left over: %v", pid, signal)
			env, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
			dirs = append(dirs, trialDirectory.FindString(string(env)))
			_ = syscall.Kill(pid, signal)
		}
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end) && len(marked(c.state.ID)) > 0; {
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// trialDirectory is where the harness has its control daemons.
var trialDirectory = regexp.MustCompile(`/tmp/g[tn][0-9]+`)

// marked are the processes whose environment has the mark.
func marked(id string) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+marker+"="+id+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}
