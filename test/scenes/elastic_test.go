package scenes

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/site"
)

// elasticPair makes the first two GPUs of the example node elastic.
func elasticPair(inv []gpu.GPU) string {
	text := "[elastic]\npatience = \"2s\"\nstay = \"5s\"\noffer = \"30s\"\n\n"
	for _, g := range inv[:2] {
		text += fmt.Sprintf("[gpu.%q]\nmode = \"elastic\"\n\n", g.UUID)
	}
	return text
}

// countsOften lets the access point say every two seconds what waits there.
const countsOften = "SCHEDD_CRON_GPUSLOT_PERIOD = 2s\nSCHEDD_INTERVAL = 2\n"

// Two elastic GPUs are busy with shared jobs when a job asks for two GPUs: the shared
// jobs run on to their end, new ones wait or go to the third GPU, the job gets both
// GPUs without limits, and when it has ended they are shared again.
func TestElasticGPUs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 3, site.Options{
		Leg: site.Sim, Config: elasticPair(inventory(t, exampleNode).GPUs),
		Condor: countsOften + "START = TARGET.JobUniverse == 5\n", // the site's own
	})
	must(t, st.WaitAccept(ctx, 3))
	before := st.startds(ctx)
	pair := []gpu.UUID{st.Inventory.GPUs[0].UUID, st.Inventory.GPUs[1].UUID}

	hold, release := holdFor(t, st, "elastic")
	var busy []int
	for _, u := range pair {
		c, got, err := st.runningOn(ctx, onProfile(hold, fmt.Sprintf("DeviceUuid == %q", u.Bare())))
		must(t, err)
		st.Check(got == u, "a shared job runs on %s", u)
		busy = append(busy, c)
	}
	begin := time.Now()
	holdTwo, endTwo := holdFor(t, st, "two")
	two, err := st.submit(ctx, job{Hold: holdTwo, Lines: []string{"request_gpus = 2"}})
	must(t, err)
	must(t, st.waitStatus(ctx, "both GPUs to be closed to shared jobs", func(s api.Status) bool {
		return count(s, func(g api.StatusGPU) bool { return strings.Contains(g.Reason, "goes to whole jobs") }) == 2
	}))
	for _, u := range pair {
		must(t, st.waitSlot(ctx, u, false))
	}
	st.Say("  closed to shared jobs %s after the job for two GPUs came", time.Since(begin).Round(time.Second))
	late, err := st.submit(ctx, onProfile(noHold, fmt.Sprintf("DeviceUuid == %q", pair[0].Bare())))
	must(t, err)
	idle, err := st.staysIdle(ctx, late, 3*time.Second)
	must(t, err)
	st.Check(idle, "a new shared job for one of them waits")
	for _, c := range busy {
		must(t, st.waitJobs(ctx, c, running))
	}
	st.Check(true, "the shared jobs run on")

	drained := time.Now()
	release()
	for _, c := range busy {
		must(t, st.checkEnd(ctx, user, c, "0", "until eof: ok", "a shared job that ran on to its end"))
	}
	must(t, st.waitJobs(ctx, two, running))
	st.Say("  the job for two GPUs runs %s after the last shared job might end", time.Since(drained).Round(time.Second))
	must(t, st.waitStatus(ctx, "the agent to know the job on both GPUs, alone", func(s api.Status) bool {
		return count(s, func(g api.StatusGPU) bool { return len(g.Jobs) == 1 && g.Jobs[0].EnforcedBy == "whole" }) == 2
	}))
	_, err = st.shows(ctx, "gpuslot", "status")
	must(t, err)
	endTwo()
	must(t, st.waitJobs(ctx, two, completed))
	o, err := st.output(ctx, two, 0)
	must(t, err)
	got := strings.Split(o.Env["CUDA_VISIBLE_DEVICES"], ",")
	slices.Sort(got)
	want := []string{string(pair[0]), string(pair[1])}
	slices.Sort(want)
	st.Check(slices.Equal(got, want), "request_gpus = 2 got both elastic GPUs: %v", got)
	_, limited := o.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]
	_, pipe := o.Env["CUDA_MPS_PIPE_DIRECTORY"]
	st.Check(!limited && !pipe && o.Env["GPUSLOT_ENFORCED_BY"] == "whole", "without limits and pipe directory; the hook let it in: %v", o.Env)
	memory := strconv.FormatInt(int64(st.Inventory.GPUs[0].Memory), 10)
	st.Check(o.Env["GPUSLOT_VRAM_MIB"] == memory, "GPUSLOT_VRAM_MIB is the memory of one card: %s", o.Env["GPUSLOT_VRAM_MIB"])
	rows, err := st.JobAttrs(ctx, two, "NumShadowStarts")
	must(t, err)
	st.Check(len(rows) == 1 && rows[0][0] == "1", "it was matched once, and never sent back: %v", rows)

	must(t, st.checkEnd(ctx, user, late, "0", "alloc", "the shared job that waited for its turn"))
	must(t, st.WaitAccept(ctx, 3))
	st.checkSameStartd(ctx, before)
	now, err := st.Status(ctx)
	must(t, err)
	shared := count(now, func(g api.StatusGPU) bool { return g.Accept && g.ComputeMode == "exclusive-process" })
	st.Check(shared == 3, "all GPUs are shared again, in compute mode exclusive-process")
	done(t, st)
}

func count(s api.Status, is func(api.StatusGPU) bool) int {
	n := 0
	for _, g := range s.GPUs {
		if is(g) {
			n++
		}
	}
	return n
}
