package scenes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// What users try with the agent's socket, other processes and programs outside their cgroup.

// What an account of the node can do to the agent's socket, which is open to all.
func TestStrangers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 1, site.Options{})
	must(t, st.WaitAccept(ctx, 1))
	u := string(st.Inventory.GPUs[0].UUID)
	out, err := st.Exec(ctx, node.Cmd{User: user, Args: []string{"/usr/libexec/gpuslot/gpuslot-condor", "prepare"},
		Env:   map[string]string{"_CONDOR_AssignedGPUs": u},
		Stdin: strings.NewReader("ClusterId = 1\nProcId = 0\nOwner = \"alice\"\nVramProvisioned = 4096\n")})
	must(t, err)
	st.Contains(out.Stdout, "runs in no slot", "outside any slot: prepare")
	out, _ = st.RunAs(ctx, user, "gpuslot", "gpu", "close", "0", "--reason", "mine")
	st.Check(out.Code == 1 && strings.Contains(out.Stderr, "as root"), "closing a GPU is for root: %s", oneLine(out.Stderr))
	out, err = st.Exec(ctx, node.Cmd{User: user, Args: []string{"python3", "-c", flood}})
	must(t, err)
	st.Contains(out.Stdout, "rubbish: 1", "rubbish and a megabyte without a line's end are refused")
	cluster, err := st.complete(ctx, job{Lines: vram(4000)})
	must(t, err)
	rows, err := st.JobAttrs(ctx, cluster, "NumJobStarts", "NumShadowStarts")
	must(t, err)
	st.Check(rows[0][0] == "1" && rows[0][1] == "1", "beside 200 silent connections of its account a job started at once: %v", rows[0])
	cluster, err = st.submit(ctx, job{Program: claims, Arguments: u})
	must(t, err)
	must(t, st.waitJobs(ctx, cluster, completed))
	text, err := st.printed(ctx, user, cluster, 0)
	must(t, err)
	st.Contains(text, "as the startd says", "a job without a GPU asks the agent for one")
	st.Check(!strings.Contains(text, "granted"), "it got nothing: %s", oneLine(text))
	st.Check(strings.Contains(text, "shut") && !strings.Contains(text, "open"), "it never saw the pipe directory open")
	log, err := st.Journal(ctx, "gpuslotd.service")
	must(t, err)
	st.Contains(log, "refused a job", "the log tells of it")
	cluster, err = st.submit(ctx, job{Program: tracer, Lines: vram(4000)})
	must(t, err)
	must(t, st.waitJobs(ctx, cluster, completed))
	text, err = st.printed(ctx, user, cluster, 0)
	must(t, err)
	st.Check(strings.Contains(text, "parent: supervise") && strings.Contains(text, "its environment: 13") && strings.Contains(text, "attach: 1"),
		"a process of the job's account can neither read nor trace the supervisor: %s", oneLine(text))
	must(t, st.checkCgroups(ctx))
	must(t, st.checkOddGroup(ctx, t))
	must(t, st.checkSpoiledSlot(ctx))
	done(t, st)
}

// checkCgroups: HTCondor gives the slice of a job to the job's account, so the job can leave its
// own cgroup for another one there, and go nowhere else.
func (st *Stage) checkCgroups(ctx context.Context) error {
	cluster, err := st.submit(ctx, job{Program: leaver})
	if err != nil {
		return err
	}
	if err := st.waitJobs(ctx, cluster, completed); err != nil {
		return err
	}
	text, err := st.printed(ctx, user, cluster, 0)
	if err != nil {
		return err
	}
	const want = `scope root 755
scope/cgroup.procs root 644
slice alice 755
slice/cgroup.procs alice 644
slice/cgroup.subtree_control alice 644
above root 755
above/cgroup.procs root 644
into slice/mine: moved
into scope: Permission denied
into above: Permission denied
`
	st.Check(text == want, "whose the cgroups around a job are, and where it can go:\n%s", text)
	return nil
}

// leaver prints whom its cgroups belong to, and tries to leave its own.
var leaver = program{"leaver.sh", `#!/bin/bash
export LC_ALL=C
own=$(sed -n s/^0:://p /proc/self/cgroup)
scope=/sys/fs/cgroup$own slice=${scope%/*} above=${scope%/*/*}
for f in scope scope/cgroup.procs slice slice/cgroup.procs slice/cgroup.subtree_control above above/cgroup.procs; do
	name=${f%%/*}
	echo $f $(stat -c '%U %a' ${!name}${f#$name})
done
goes() { # a process of this job that goes into another cgroup
	(echo $BASHPID >"$1/cgroup.procs" && sed -n s/^0:://p /proc/self/cgroup | grep -q "${1##*/}" && echo moved) 2>&1 | sed 's/.*: //'
}
mkdir $slice/mine
echo into slice/mine: $(goes $slice/mine)
echo $BASHPID >$slice/mine/cgroup.procs
echo into scope: $(goes $scope)
echo into above: $(goes $above)
`}

// checkSpoiledSlot: a job leaves cgroups in its slot's slice that HTCondor does not remove, such that
// no process can be moved into the cgroup of the slot's next job.
func (st *Stage) checkSpoiledSlot(ctx context.Context) error {
	spoils, err := st.submit(ctx, job{Program: spoiler, Lines: vram(4000)})
	if err != nil {
		return err
	}
	if err := st.waitJobs(ctx, spoils, completed); err != nil {
		return err
	}
	text, err := st.printed(ctx, user, spoils, 0)
	if err != nil {
		return err
	}
	slice := strings.TrimSpace(text)
	st.Check(strings.HasPrefix(slice, "/sys/fs/cgroup/") && strings.HasSuffix(slice, ".slice"), "a job spoiled %s", slice)
	next, err := st.submit(ctx, job{Lines: vram(4000)})
	if err != nil {
		return err
	}
	err = st.waitJobs(ctx, next, completed)
	st.Check(err == nil, "the next job of its slot runs")
	if err != nil {
		return err
	}
	log, err := st.Journal(ctx, "gpuslotd.service")
	st.Contains(log, "gpuslotd has removed them", "the log")
	return err
}

// spoiler makes its slice the root of a threaded tree, and cgroups in it that are too deep for HTCondor.
var spoiler = program{"spoiler.py", `#!/usr/bin/env python3
import os
own = [l for l in open("/proc/self/cgroup") if l.startswith("0::")][0][3:].strip()
at = "/sys/fs/cgroup" + os.path.dirname(own)
def write(name, text):
    with open(at + "/" + name, "w") as f:
        f.write(text)
for controller in open(at + "/cgroup.subtree_control").read().split():
    write("cgroup.subtree_control", "-" + controller)
for pid in open("/sys/fs/cgroup" + own + "/cgroup.procs").read().split():
    write("cgroup.procs", pid)
os.mkdir(at + "/t")
write("t/cgroup.type", "threaded")
fd = os.open(at, os.O_RDONLY)
for i in range(60):
    name = "d" * 200
    os.mkdir(name, dir_fd=fd)
    fd = os.open(name, os.O_RDONLY, dir_fd=fd)
print(at)
`}

// oddGroup has line breaks in the job's slot ad, where it looks like other attributes.
const oddGroup = `+AccountingGroup = ifThenElse(JobStatus == 2, formatTime(0, "grp%nVRAM = 1%n%nName = 1"), "alice")`

// checkOddGroup: the startd confirms such a job and those beside it, and does so again
// to a gpuslotd that finds them running.
func (st *Stage) checkOddGroup(ctx context.Context, t *testing.T) error {
	path, release := holdFor(t, st, "odd-group")
	defer release()
	var ids []string
	for _, lines := range [][]string{vram(4000), vram(4000, oddGroup)} {
		cluster, err := st.submit(ctx, job{Hold: path, Lines: lines})
		if err != nil {
			return err
		}
		if err := st.waitJobs(ctx, cluster, running); err != nil {
			return err
		}
		ids = append(ids, fmt.Sprintf("%d.0", cluster))
	}
	slices.Sort(ids)
	confirmed := func(s api.Status) bool {
		var of []string
		for _, j := range s.GPUs[0].Jobs {
			if j.Confirmed && j.BudgetMiB == 4096 {
				of = append(of, j.ID)
			}
		}
		slices.Sort(of)
		return slices.Equal(of, ids) && s.GPUs[0].Accept
	}
	if err := st.waitStatus(ctx, "both jobs confirmed", confirmed); err != nil {
		return err
	}
	if _, err := st.Run(ctx, "systemctl", "restart", "gpuslotd.service"); err != nil {
		return err
	}
	return st.waitStatus(ctx, "both jobs confirmed after a restart", confirmed)
}

// TestOutsidePrograms: jobs whose programs HTCondor would start outside their cgroup wait.
// The hook holds one whose attribute is undefined only while it is matched.
func TestOutsidePrograms(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 1, site.Options{})
	must(t, st.WaitAccept(ctx, 1))
	var waiting []int
	for _, name := range []string{"PreCmd", "PostCmd", "ToolDaemonCmd", "TransferPlugins"} {
		for _, lines := range [][]string{nil, vram(4000)} {
			cluster, err := st.submit(ctx, job{Lines: append(lines, "+"+name+` = "outside.sh"`)})
			must(t, err)
			waiting = append(waiting, cluster)
		}
	}
	late, err := st.submit(ctx, job{Lines: vram(4000, `+PreCmd = ifThenElse(TARGET.Cpus is undefined, "outside.sh", undefined)`)})
	must(t, err)
	// Those after them run, so the negotiator has seen them.
	for _, lines := range [][]string{nil, vram(4000)} {
		_, err = st.complete(ctx, job{Lines: lines})
		must(t, err)
	}
	for _, cluster := range waiting {
		rows, err := st.JobAttrs(ctx, cluster, "JobStatus", "NumShadowStarts")
		must(t, err)
		st.Check(rows[0][0] == "1" && rows[0][1] == "undefined", "job %d, with a program outside its cgroup, waits: %v", cluster, rows[0])
	}
	must(t, st.waitJobs(ctx, late, held))
	log, err := st.JobLog(ctx, late)
	must(t, err)
	st.Contains(log, "outside its cgroup, where no limit holds (PreCmd)", "the hook holds what looked undefined")
	st.Check(!strings.Contains(log, executing), "it never ran")
	done(t, st)
}

// claims asks the agent for a GPU and looks whether the GPU's pipe directory opens.
var claims = program{"claims.py", `#!/usr/bin/env python3
import json, os, socket, sys, time
gpu = sys.argv[1]
def look():
    try:
        os.stat("/run/gpuslot/mps/" + gpu + "/control")
        print("open")
    except PermissionError:
        print("shut")
look()
request = {"v": 1, "op": "prepare", "job": {"id": "9.9", "assigned_gpus": [gpu], "provisioned_vram_mib": 4096}}
for _ in range(30):
    s = socket.socket(socket.AF_UNIX)
    s.connect("/run/gpuslot/agent.sock")
    s.sendall(json.dumps(request).encode() + b"\n")
    reply = s.recv(65536).decode()
    if "grant" in reply:
        print("granted")
    look()
    time.sleep(0.05)
print(reply)
`}

// tracer tries what a debugger does with the job's supervisor, its parent, and prints
// the errors: 13 is EACCES, 1 EPERM.
var tracer = program{"tracer.py", `#!/usr/bin/env python3
import ctypes, os
parent = os.getppid()
print("parent:", os.path.basename(open("/proc/%d/cmdline" % parent).read().split("\0")[0]))
try:
    print("its environment:", len(open("/proc/%d/environ" % parent).read()), "bytes")
except OSError as e:
    print("its environment:", e.errno)
libc = ctypes.CDLL(None, use_errno=True)
print("attach:", ctypes.get_errno() if libc.ptrace(16, parent, 0, 0) else "done")
`}

// flood leaves 200 silent connections open for a minute, after two rude ones.
const flood = `
import os, socket, sys, time
def connect():
    s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect("/run/gpuslot/agent.sock"); return s
refused = 0
for text in (b"\x00\xff{]\n", b"x" * (1 << 20)):
    s = connect()
    try:
        s.sendall(text)
    except OSError:
        pass
    try:
        refused += b'"error"' in s.recv(65536)
    except OSError:
        refused += 1
print("rubbish: %d" % (refused == 2), flush=True)
if os.fork():
    sys.exit()
os.setsid()
null = os.open("/dev/null", os.O_RDWR)
for fd in (0, 1, 2):
    os.dup2(null, fd)
end = time.time() + 60
while time.time() < end:  # the agent hangs up on silence: come back
    silent = [connect() for _ in range(200)]
    time.sleep(1)
`
