package capability

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// trials is a prober of one program of the test, and the number of its trials.
type trials struct {
	Prober
	program string
	n       int
	device  gpu.UUID // of the last trial
	inv     gpu.Inventory
	err     error
	last    Set
	round   uint64
}

func newTrials(t *testing.T) *trials {
	t.Helper()
	p := &trials{program: filepath.Join(t.TempDir(), "control")}
	p.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	p.Probe = func(_ context.Context, _ string, device gpu.UUID) (mps.Capabilities, error) {
		p.n++
		p.device = device
		return mps.Capabilities{}, p.err
	}
	p.write(t, "1")
	return p
}

func (p *trials) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(p.program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (p *trials) rounds(t *testing.T, n int) {
	for range n {
		p.round++
		p.last = p.Next(t.Context(), p.last, p.program, p.inv, p.round)
	}
}

// TestDeviceOfATrial: it is one that a control daemon sees.
func TestDeviceOfATrial(t *testing.T) {
	mig := gpu.GPU{UUID: "GPU-1", MIGEnabled: true}
	divided := gpu.GPU{UUID: "GPU-2", MIGEnabled: true, MIGDevices: []gpu.MIGDevice{{UUID: "MIG-1"}}}
	for _, tt := range []struct {
		gpus []gpu.GPU
		want gpu.UUID
	}{
		{nil, ""},
		{[]gpu.GPU{mig}, ""},
		{[]gpu.GPU{mig, divided, {UUID: "GPU-3"}}, "MIG-1"},
		{[]gpu.GPU{mig, {UUID: "GPU-3"}, divided}, "GPU-3"},
	} {
		p := newTrials(t)
		p.inv.GPUs = tt.gpus
		p.rounds(t, 1)
		if p.device != tt.want {
			t.Errorf("%v: tried with %q, want %q", tt.gpus, p.device, tt.want)
		}
	}
}

// A trial is kept until another file is in the program's place.
func TestOneTrialOfEachProgram(t *testing.T) {
	p := newTrials(t)
	p.rounds(t, 2*probeAgain)
	if p.n != 1 || !p.last.Tried {
		t.Errorf("%d trials of one program: %+v", p.n, p.last)
	}
	p.write(t, "22") // an update of the driver, in place
	p.rounds(t, 2)
	if p.n != 2 {
		t.Errorf("%d trials of two programs", p.n)
	}
	if err := os.Rename(p.program, p.program+".old"); err != nil {
		t.Fatal(err)
	}
	p.write(t, "33") // as package managers do it
	p.rounds(t, 1)
	if p.n != 3 {
		t.Errorf("%d trials of three programs", p.n)
	}
}

// A trial that failed is repeated, but not in every round; then nothing is claimed.
func TestFailedTrial(t *testing.T) {
	p := newTrials(t)
	p.err = errors.New("it is not there")
	p.rounds(t, 1+probeAgain)
	if p.n != 2 || p.last.Tried || p.last.Err == nil {
		t.Errorf("%d trials, %+v", p.n, p.last)
	}
	if names, known := p.last.Names(); known || len(names) > 0 || len(p.last.Known()) > 0 {
		t.Errorf("a failed trial claims %q, %v", names, p.last.Known())
	}
	p.err = nil
	p.rounds(t, probeAgain)
	if !p.last.Tried || p.last.Err != nil {
		t.Errorf("it is there: %+v", p.last)
	}
}

func TestMissing(t *testing.T) {
	no, yes := mps.Answer{Known: true}, mps.Answer{Known: true, Has: true}
	can := mps.Capabilities{
		ServerStatus: no, PrivilegeChecks: no, PIDFile: no, MultiUser: no, StaticPartitions: no, ProtocolV3: no,
	}
	if got := (Set{MPS: can, Tried: true, CgroupLimits: no}).Missing(plan.Plan{}); len(got) != 5 {
		t.Errorf("driver 535 lacks %q", got)
	}
	can.PrivilegeChecks = mps.Answer{How: "no other account could be tried"}
	got := (Set{MPS: can, Tried: true}).Missing(plan.Plan{})
	if last := got[len(got)-1]; !strings.Contains(last, "not known (no other account could be tried)") {
		t.Errorf("unknown privilege checks: %q", last)
	}
	newest := mps.Capabilities{
		ServerStatus: yes, PrivilegeChecks: yes, PIDFile: yes, MultiUser: yes, StaticPartitions: yes, ProtocolV3: yes,
	}
	got = (Set{MPS: newest, Tried: true, CgroupLimits: yes}).Missing(plan.Plan{})
	if len(got) != 1 || !strings.Contains(got[0], `threads = "partitioned"`) {
		t.Errorf("what is there and not used: %q", got)
	}
	for name, text := range missingText {
		if !strings.HasSuffix(text, ".") || !strings.Contains(strings.ToLower(text), "driver ") {
			t.Errorf("%s: %q does not say what would bring it", name, text)
		}
	}
}

// TestMissingWithoutMPS: what a control daemon lacks, or that there is none, concerns no GPU in time slices.
func TestMissingWithoutMPS(t *testing.T) {
	sliced := plan.Plan{GPUs: []plan.GPU{{Mode: config.ModeTimeSlice}, {Mode: config.ModeWhole}}}
	for _, s := range []Set{{Err: errors.New("not installed")}, {Tried: true}} {
		if got := s.Missing(sliced); len(got) > 0 {
			t.Errorf("%q", got)
		}
		if got := s.Missing(plan.Plan{GPUs: append(sliced.GPUs, plan.GPU{Mode: config.ModeMPS})}); len(got) == 0 {
			t.Error("nothing is said beside a GPU with MPS")
		}
	}
}

func TestCgroupLimits(t *testing.T) {
	controllers := func(text string) fstest.MapFS {
		return fstest.MapFS{"fs/cgroup/cgroup.controllers": {Data: []byte(text)}}
	}
	for name, c := range map[string]struct {
		sys  fstest.MapFS
		want bool
		how  string
	}{
		"Linux 6.14": {controllers("cpuset cpu io memory hugetlb pids rdma misc dmem\n"), true, "controller dmem"},
		"EL9":        {controllers("cpuset cpu io memory hugetlb pids rdma misc\n"), true, "controller misc"},
		"neither":    {controllers("cpu memory\n"), false, "neither"},
		"v1":         {fstest.MapFS{}, false, "cgroup v2 alone"},
	} {
		if got := Controllers(c.sys); !got.Known || got.Has != c.want || !strings.Contains(got.How, c.how) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, c := range map[string]struct {
		ask  func() (bool, bool)
		want mps.Answer
	}{
		"no NVML":     {nil, mps.Answer{How: "NVML is not in use"}},
		"silent NVML": {func() (bool, bool) { return false, false }, mps.Answer{How: "NVML does not answer"}},
		"older NVML": {func() (bool, bool) { return false, true },
			mps.Answer{Known: true, How: "this driver's NVML has no nvmlDeviceSetMemoryLimits_v1"}},
	} {
		if got := (&Prober{MemoryLimits: c.ask}).cgroupLimits(); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestLimitsThatAreNotKnownNow: the driver's limits were there, and cannot be asked for. They are promised still.
func TestLimitsThatAreNotKnownNow(t *testing.T) {
	p := newTrials(t)
	has, known := true, true
	p.MemoryLimits = func() (bool, bool) { return has, known }
	p.Sys = t.TempDir()
	file := filepath.Join(p.Sys, "fs/cgroup/cgroup.controllers")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("memory dmem\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	p.rounds(t, 1)
	proctree.WithoutDescriptors(t, func() { p.rounds(t, 1) })
	if !p.last.CgroupLimits.Has {
		t.Errorf("without a descriptor: %+v", p.last.CgroupLimits)
	}
	known = false
	if p.rounds(t, 1); !p.last.CgroupLimits.Has {
		t.Errorf("NVML does not answer: %+v", p.last.CgroupLimits)
	}
	has, known = false, true
	if p.rounds(t, 1); p.last.CgroupLimits.Has || !p.last.CgroupLimits.Known {
		t.Errorf("the driver has them no more: %+v", p.last.CgroupLimits)
	}
}
