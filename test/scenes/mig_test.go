package scenes

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// twoA100s is a node of two A100s with 40 GB.
func twoA100s() *gpu.Inventory {
	inv := &gpu.Inventory{
		Schema: gpu.InventorySchema, Host: gpu.Host{Name: "wn-mig1.example.org", CPUs: 32, Memory: 131072},
		Driver: "550.163.01", CUDA: "12.4",
	}
	for i := range 2 {
		inv.GPUs = append(inv.GPUs, gpu.GPU{
			UUID: gpu.UUID(fmt.Sprintf("GPU-a100000%d-7d02-4b6a-9c31-0e84a2d1f001", i)), Index: i, Name: "NVIDIA A100-SXM4-40GB",
			PCI: gpu.PCIBusID(fmt.Sprintf("0000:1%c:00.0", 'a'+i)), Memory: 40960, Capability: gpu.ComputeCapability{Major: 8},
			Multiprocessors: 108, ComputeMode: gpu.ComputeModeDefault, MIGCapable: true,
		})
	}
	return inv
}

// divided is the configuration that divides the first A100.
func divided(layouts ...string) string {
	return fmt.Sprintf("[gpu.%q]\nmode = \"mig\"\nmig_layout = [%s]\n", twoA100s().GPUs[0].UUID, quoted(layouts))
}

func quoted(words []string) string {
	var all []string
	for _, w := range words {
		all = append(all, strconv.Quote(w))
	}
	return strings.Join(all, ", ")
}

// startMIG boots a node whose first GPU is divided.
func startMIG(t *testing.T, config string) *Stage {
	t.Helper()
	inv := twoA100s()
	st := newStage(t, 0, site.Options{Leg: site.Sim, Inventory: inv, Config: config, Binds: driverFiles(t, *inv)})
	st.Inventory = *inv
	return st
}

// migDevices are the MIG devices that the agent offers, by their profiles.
func (st *Stage) migDevices(ctx context.Context) (map[string][]api.StatusGPU, error) {
	s, err := st.Status(ctx)
	by := map[string][]api.StatusGPU{}
	for _, g := range s.GPUs {
		if _, profile, ok := strings.Cut(g.Name, " MIG "); ok {
			by[profile] = append(by[profile], g)
		}
	}
	return by, err
}

// onProfile asks for a MIG device by what tells it from others.
func onProfile(hold, require string) job {
	return job{Program: gpuJob, Arguments: hold + " devices alloc 1024 until eof", Lines: vram(2048, "require_gpus = "+require)}
}

// runningOn submits a job, waits until it runs, and tells the GPU that the agent
// has booked it on.
func (st *Stage) runningOn(ctx context.Context, j job) (cluster int, u gpu.UUID, err error) {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	if cluster, err = st.submit(ctx, j); err != nil {
		return 0, "", err
	}
	if err = st.waitJobs(ctx, cluster, running); err != nil {
		return cluster, "", err
	}
	err = st.Wait(ctx, fmt.Sprintf("the agent to know job %d", cluster), func() bool {
		s, err := st.Status(ctx)
		for _, g := range s.GPUs {
			if slices.ContainsFunc(g.Jobs, func(j api.StatusJob) bool { return j.ID == fmt.Sprintf("%d.0", cluster) }) {
				u = gpu.UUID(g.UUID)
			}
		}
		return err == nil && u != ""
	})
	return cluster, u, err
}

// A node with two A100s: one is divided before HTCondor starts, the other shared.
// Jobs choose their device by profile, by memory and by request_vram alone, and
// see it and nothing else.
func TestMIGBesideMPS(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := startMIG(t, divided("3g.20gb, 2g.10gb, 1g.5gb*2"))
	must(t, st.WaitAccept(ctx, 5))
	devices, err := st.migDevices(ctx)
	must(t, err)
	st.Check(len(devices["3g.20gb"]) == 1 && len(devices["2g.10gb"]) == 1 && len(devices["1g.5gb"]) == 2, "the agent has made the layout: %d profiles", len(devices))

	hold, release := holdFor(t, st, "mig")
	shared := st.Inventory.GPUs[1].UUID
	for _, c := range []struct {
		what, require string
		want          []api.StatusGPU
	}{
		{"a job that asks for the profile", `MIGProfile == "3g.20gb"`, devices["3g.20gb"]},
		{"a job that asks for memory", `GlobalMemoryMb > 5000 && GlobalMemoryMb < 15000`, devices["2g.10gb"]},
		{"a job that asks for multiprocessors", `ComputeUnits == 14`, devices["1g.5gb"]},
		{"a second one", `ComputeUnits == 14`, devices["1g.5gb"]},
		{"a job on the shared GPU", fmt.Sprintf("DeviceUuid == %q", shared.Bare()), []api.StatusGPU{{UUID: string(shared)}}},
		{"a second one beside it", fmt.Sprintf("DeviceUuid == %q", shared.Bare()), []api.StatusGPU{{UUID: string(shared)}}},
	} {
		_, u, err := st.runningOn(ctx, onProfile(hold, c.require))
		must(t, err)
		st.Check(slices.ContainsFunc(c.want, func(g api.StatusGPU) bool { return g.UUID == string(u) }), "%s runs on %s", c.what, u)
	}
	_, err = st.waitClients(ctx, 1, 2, 1024)
	must(t, err)
	full, err := st.submit(ctx, onProfile(noHold, `MIGProfile == "3g.20gb"`))
	must(t, err)
	idle, err := st.staysIdle(ctx, full, 5*time.Second)
	must(t, err)
	st.Check(idle, "a second job for the only 3g.20gb waits")
	_, err = st.shows(ctx, "gpuslot", "status")
	must(t, err)
	release()
	must(t, st.waitJobs(ctx, full, completed))
	text, err := st.printed(ctx, user, full, 0)
	must(t, err)
	st.Contains(text, "0 "+strings.TrimPrefix(devices["3g.20gb"][0].Device, "MIG-"), "what CUDA shows the job on the 3g.20gb")

	o, err := st.told(ctx, job{Seconds: 1, Lines: vram(2048, `require_gpus = MIGProfile == "2g.10gb"`, "environment = CUDA_MPS_PIPE_DIRECTORY=/tmp/x")})
	must(t, err)
	want := devices["2g.10gb"][0].Device
	st.Check(o.Env["CUDA_VISIBLE_DEVICES"] == want && o.Env["NVIDIA_VISIBLE_DEVICES"] == want && o.Env["GPUSLOT_ENFORCED_BY"] == "mig", "the environment of a job on a MIG device is its own: %v", o.Env)
	memory := strconv.FormatInt(devices["2g.10gb"][0].PoolMiB, 10)
	st.Check(o.Env["GPUSLOT_VRAM_MIB"] == memory, "GPUSLOT_VRAM_MIB is the device's memory: %s", o.Env["GPUSLOT_VRAM_MIB"])
	_, pipe := o.Env["CUDA_MPS_PIPE_DIRECTORY"]
	st.Check(!pipe, "it has no pipe directory")
	must(t, st.makeNodes(ctx))
	st.opensOwnNodes(ctx, t, devices["2g.10gb"][0], devices["3g.20gb"][0])
	st.bootsAndLeavesMIG(ctx, t)
	done(t, st)
}

// bootsAndLeavesMIG loses instances and mode as a boot does on Hopper: they are there
// again before HTCondor starts. Then gpuslot leaves the node, and MIG mode is off.
func (st *Stage) bootsAndLeavesMIG(ctx context.Context, t *testing.T) {
	t.Helper()
	run := func(args ...string) string {
		out, err := st.Run(ctx, args...)
		must(t, err)
		return strings.TrimSpace(out.Stdout)
	}
	must(t, st.Wait(ctx, "the last job to be gone", func() bool {
		s, err := st.Status(ctx)
		return err == nil && !slices.ContainsFunc(s.GPUs, func(g api.StatusGPU) bool { return len(g.Jobs) > 0 })
	}))
	run("systemctl", "stop", "condor.service", "gpuslotd.socket", "gpuslotd.service")
	run("simgpu", "mig", "0", "destroy")
	run("simgpu", "mig", "0", "off")
	run("systemctl", "start", "gpuslotd.socket", "gpuslotd.service", "condor.service")
	run("gpuslot", "mig", "assert", "--gpu", "0", "--layout", "3g.20gb, 2g.10gb, 1g.5gb*2")
	log, err := st.Journal(ctx, "")
	must(t, err)
	made, started := strings.LastIndex(log, "MIG layout changed"), strings.LastIndex(log, "Started condor.service")
	st.Check(0 < made && made < started, "the layout is made before HTCondor starts: at %d and %d of the journal", made, started)
	must(t, st.WaitAccept(ctx, 5))

	run("systemctl", "stop", "condor.service", "gpuslotd.socket", "gpuslotd.service")
	run("gpuslotd", "--release")
	run("gpuslot", "mig", "assert", "--gpu", "0", "--layout", "off")
	st.Check(true, "gpuslotd --release has taken the MIG devices back, and MIG mode is off as it was")
}

// A GPU goes from seven devices to four while jobs run on two of them and on the
// other GPU, and the startd is not restarted, since it knows the places of both
// layouts. The jobs run on; devices that go take no new ones; when the job in the
// way has ended, the layout is made around the other one, and the job that waited
// for the fused device runs.
func TestMIGRepartition(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const small, large = "1g.5gb*7", "3g.20gb, 2g.10gb, 1g.5gb*2"
	st := startMIG(t, divided(small, large))
	must(t, st.WaitAccept(ctx, 8))
	before := st.startds(ctx)
	hold, release := holdFor(t, st, "stays")
	way, clear := holdFor(t, st, "in-the-way")
	stays, _, err := st.runningOn(ctx, onProfile(hold, `MIGPlace == "1g.5gb@2"`))
	must(t, err)
	beside, _, err := st.runningOn(ctx, onProfile(hold, "MIGProfile is undefined"))
	must(t, err)
	blocks, _, err := st.runningOn(ctx, onProfile(way, `MIGPlace == "1g.5gb@6"`))
	must(t, err)
	fused, err := st.submit(ctx, onProfile(noHold, `MIGProfile == "3g.20gb"`))
	must(t, err)

	must(t, st.reload(ctx, divided(large, small)))
	must(t, st.waitStatus(ctx, "five devices that go to be closed", func(s api.Status) bool {
		closed := 0
		for _, g := range s.GPUs {
			if strings.Contains(g.Reason, "another MIG layout") {
				closed++
			}
		}
		return closed >= 5
	}))
	out, err := st.Run(ctx, "gpuslot", "status")
	must(t, err)
	st.Contains(out.Stdout, "1g.5gb@6 is used by", "what gpuslot status says of the wait")
	must(t, st.waitJobs(ctx, blocks, running))
	idle, err := st.staysIdle(ctx, fused, 3*time.Second)
	must(t, err)
	st.Check(idle, "the job for the fused device waits")

	clear()
	must(t, st.checkEnd(ctx, user, blocks, "0", "until eof: ok", "the job in the way"))
	must(t, st.checkEnd(ctx, user, fused, "0", "MIG 3g.20gb", "the job that waited for the fused device"))
	for _, c := range []int{stays, beside} {
		must(t, st.waitJobs(ctx, c, running))
	}
	_, err = st.shows(ctx, "gpuslot", "status")
	must(t, err)
	release()
	must(t, st.checkEnd(ctx, user, stays, "0", "until eof: ok", "a job on a device that stayed"))
	must(t, st.checkEnd(ctx, user, beside, "0", "until eof: ok", "a job on the other GPU"))
	st.checkSameStartd(ctx, before)
	done(t, st)
}

// startds are the processes of the startd.
func (st *Stage) startds(ctx context.Context) string {
	out, err := st.Run(ctx, "pidof", "condor_startd")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out.Stdout)
}

// checkSameStartd: what follows the layouts restarts no startd.
func (st *Stage) checkSameStartd(ctx context.Context, before string) {
	after := st.startds(ctx)
	st.Check(before != "" && after == before, "the startd is the same process: %s, %s", before, after)
}

// waitStatus waits until gpuslot status says something.
func (st *Stage) waitStatus(ctx context.Context, what string, cond func(api.Status) bool) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	return st.Wait(ctx, what, func() bool {
		s, err := st.Status(ctx)
		return err == nil && cond(s)
	})
}

// Each MIG device has a control daemon of its own: two jobs share the 3g.20gb,
// within its pool, and see it.
func TestMPSInMIG(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := startMIG(t, divided("3g.20gb, 2g.10gb")+"mig_mps = true\n")
	must(t, st.WaitAccept(ctx, 3))
	devices, err := st.migDevices(ctx)
	must(t, err)
	hold, release := holdFor(t, st, "mps-in-mig")
	var jobs []int
	for range 2 {
		c, u, err := st.runningOn(ctx, onProfile(hold, `MIGProfile == "3g.20gb"`))
		must(t, err)
		st.Check(string(u) == devices["3g.20gb"][0].UUID, "a job shares the 3g.20gb, %s", u)
		jobs = append(jobs, c)
	}
	_, err = st.waitClients(ctx, 0, 2, 1024)
	must(t, err)
	release()
	for _, c := range jobs {
		must(t, st.checkEnd(ctx, user, c, "0", "MIG 3g.20gb", "a job that shares a MIG device"))
	}
	done(t, st)
}

// Layouts follow the work that waits at the access point: the agent makes room for
// a large job that asks for VRAM alone, by keeping idle devices free and waiting
// for the job in the way, and splits the large device again when small jobs wait.
// Nobody is stopped and the startd is not restarted.
func TestMIGFollowsTheWork(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	inv := twoA100s()
	st := newStage(t, 0, site.Options{Leg: site.Sim, Inventory: inv, Condor: countsOften,
		Config: divided("1g.5gb*7", "3g.20gb@4, 2g.10gb@2, 1g.5gb*2") + "repartition = \"auto\"\n" +
			"[repartition]\ndwell = \"0s\"\nreserve_after = \"0s\"\n"})
	st.Inventory = *inv
	must(t, st.WaitAccept(ctx, 8))
	before := st.startds(ctx)
	hold, release := holdFor(t, st, "stays")
	way, clear := holdFor(t, st, "in-the-way")
	stays, _, err := st.runningOn(ctx, onProfile(hold, `MIGPlace == "1g.5gb@2"`))
	must(t, err)
	beside, _, err := st.runningOn(ctx, onProfile(hold, "MIGProfile is undefined"))
	must(t, err)
	blocks := []int{0, 0}
	for i, place := range []string{"1g.5gb@0", "1g.5gb@5"} {
		blocks[i], _, err = st.runningOn(ctx, onProfile(way, fmt.Sprintf("MIGPlace == %q", place)))
		must(t, err)
	}

	large, err := st.submit(ctx, onProfile(noHold, "GlobalMemoryMb < 30000 && GlobalMemoryMb >= 15000"))
	must(t, err)
	must(t, st.waitStatus(ctx, "idle devices to be kept free", func(s api.Status) bool {
		return slices.ContainsFunc(s.GPUs, func(g api.StatusGPU) bool { return strings.Contains(g.Reason, "kept free for 3g.20gb") })
	}))
	plan, err := st.shows(ctx, "gpuslot", "mig", "plan")
	must(t, err)
	st.Contains(plan, "1g.5gb@5 is used by", "what gpuslot mig plan says of the wait")
	must(t, st.waitJobs(ctx, blocks[1], running))
	clear()
	must(t, st.checkEnd(ctx, user, large, "0", "MIG 3g.20gb", "the large job"))
	for _, b := range blocks {
		must(t, st.checkEnd(ctx, user, b, "0", "until eof: ok", "a job in the way"))
	}

	small, err := st.submit(ctx, job{Program: gpuJob, Arguments: hold + " devices alloc 1024 until eof", Queue: "queue 6",
		Lines: vram(2048, `require_gpus = MIGProfile == "1g.5gb"`)})
	must(t, err)
	must(t, st.waitJobs(ctx, small, running))
	for _, c := range []int{stays, beside} {
		must(t, st.waitJobs(ctx, c, running))
	}
	_, err = st.shows(ctx, "gpuslot", "status")
	must(t, err)
	release()
	for _, c := range []int{stays, beside, small} {
		must(t, st.checkEnd(ctx, user, c, "0", "until eof: ok", "a job on a device that stayed, on the other GPU or on one that was split off"))
	}
	st.checkSameStartd(ctx, before)
	done(t, st)
}
