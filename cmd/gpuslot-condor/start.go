package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
)

// startPause is the time between two questions for a job's start.
const startPause = 500 * time.Millisecond

// start asks the agent to put the limits of this cgroup in force, and returns when
// they are. Where nothing has to be, it does not ask. An error: the node promises
// limits and they are not in force, two and a half times the timeout later.
func (p program) start(o options) (api.Started, error) {
	gpus := p.getenv(assignedGPUs)
	unasked := api.Started{Supervise: gpus != "" && gpus != noGPUs}
	word, err := os.Readlink(startLink(o.socket))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return unasked, nil // nothing to ask for
	case err != nil:
		return unasked, err
	}
	if own, err := ownCgroup(); err == nil && unasked.Supervise {
		passOn("/sys/fs/cgroup", own)
	}
	for end := time.Now().Add(5 * o.timeout / 2); ; time.Sleep(startPause) {
		reply, err := o.call(api.Request{Op: api.OpStart})
		switch {
		case err != nil:
		case reply.Started != nil:
			return *reply.Started, nil
		case reply.Refusal != nil:
			err = errors.New(reply.Refusal.Reason)
		default:
			err = errors.New("gpuslotd answered without a decision; look at: journalctl -u gpuslotd")
		}
		if word != api.StartRequired {
			fmt.Fprintf(p.stderr, "gpuslot-condor: the job starts without limits of its cgroup: %v\n", err)
			return unasked, nil
		}
		if time.Now().After(end) {
			return unasked, err
		}
	}
}

// passOn gives this cgroup the controllers by which the driver limits VRAM, where the job's slice has them: HTCondor
// passes on only those that it uses, and gives the slice to the job's account. gpuslotd writes nothing there, and says
// what is missing. Mount is that of cgroup v2.
func passOn(mount, own string) {
	slice := path.Dir(own)
	name, ok := strings.CutSuffix(path.Base(slice), ".slice")
	if !ok || name == "" || path.Base(own) != name+".scope" {
		return // HTCondor's up to 24.7, which gets its controllers from above
	}
	have, err := os.ReadFile(filepath.Join(mount, slice, "cgroup.controllers"))
	if err != nil {
		return
	}
	f, err := os.OpenFile(filepath.Join(mount, slice, "cgroup.subtree_control"), os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	for _, c := range strings.Fields(string(have)) {
		if c == "dmem" || c == "misc" {
			_, _ = f.WriteString("+" + c) // the agent says what is missing
		}
	}
}

// ownCgroup is the cgroup of this process, below the mount of cgroup v2.
func ownCgroup() (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		if own, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return own, nil
		}
	}
	return "", err
}

// startLink is where gpuslotd says whether supervisors ask before a job's program runs.
func startLink(socket string) string { return filepath.Join(filepath.Dir(socket), "condor", "start") }

// noGPUs is what HTCondor sets assignedGPUs to in a slot without GPUs
// (ENVIRONMENT_VALUE_FOR_UnAssignedGPUs).
const noGPUs = "10000"

// requeue ends a job that has not begun such that HTCondor puts it back into the
// queue, with the reason. The starter looks for the error file as the account
// condor, which cannot enter the job's directory: without the right to search it
// would take this for the job's own end (seen on 25.14.1).
func (p program) requeue(message string) int {
	if dir := p.getenv("_CONDOR_SCRATCH_DIR"); dir != "" {
		if err := os.Chmod(dir, 0o711); err != nil {
			fmt.Fprintf(p.stderr, "gpuslot-condor: HTCondor may take this for the job's own end: %v\n", err)
		}
	}
	return p.giveUp(message, notAdmitted)
}

// lastOne says for certain that no other process is in this cgroup or below, so
// that no MPS client is left. Mount is that of cgroup v2.
func lastOne(mount string) bool {
	own, err := ownCgroup()
	if err != nil {
		return false
	}
	dir := filepath.Join(mount, own)
	processes, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || string(bytes.TrimSpace(processes)) != strconv.Itoa(os.Getpid()) {
		return false
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			return false // a cgroup of the job's own
		}
	}
	return err == nil
}

// holdDue says whether HTCondor is to hold any job of this node, perhaps this one.
func holdDue(socket string) bool {
	_, err := os.Lstat(filepath.Join(filepath.Dir(socket), "condor", "holds"))
	return !errors.Is(err, os.ErrNotExist)
}
