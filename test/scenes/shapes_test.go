package scenes

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// Nodes of other shapes than the demo's, several at a time: they mostly wait.
// Leg of all: real. No server can come up without a GPU.

// A job cannot say what the slot does not: here no monitor ever speaks.
func TestForgedAcceptance(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 1, site.Options{Condor: "STARTD_CRON_JOBLIST =\n"})
	cluster, err := st.submit(ctx, job{Lines: vram(4000,
		"+GPUAccept = true", "+GPUAcceptTime = 9999999999", "+LastHeardFrom = 0", `+GPUTenant = "alice"`)})
	must(t, err)
	stays, err := st.staysIdle(ctx, cluster, 8*time.Second)
	must(t, err)
	st.Check(stays, "a job that brings its own GPUAccept is not matched")
	done(t, st)
}

// A startd that restarts while a GPU is closed must not take its absence of news for good news.
func TestStartdRestartWithClosedGPU(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 2, site.Options{})
	must(t, st.WaitAccept(ctx, 2))
	closed, open := st.Inventory.GPUs[0].UUID, st.Inventory.GPUs[1].UUID
	pid, err := st.mainPID(ctx, unit(closed))
	must(t, err)
	_, err = st.Run(ctx, "kill", "-STOP", pid)
	must(t, err)
	must(t, st.waitSlot(ctx, closed, false))
	_, err = st.Run(ctx, "condor_restart", "-startd")
	must(t, err)
	other, err := st.submit(ctx, pinned(open, 1))
	must(t, err)
	there, err := st.submit(ctx, pinned(closed, 1))
	must(t, err)
	must(t, st.waitJobs(ctx, other, completed))
	stays, err := st.staysIdle(ctx, there, 5*time.Second)
	must(t, err)
	st.Check(stays, "after the restart the closed GPU is closed, and its neighbour runs jobs")
	_, err = st.Run(ctx, "kill", "-CONT", pid)
	must(t, err)
	must(t, st.waitJobs(ctx, there, completed))
	done(t, st)
}

// MPS serves one account at a time: the other's job waits in the queue, not in cuInit.
func TestTenants(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 1, site.Options{})
	must(t, st.WaitAccept(ctx, 1))
	alicesHold, release := holdFor(t, st, "alice")
	alices, err := st.submit(ctx, job{Lines: vram(4000), Hold: alicesHold})
	must(t, err)
	_, err = st.waitLog(ctx, alices, executing)
	must(t, err)
	must(t, st.waitTenant(ctx, st.Inventory.GPUs[0].UUID, user))
	const now = "/home/alice/now"
	bobsHold, releaseBobs := holdFor(t, st, "bob")
	bobs, err := st.submitAs(ctx, "bob", job{Lines: vram(4000), Hold: bobsHold})
	must(t, err)
	kept, err := st.submit(ctx, job{Program: keeper, Arguments: now})
	must(t, err)
	_, err = st.complete(ctx, job{Program: giver, Lines: vram(4000)})
	must(t, err)
	rows, err := st.JobAttrs(ctx, bobs, "JobStatus", "NumShadowStarts")
	must(t, err)
	st.Check(rows[0][0] == "1" && rows[0][1] == "undefined", "alice's second job ran beside her first, bob's waits: %v", rows[0])
	release()
	must(t, st.waitJobs(ctx, bobs, running))
	must(t, st.WriteFile(ctx, now, node.File{Mode: 0o644}))
	must(t, st.waitJobs(ctx, kept, completed))
	text, err := st.printed(ctx, user, kept, 0)
	must(t, err)
	st.Check(strings.Contains(text, "while alice is in: connected") && strings.Contains(text, "afterwards: Permission denied"),
		"a socket's descriptor that alice's job left to another one does not open the GPU beside bob: %s", oneLine(text))
	releaseBobs()
	must(t, st.waitJobs(ctx, bobs, completed))
	text, err = st.printed(ctx, "bob", bobs, 0)
	must(t, err)
	o, err := parseOutput(text)
	must(t, err)
	why := wrongEnvironment(o, string(st.Inventory.GPUs[0].UUID), 4096)
	st.Check(why == "", "then bob's job ran, and its control daemon answered it %s", why)
	done(t, st)
}

// keeper gets a descriptor of a control daemon's socket from a job of its account, and
// connects through it at once and when its argument, a file, is there.
var keeper = program{"keeper.py", `#!/usr/bin/env python3
import array, os, socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind("/home/alice/keeper.sock")
s.listen()
_, kept, _, _ = s.accept()[0].recvmsg(1, socket.CMSG_SPACE(4))
fd = array.array("i", kept[0][2])[0]
def connect():
    c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        c.connect("/proc/self/fd/%d" % fd)
        return "connected"
    except OSError as e:
        return e.strerror
    finally:
        c.close()
print("while alice is in:", connect())
s.close()
os.unlink("/home/alice/keeper.sock")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.2)
print("afterwards:", connect())
`}

// giver gives keeper a descriptor of its GPU's socket and waits until it was used.
var giver = program{"giver.py", `#!/usr/bin/env python3
import array, os, socket, time
fd = os.open(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/control", os.O_PATH)
while True:
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect("/home/alice/keeper.sock")
        break
    except OSError:
        time.sleep(0.2)
s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
while os.path.exists("/home/alice/keeper.sock"):
    time.sleep(0.2)
`}

// A node without the control daemon's package: GPUs closed with the reason, CPU jobs run.
func TestControlDaemonNotInstalled(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 1, site.Options{NoControlDaemon: true})
	must(t, st.waitSlot(ctx, st.Inventory.GPUs[0].UUID, false))
	s, err := st.Status(ctx)
	must(t, err)
	st.Contains(s.GPUs[0].Reason, "nvidia-cuda-mps-control", "status")
	_, err = st.complete(ctx, job{})
	must(t, err)
	gpuJob, err := st.submit(ctx, job{Lines: vram(4000)})
	must(t, err)
	stays, err := st.staysIdle(ctx, gpuJob, 5*time.Second)
	must(t, err)
	st.Check(stays, "the GPU job is not matched")
	done(t, st)
}

// 7 of 8: a configured GPU is missing, another card sits in its place.
func TestLostAndSwappedCard(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	inv := inventory(t, exampleNode)
	lost := inv.GPUs[2].UUID
	inv.GPUs = inv.GPUs[:3]
	inv.GPUs[2].UUID = "GPU-99999999-0000-4000-8000-000000000000"
	st := newStage(t, 3, site.Options{Inventory: &inv, Recorded: true, Config: "[gpu.\"" + string(lost) + "\"]\nshares = 4\n"})
	must(t, st.WaitAccept(ctx, 3))
	s, err := st.Status(ctx)
	must(t, err)
	st.Contains(strings.Join(s.Absent, " "), string(lost), "status names the absent GPU")
	metrics, err := st.metrics(ctx)
	must(t, err)
	st.Contains(metrics, `gpuslot_gpu_absent{gpu="`+string(lost)+`"} 1`, "a metric names it")
	out, err := st.Run(ctx, "condor_status", "-af", "GPUSlotAbsentGPUs")
	must(t, err)
	st.Contains(out.Stdout, string(lost), "the machine ad names it")
	out, err = st.Run(ctx, "gpuslot", "plan", "--inventory", site.InventoryFile)
	must(t, err)
	st.Contains(out.Stdout+out.Stderr, string(lost), "gpuslot plan warns")
	_, err = st.complete(ctx, pinned(inv.GPUs[2].UUID, 1))
	must(t, err)
	done(t, st)
}

// A driver that appears after boot: nothing is offered, then everything.
func TestDriverAppearsLate(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	inv := inventory(t, exampleNode)
	inv.GPUs = inv.GPUs[:2]
	empty := inv
	empty.GPUs = nil
	st := newStage(t, 2, site.Options{Inventory: &empty, Recorded: true, NoAccessPoint: true})
	s, err := st.Status(ctx)
	must(t, err)
	st.Check(len(s.GPUs) == 0, "no GPU is offered: %d", len(s.GPUs))
	text, err := inv.Encode()
	must(t, err)
	must(t, st.WriteFile(ctx, site.InventoryFile, node.File{Data: string(text)}))
	wait, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	must(t, st.Wait(wait, "the agent to see the GPUs and to say that HTCondor does not", func() bool {
		s, err := st.Status(wait)
		return err == nil && len(s.GPUs) == 2 && strings.Contains(strings.Join(s.Warnings, " "), "restart")
	}))
	_, err = st.Run(ctx, "condor_restart", "-startd")
	must(t, err)
	must(t, st.WaitAccept(ctx, 2))
	_, err = st.complete(ctx, job{Lines: vram(4000)})
	must(t, err)
	done(t, st)
}

// What gpuslot changes on the host, it undoes: compute modes, daemons, files.
func TestReleaseRestoresTheHost(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 2, site.Options{})
	must(t, st.WaitAccept(ctx, 2))
	modes := func() string {
		out, err := st.Run(ctx, "gpuslot", "inventory", "--json")
		must(t, err)
		inv, err := gpu.DecodeInventory(strings.NewReader(out.Stdout))
		must(t, err)
		var all []string
		for _, g := range inv.GPUs {
			all = append(all, string(g.ComputeMode))
		}
		return strings.Join(all, " ")
	}
	shared := modes()
	st.Check(shared == "exclusive-process exclusive-process", "compute modes of shared GPUs: %s", shared)
	s, err := st.Status(ctx)
	must(t, err)
	st.Check(s.GPUs[0].ComputeMode == "exclusive-process", "status says so: %s", s.GPUs[0].ComputeMode)
	_, err = st.Run(ctx, "systemctl", "stop", "condor.service", "gpuslotd.socket", "gpuslotd.service")
	must(t, err)
	left := modes()
	st.Check(left == shared, "the agent's end alone changes nothing: %s", left)
	_, err = st.Run(ctx, "gpuslotd", "--release")
	must(t, err)
	back := modes()
	st.Check(back == "default default", "after gpuslotd --release: %s", back)
	out, err := st.Run(ctx, "sh", "-c", "systemctl list-units --plain --no-legend 'gpuslot-mps@*'; ls /run/gpuslot/mps /run/gpuslot/condor 2>/dev/null | grep -v :")
	if err != nil && out.Code > 1 {
		t.Fatal(err)
	}
	st.Check(strings.TrimSpace(out.Stdout) == "", "no daemon, pipe directory or HTCondor file is left: %s", oneLine(out.Stdout))
	done(t, st)
}

// A GPU that falls off the bus takes itself out and nothing else.
func TestLostGPU(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 3, site.Options{})
	must(t, st.WaitAccept(ctx, 3))
	lost, other := st.Inventory.GPUs[1].UUID, st.Inventory.GPUs[0].UUID
	_, err := st.Run(ctx, "simgpu", "lose", string(lost))
	must(t, err)
	must(t, st.waitSlot(ctx, lost, false))
	_, reason := st.slotAccepts(ctx, lost)
	st.Check(reason != "", "the slot says why it is closed: %s", reason)
	_, err = st.complete(ctx, pinned(other, 1))
	must(t, err)
	st.Check(true, "its neighbour runs jobs")
	_, err = st.Run(ctx, "simgpu", "restore", string(lost))
	must(t, err)
	// It fell off the bus by the driver's own word: that it answers again is not enough.
	out, err := st.openGPU(ctx, lost)
	must(t, err)
	st.Check(strings.Contains(out, "is opened, although Xid 79"), "back, it opens by an operator's word: %s", oneLine(out))
	must(t, st.waitSlot(ctx, lost, true))
	done(t, st)
}

// openGPU is an operator who opens a GPU once it is in the plan again.
func (st *Stage) openGPU(ctx context.Context, u gpu.UUID) (said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	err = st.Wait(ctx, "the GPU to be opened", func() bool {
		out, err := st.Run(ctx, "gpuslot", "gpu", "open", string(u), "--override")
		said = out.Stdout
		return err == nil
	})
	return said, err
}

// A broken file on reload: the old plan stays in force and everybody is told.
func TestBrokenReload(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 1, site.Options{})
	must(t, st.WaitAccept(ctx, 1))
	must(t, st.reload(ctx, "[sharing]\nsharez = 3\n"))
	wait, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	said := ""
	err := st.Wait(wait, "status to tell the error", func() bool {
		s, err := st.Status(wait)
		said = s.ConfigError
		return err == nil && said != ""
	})
	must(t, err)
	st.Contains(said, "sharez", "status")
	metrics, err := st.metrics(ctx)
	must(t, err)
	st.Contains(metrics, "gpuslot_config_last_reload_successful 0", "the metric")
	out, err := st.Run(ctx, "systemctl", "is-active", "gpuslotd.service")
	must(t, err)
	st.Check(strings.TrimSpace(out.Stdout) == "active", "the agent stays up")
	_, err = st.complete(ctx, job{Lines: vram(4000)})
	must(t, err)
	log, err := st.Journal(ctx, "gpuslotd.service")
	must(t, err)
	st.Contains(log, "sharez", "the journal")
	must(t, st.brokenStart(ctx))
	done(t, st)
}

// brokenStart restarts the agent with that file: it runs on, says why the GPU is closed,
// and goes on by itself when the file is mended.
func (st *Stage) brokenStart(ctx context.Context) error {
	daemon, err := st.mainPID(ctx, unit(st.Inventory.GPUs[0].UUID))
	if err != nil {
		return err
	}
	if _, err := st.Run(ctx, "systemctl", "restart", "gpuslotd.service"); err != nil {
		return err
	}
	out, err := st.Run(ctx, "sh", "-c", "gpuslot status 2>&1; systemctl show --value -p ActiveState -p StatusText -p NRestarts gpuslotd.service")
	if err != nil {
		return err
	}
	st.Check(strings.Count(out.Stdout, "sharez") >= 2 && strings.Contains(out.Stdout, "active\n") && strings.Contains(out.Stdout, "\n0\n"),
		"status and systemd show the error, and the agent stays up: %s", oneLine(out.Stdout))
	same, err := st.mainPID(ctx, unit(st.Inventory.GPUs[0].UUID))
	st.Check(err == nil && same == daemon, "the control daemon lived on (pid %s, %v)", same, err)
	if err := st.WriteFile(ctx, "/etc/gpuslot/gpuslot.toml", node.File{Data: ""}); err != nil {
		return err
	}
	if err := st.WaitAccept(ctx, 1); err != nil {
		return err
	}
	_, err = st.complete(ctx, job{Lines: vram(4000)})
	return err
}

// metrics is one scrape, from inside.
func (st *Stage) metrics(ctx context.Context) (string, error) {
	const scrape = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9847/metrics', timeout=5).read().decode())"
	out, err := st.Run(ctx, "python3", "-c", scrape)
	return out.Stdout, err
}

// A site that cannot use hooks: the job wrapper alone admits jobs.
func TestWrapperOnly(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 1, site.Options{Condor: wrapperOnly, Config: "[htcondor]\njob_wrapper = \"/usr/libexec/gpuslot/wrap\"\n"})
	must(t, st.WaitAccept(ctx, 1))
	o, err := st.told(ctx, job{Lines: vram(4000, `environment = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=30G"`)})
	must(t, err)
	why := wrongEnvironment(o, string(st.Inventory.GPUs[0].UUID), 4096)
	st.Check(why == "", "the wrapper injected the limits %s", why)
	_, err = st.complete(ctx, job{})
	must(t, err)
	done(t, st)
}

const wrapperOnly = `
slot_type_101.STARTER_JOB_HOOK_KEYWORD =
STARTER_JOB_HOOK_KEYWORD =
`
