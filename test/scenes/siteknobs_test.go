package scenes

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// What sites have in their configuration for years, and set as a whole.
const siteKnobs = `STARTD_ATTRS = SiteName
SiteName = "here"
SLOT_TYPE_1 = 100%
SLOT_TYPE_1_PARTITIONABLE = TRUE
NUM_SLOTS_TYPE_1 = 1
NUM_CPUS = 24
RESERVED_MEMORY = 2048
RESERVED_DISK = 100
MAX_SLOT_TYPES = 12
DAEMON_LIST = MASTER, COLLECTOR, NEGOTIATOR, SCHEDD, STARTD, SHARED_PORT
`

// A site's own slot type, attributes, reserves and daemons: the slots are as planned all
// the same. What does take them away is named with file and line. Leg: real.
func TestSiteKnobs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 2, site.Options{Condor: siteKnobs})
	must(t, st.WaitAccept(ctx, 2))
	s, err := st.Status(ctx)
	must(t, err)
	st.Check(len(s.Changes) == 0 && len(s.Errors) == 0, "nothing is pending, and nothing wrong: %v %q", s.Changes, s.Errors)
	st.Contains(strings.Join(s.Warnings, "\n"), "NUM_SLOTS_TYPE_1 = 1 (/etc/condor/config.d/90-site.config, line 5) counts no more", "what became of the site's slot")
	slots, err := st.Run(ctx, "condor_status", "-af", "SlotTypeID", "TotalSlotCpus", "TotalSlotMemory", "SiteName", "GPUSlotVersion isnt undefined")
	must(t, err)
	var cpus, memory int
	for line := range strings.Lines(slots.Stdout) {
		var c, m int
		f := strings.Fields(line)
		_ = json.Unmarshal([]byte(f[1]), &c)
		_ = json.Unmarshal([]byte(f[2]), &m)
		cpus, memory = cpus+c, memory+m
		st.Check(len(f[0]) == 3 && f[3] == "here" && f[4] == "true", "a slot of gpuslot's, with the site's attribute and gpuslot's: %s", oneLine(line))
	}
	whole := int(st.Inventory.Host.Memory)
	st.Check(cpus == 24 && memory <= whole-2048 && memory > whole-2048-100, "the slots have %d CPUs and %d of %d MiB", cpus, memory, whole)
	cluster, err := st.submit(ctx, job{Seconds: 1, Lines: vram(4000), Queue: "queue 4"})
	must(t, err)
	must(t, st.untouched(ctx, cluster, "a job"))

	// The monitor goes: nobody tells START which GPUs take jobs.
	const file = "/etc/condor/config.d/95-later.config"
	must(t, st.WriteFile(ctx, file, node.File{Data: "# ours\nSTARTD_CRON_JOBLIST = SITE\n"}))
	_, err = st.Run(ctx, "condor_reconfig")
	must(t, err)
	_, err = st.Run(ctx, "systemctl", "reload", "gpuslotd")
	must(t, err)
	const joblist = "STARTD_CRON_JOBLIST = SITE (" + file + ", line 2) leaves out GPUSLOT"
	must(t, st.Wait(ctx, "the agent's word on a startd that does not ask", func() bool {
		s, err = st.Status(ctx)
		return err == nil && slices.ContainsFunc(s.Errors, func(e string) bool { return strings.Contains(e, "the startd has not asked") })
	}))
	st.Contains(strings.Join(s.Errors, "\n"), joblist, "the errors")
	st.Check(!slices.ContainsFunc(s.GPUs, func(g api.StatusGPU) bool { return g.Accept }), "no GPU is said to take jobs: %s", s.GPUs[0].Reason)
	found, err := st.doctor(ctx)
	must(t, err)
	st.Check(slices.ContainsFunc(found, func(f diagnosis) bool {
		return f.Level == "error" && strings.Contains(f.What, "the startd has not asked")
	}), "gpuslot doctor finds the error")
	metrics, err := st.Run(ctx, "curl", "-sf", "http://127.0.0.1:9817/metrics")
	if err == nil {
		st.Contains(metrics.Stdout, "gpuslot_startd_asks 0\n", "the metrics")
	}

	// Resources go: a restart of the startd would change nothing.
	must(t, st.WriteFile(ctx, file, node.File{Data: "MACHINE_RESOURCE_NAMES = GPUs\n"}))
	_, err = st.Run(ctx, "systemctl", "reload", "gpuslotd")
	must(t, err)
	_, err = st.Run(ctx, "condor_restart", "-peaceful", "-daemon", "STARTD")
	must(t, err)
	must(t, st.Wait(ctx, "the agent's word on what is missing", func() bool {
		s, err = st.Status(ctx)
		return err == nil && len(s.Changes) == 1 && strings.Contains(s.Changes[0].Says, "a restart does not change that")
	}))
	st.Contains(s.Changes[0].Says, "MACHINE_RESOURCE_NAMES = GPUs ("+file+", line 1)", "what is pending")

	_, err = st.Run(ctx, "rm", file)
	must(t, err)
	_, err = st.Run(ctx, "condor_restart", "-peaceful", "-daemon", "STARTD")
	must(t, err)
	_, err = st.Run(ctx, "systemctl", "reload", "gpuslotd")
	must(t, err)
	must(t, st.Wait(ctx, "a node as planned", func() bool {
		s, err = st.Status(ctx)
		return err == nil && len(s.Changes) == 0 && len(s.Errors) == 0 && s.GPUs[0].Accept
	}))
	done(t, st)
}

// Where STARTER_LOG_NAME_APPEND is off, a starter's log is not named by its slot, and only
// -slot-name has it: jobs run all the same. Slots may have another name, too. Leg: real.
func TestStarterLogName(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 2, site.Options{Condor: "STARTER_LOG_NAME_APPEND = false\nSTARTD_RESOURCE_PREFIX = vm\nMAXJOBRETIREMENTTIME = 3600\n"})
	must(t, st.WaitAccept(ctx, 2))
	long, err := st.submit(ctx, job{Seconds: 30, Lines: vram(4000)})
	must(t, err)
	var args string
	must(t, st.Wait(ctx, "the starter of a running job", func() bool {
		out, err := st.Run(ctx, "pgrep", "-a", "-x", "condor_starter")
		args = out.Stdout
		return err == nil && args != ""
	}))
	st.Check(strings.Contains(args, "-slot-name vm") && !strings.Contains(args, " -a "), "the starter runs with -slot-name and without -a: %s", oneLine(args))
	must(t, st.untouched(ctx, long, "a job"))
	cluster, err := st.submit(ctx, job{Seconds: 1, Lines: vram(4000), Queue: "queue 4"})
	must(t, err)
	must(t, st.untouched(ctx, cluster, "four jobs, more than may be denied in a row"))
	s, err := st.Status(ctx)
	must(t, err)
	st.Check(!slices.ContainsFunc(s.GPUs, func(g api.StatusGPU) bool { return !g.Accept }), "all GPUs take jobs: %q", s.Errors)
	must(t, st.drainedByOthers(ctx, t))
	done(t, st)
}

// drainedByOthers is a drain whose START replaces that of all slots, as condor_defrag's
// does: a closed GPU is matched no more than before.
func (st *Stage) drainedByOthers(ctx context.Context, t *testing.T) error {
	shut, open := st.Inventory.GPUs[0].UUID, st.Inventory.GPUs[1].UUID
	// The drain goes on, and its START with it, for as long as this job runs.
	path, release := holdFor(t, st, "drain")
	defer release()
	late, err := st.submit(ctx, job{Hold: path, Lines: vram(4000, on(open))})
	if err != nil {
		return err
	}
	if err := st.waitJobs(ctx, late, running); err != nil {
		return err
	}
	if _, err := st.heard(ctx, shut, false, "gpuslot", "gpu", "close", "0", "--reason", "riser"); err != nil {
		return err
	}
	if _, err := st.Run(ctx, "condor_drain", "-graceful", "-start", "TARGET.JobUniverse == 5", st.Name()+".test"); err != nil {
		return err
	}
	err = st.Wait(ctx, "the drain's START", func() bool {
		out, err := st.Run(ctx, "condor_status", "-constraint", "PartitionableSlot", "-af:r", "Start")
		return err == nil && strings.TrimSpace(strings.ReplaceAll(out.Stdout, "TARGET.JobUniverse == 5", "")) == ""
	})
	if err != nil {
		return err
	}
	waiting, err := st.submit(ctx, pinned(shut, 1))
	if err != nil {
		return err
	}
	if _, err := st.complete(ctx, pinned(open, 1)); err != nil {
		return err
	}
	rows, err := st.JobAttrs(ctx, waiting, "JobStatus", "NumShadowStarts")
	if err != nil {
		return err
	}
	st.Check(rows[0][0] == "1" && rows[0][1] == "undefined", "a job for a closed GPU waits while another START is in force: %v", rows[0])
	_, err = st.Run(ctx, "condor_drain", "-cancel", st.Name()+".test")
	return err
}
