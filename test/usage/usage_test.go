package usage

import (
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/sim"
)

// slack is what a sample's own milliseconds are of its second.
const slack = 0.02

// seconds of a scenario in the node's time: ten minutes.
func seconds() int {
	if testing.Short() {
		return 60
	}
	return 600
}

// ledger adds up the truth beside what the sampler says of it.
type ledger struct {
	*node
	gpu      gpu.UUID
	device   usage.Device
	truth    map[usage.SlotKey]float64
	samples  int
	worst    float64 // error of the estimate, of the device
	sumWidth float64
	// at is the time of the last sample: the node's seconds take a little longer.
	at time.Time
}

// check compares one sample with the truth: loads of the second before, and
// memory now.
func (l *ledger) check(snap *usage.Snapshot, jobs []*job, load map[int]float64, memory map[int]gpu.Bytes) {
	l.Helper()
	took := snap.At.Sub(l.at).Seconds()
	l.at = snap.At
	for _, j := range jobs {
		u, ok := snap.Slot(j.key, l.device)
		if !ok {
			l.Fatalf("%s is not in the snapshot", j.key.Slot)
		}
		if u.Memory != gpu.Known(memory[j.pid]) {
			l.Fatalf("%s holds %d bytes, the sampler says %+v", j.key.Slot, memory[j.pid], u.Memory)
		}
		if !u.SM.Upper.Known || !u.SM.Lower.Known {
			l.Fatalf("%s: no bounds: %+v", j.key.Slot, u)
		}
		want := load[j.pid]
		if want < u.SM.Lower.Value-slack || want > u.SM.Upper.Value+slack {
			l.Fatalf("%s worked %v, outside %+v", j.key.Slot, want, u.SM)
		}
		l.truth[j.key] += want * took
		l.samples++
		l.worst = max(l.worst, math.Abs(u.SM.Estimate.Value-want))
		l.sumWidth += u.SM.Upper.Value - u.SM.Lower.Value
	}
}

// sums holds the totals of all jobs to the truth and to the GPU's counters.
func (l *ledger) sums(snap *usage.Snapshot, jobs []*job, energy float64) {
	l.Helper()
	whole, _ := snap.Device(usage.Device{GPU: l.gpu})
	joules := whole.Total.UnattributedEnergy.Value
	for _, c := range snap.Counters {
		joules += c.Total.Energy.Estimate.Value
	}
	drawn := whole.Total.Energy.Value - energy
	if drawn <= 0 || math.Abs(joules-drawn) > 1e-3 {
		l.Errorf("slots and rest make %v J, the counter says %v", joules, drawn)
	}
	for _, j := range jobs {
		u, _ := snap.Slot(j.key, l.device)
		off := slack * l.truth[j.key]
		if u.Job.SM.Lower.Value > l.truth[j.key]+off || u.Job.SM.Upper.Value < l.truth[j.key]-off {
			l.Errorf("%s worked %v GPU-seconds, outside %+v", j.key.Slot, l.truth[j.key], u.Job.SM)
		}
		l.Logf("%s: %.1f GPU-seconds in truth, between %.1f and %.1f, estimate %.1f (%+.1f %%); %.0f J",
			j.key.Slot, l.truth[j.key], u.Job.SM.Lower.Value, u.Job.SM.Upper.Value, u.Job.SM.Estimate.Value,
			100*(u.Job.SM.Estimate.Value/l.truth[j.key]-1), u.Job.Energy.Estimate.Value)
	}
	l.Logf("%d samples inside their bounds; the estimate is off by %.3f of the GPU at most; mean width of the bounds %.3f",
		l.samples, l.worst, l.sumWidth/float64(l.samples))
}

func newLedger(n *node, d usage.Device) *ledger {
	return &ledger{node: n, gpu: d.GPU, device: d, truth: map[usage.SlotKey]float64{}}
}

// Four jobs behind MPS, each with a load and memory of its own; one begins to
// work in the middle.
func TestFourJobsBehindMPS(t *testing.T) {
	onNode(t, func(n *node) {
		u := n.gpus[0].UUID
		l := newLedger(n, usage.Device{GPU: u})
		vars := n.daemon(u, 25)
		mib := []int{4096, 8192, 2048, 16384}
		words := []string{"load 24 3600s", "load 20 3600s", "load 22 3600s", "until eof load 24 3600s"}
		loads := []float64{0.24, 0.20, 0.22, 0}
		var jobs []*job
		for i := range mib {
			j := n.job("slot1_"+strconv.Itoa(i+1), u, vars, "alloc "+strconv.Itoa(mib[i])+" "+words[i])
			n.works(j, mib[i], loads[i])
			n.bookings = append(n.bookings, usage.Reservation{Slot: j.key, Device: l.device, Share: 0.25, MPS: true, Cap: 0.25})
			jobs = append(jobs, j)
		}
		s := n.sampler()
		n.truth() // the server
		n.second(s)
		snap := n.second(s)
		d, _ := snap.Device(l.device)
		energy := d.Total.Energy.Value
		for _, j := range jobs {
			got, _ := snap.Slot(j.key, l.device)
			l.truth[j.key] = got.Job.SM.Estimate.Value // the bounds that were added before the ledger began
		}
		begin := snap
		l.at = snap.At
		for k := range seconds() {
			if k == seconds()/2 {
				_ = jobs[3].input.Close()
				n.works(jobs[3], mib[3], 0.24)
			}
			load, memory := n.truth()
			snap = n.second(s)
			if d, _ := snap.Device(l.device); d.ActivitySource != "gpm" || d.Unowned != 0 || d.BoundsExceeded != 0 {
				t.Fatalf("%+v", d)
			}
			l.check(snap, jobs, load, memory)
		}
		energy -= unattributed(begin, l.gpu)
		l.sums(snap, jobs, energy)
	}, "H100-80")
}

// unattributed is everything that was divided before a ledger began.
func unattributed(snap *usage.Snapshot, u gpu.UUID) float64 {
	d, _ := snap.Device(usage.Device{GPU: u})
	sum := d.Total.UnattributedEnergy.Value
	for _, c := range snap.Counters {
		sum += c.Total.Energy.Estimate.Value
	}
	return sum
}

// One job on a GPU of its own: exact, but for the sampling.
func TestOneJobAlone(t *testing.T) {
	onNode(t, func(n *node) {
		exact(t, n, usage.Device{GPU: n.gpus[0].UUID}, n.gpus[0].UUID, usage.MethodExclusive)
	}, "H200")
}

// A job on a MIG device: exact too, and in parts of the whole GPU.
func TestOneJobOnAMIGDevice(t *testing.T) {
	onNode(t, func(n *node) {
		if os.Geteuid() != 0 {
			t.Skip("needs root: MIG is root's")
		}
		n.simgpu("mig", "0", "on")
		n.simgpu("mig", "0", "create", "3g.40gb@4", "1g.10gb")
		s := n.sampler()
		n.second(s)
		var migs []usage.DeviceUsage
		for _, d := range n.second(s).Devices {
			if d.MIG != "" && d.Multiprocessors > 50 {
				migs = append(migs, d)
			}
		}
		if len(migs) != 1 {
			t.Fatalf("%+v", migs)
		}
		exact(t, n, migs[0].Device, migs[0].MIG, usage.MethodMIG)
	}, "H100-80")
}

// exact runs one job and holds the sampler to it.
func exact(t *testing.T, n *node, d usage.Device, visible gpu.UUID, method usage.Method) {
	t.Helper()
	j := n.job("slot1_1", visible, nil, "alloc 4096 load 40 3600s")
	n.works(j, 4096, 0.4)
	n.bookings = []usage.Reservation{{Slot: j.key, Device: d, Share: 1}}
	s := n.sampler()
	n.second(s)
	begin := n.second(s)
	first, _ := begin.Slot(j.key, d)
	_, memory := n.truth()
	var u usage.SlotUsage
	var snap *usage.Snapshot
	for range seconds() / 10 {
		snap = n.second(s)
		u, _ = snap.Slot(j.key, d)
		if u.Method != method || u.Memory != gpu.Known(memory[j.pid]) || u.SM.Lower != u.SM.Estimate || u.SM.Estimate != u.SM.Upper {
			t.Fatalf("%+v", u)
		}
		if math.Abs(u.SM.Estimate.Value-0.4) > slack {
			t.Fatalf("it works 0.4 of the device, not %v", u.SM.Estimate.Value)
		}
	}
	device, _ := snap.Device(d)
	whole, _ := snap.Device(usage.Device{GPU: d.GPU})
	before, _ := begin.Device(usage.Device{GPU: d.GPU})
	drawn, divided := whole.Total.Energy.Value-before.Total.Energy.Value, unattributed(snap, d.GPU)-unattributed(begin, d.GPU)
	if drawn <= 0 || math.Abs(drawn-divided) > 1e-3 {
		t.Errorf("slot and rest got %v J, the counter says %v", divided, drawn)
	}
	part := float64(device.Multiprocessors) / float64(whole.Multiprocessors)
	got, want := u.Job.SM.Estimate.Value-first.Job.SM.Estimate.Value, 0.4*part*snap.At.Sub(begin.At).Seconds()
	if math.Abs(got-want) > slack*want+0.05 {
		t.Errorf("%v GPU-seconds in truth, the sampler says %v", want, got)
	}
	t.Logf("%.2f GPU-seconds in truth, the sampler says %.2f; %d of %d multiprocessors", want, got, device.Multiprocessors, whole.Multiprocessors)
}

// A GPU before Hopper tells kernel time only: an upper bound, nothing below it.
func TestUpperBoundOnlyBeforeHopper(t *testing.T) {
	onNode(t, func(n *node) {
		u := n.gpus[0].UUID
		l := newLedger(n, usage.Device{GPU: u})
		vars := n.daemon(u, 50)
		for i, words := range []string{"alloc 1024 load 5 3600s", "alloc 2048 load 10 3600s"} {
			j := n.job("slot1_"+strconv.Itoa(i+1), u, vars, words)
			n.works(j, 1024, []float64{0.05, 0.1}[i])
			n.bookings = append(n.bookings, usage.Reservation{Slot: j.key, Device: l.device, Share: 0.5, MPS: true, Cap: 0.5})
		}
		s := n.sampler()
		n.truth()
		n.second(s)
		for range 20 {
			snap := n.second(s)
			for i, b := range n.bookings {
				got, _ := snap.Slot(b.Slot, l.device)
				// Kernels of 5 % and 10 % under a cap of 50 % run 30 % of the time.
				if got.SM.Lower.Known || got.SM.Estimate.Known || !got.SM.Upper.Known || got.SM.Upper.Value < []float64{0.05, 0.1}[i] || got.SM.Upper.Value > 0.35 {
					t.Fatalf("%+v", got)
				}
			}
			if d, _ := snap.Device(l.device); d.Activity.Known || !d.KernelTime.Known || d.Method != usage.MethodMPS {
				t.Fatalf("%+v", d)
			}
		}
	}, "V100S")
}

// NVML that does not come back: snapshots go on without the data, health says
// why, and all is well when it answers again.
func TestWedgedNVML(t *testing.T) {
	onNode(t, func(n *node) {
		d := usage.Device{GPU: n.gpus[1].UUID}
		s := n.sampler()
		n.second(s)
		if snap := n.second(s); len(snap.Devices) != 2 {
			t.Fatalf("%+v", snap.Devices)
		}
		n.simgpu("hang", "1")
		var snap *usage.Snapshot
		for range 4 {
			snap = n.second(s)
		}
		h := snap.Sources[0]
		if h.Err == nil || !strings.Contains(h.Err.Error(), "has not returned") || h.Failures != 4 || time.Since(snap.At.Add(-n.jumped)) > patience {
			t.Errorf("health: %+v", h)
		}
		if _, ok := snap.Device(d); ok {
			t.Error("the data of the GPU that hangs lives on")
		}
		n.simgpu("release", "any")
		n.until("the reading that hung has ended", func() bool { return n.second(s).Sources[0].Err == nil })
		if snap := s.Snapshot(); len(snap.Devices) != 2 || snap.Sources[0].Failures < 4 {
			t.Errorf("%+v", snap)
		}
	}, "H100-80", "H100-80")
}

// A GPU that is lost does not spoil the other one.
func TestALostGPUIsAlone(t *testing.T) {
	onNode(t, func(n *node) {
		s := n.sampler()
		n.second(s)
		n.simgpu("lose", "0")
		var snap *usage.Snapshot
		for range 5 {
			snap = n.second(s)
		}
		if len(snap.Devices) != 1 || snap.Devices[0].GPU != n.gpus[1].UUID {
			t.Errorf("%+v", snap.Devices)
		}
		if err := snap.Sources[0].Err; err == nil || !strings.Contains(err.Error(), "fallen off the bus") || !strings.Contains(err.Error(), string(n.gpus[0].UUID)) || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v", err)
		}
		n.simgpu("restore", "0")
		if snap := n.second(s); len(snap.Devices) != 2 || snap.Sources[0].Err != nil {
			t.Errorf("%+v", snap)
		}
	}, "H100-80", "V100S")
}

// A library that lacks a function ends the process that calls it: every driver
// is read with what it has.
func TestEveryDriver(t *testing.T) {
	for _, branch := range sim.Branches() {
		t.Run(branch, func(t *testing.T) {
			if dir := os.Getenv(simDir); dir == "" {
				runOn(t, sim.NewVariant(t, branch, "V100S", "A100-40"))
				return
			}
			n := open(t, os.Getenv(simDir))
			n.simgpu("process", "add", strconv.Itoa(os.Getpid()), "0", "100", "30")
			s := n.sampler()
			n.second(s)
			n.second(s)
			snap := n.second(s)
			d, ok := snap.Device(usage.Device{GPU: n.gpus[0].UUID})
			if !ok || len(snap.Devices) != 2 || snap.Sources[0].Err != nil || d.Unowned != 1 || d.UnownedMemory != gpu.Known[gpu.Bytes](100<<20) || !d.KernelTime.Known || !d.Total.Energy.Known {
				t.Errorf("%+v", snap)
			}
			if d.Memory.Value.Used > 200<<20 && d.Memory.Value.Reserved.Known {
				t.Errorf("the reserve counts as used: %+v", d.Memory)
			}
		})
	}
}

// What slowly changes of a board is told as it is, and a GPU that does not tell
// it is read all the same.
func TestBoard(t *testing.T) {
	onNode(t, func(n *node) {
		n.simgpu("set", "0", "temperature", "71")
		n.simgpu("set", "0", "sm-clock", "1200")
		n.simgpu("ecc", "0", "corrected", "3")
		n.simgpu("fail", "1", "nvmlDeviceGetTemperature", "999")
		snap := n.second(n.sampler())
		board := func(i int) gpu.Board {
			d, ok := snap.Device(usage.Device{GPU: n.gpus[i].UUID})
			if !ok || !d.Memory.Known {
				t.Fatalf("GPU %d is not read: %+v", i, snap.Sources)
			}
			return d.Board
		}
		b := board(0)
		if b.Temperature != gpu.Known(uint32(71)) || b.SMClock != gpu.Known(uint32(1200)) || !b.MemoryClock.Known ||
			b.Corrected != gpu.Known(uint64(3)) || b.Uncorrected != gpu.Known(uint64(0)) || !b.Limits.Known || b.PowerLimit != gpu.Known(uint32(700000)) {
			t.Errorf("%+v", b)
		}
		if b := board(1); b.Temperature.Known || !b.PowerLimit.Known {
			t.Errorf("a temperature that cannot be read: %+v", b)
		}
	}, "H100-80", "H100-80")
}
