//go:build cgo

package nvml

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

// TestEachCallIsNamed: a call that never returns is named in the error, so each is a step.
func TestEachCallIsNamed(t *testing.T) {
	var steps []string
	g, _, err := readGPU(oneDevice{device: v100s(uuidA, 0x1a)}, 3, all, func(s string) { steps = append(steps, s) })
	if err != nil || g.Index != 3 {
		t.Fatalf("%+v, %v", g, err)
	}
	var want []string
	for _, call := range []string{"HandleByIndex", "UUID", "Name", "PciInfo", "MemoryInfo", "MemoryInfo_v2", "CudaComputeCapability",
		"ComputeMode", "MigMode", "NumGpuCores"} {
		want = append(want, "nvmlDeviceGet"+call+" of the GPU with NVML index 3")
	}
	if d := cmp.Diff(want, steps); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestReserved: the reserve is unknown where the driver does not say it, or says that it is everything.
func TestReserved(t *testing.T) {
	for name, c := range map[string]struct {
		has      bool
		ret      nvml.Return
		reserved uint64
		want     int64 // -1: not known
	}{
		"some":            {true, nvml.SUCCESS, 512 << 20, 512},
		"a part of a MiB": {true, nvml.SUCCESS, 1, 1},
		"none":            {true, nvml.SUCCESS, 0, 0},
		"everything":      {true, nvml.SUCCESS, 34089730048, -1},
		"an error":        {true, nvml.ERROR_NOT_SUPPORTED, 512 << 20, -1},
		"no such call":    {false, nvml.SUCCESS, 512 << 20, -1},
	} {
		d := v100s(uuidA, 0x1a)
		d.reserved, d.v2 = c.reserved, c.ret
		got := (&deviceReader{device: d, step: func(string) {}}).reserved(c.has)
		if (got != nil) != (c.want >= 0) || got != nil && int64(*got) != c.want {
			t.Errorf("%s: %v, want %d", name, got, c.want)
		}
	}
	broken := deviceReader{device: v100s(uuidA, 0x1a), step: func(string) {}, err: ErrNoPermission}
	if got := broken.reserved(true); got != nil {
		t.Errorf("after an error: %d", *got)
	}
}

// symbolLibrary exports what its map says, for driver 550.
type symbolLibrary struct {
	fakeLibrary
	nvml.ExtendedInterface
	missing map[string]bool
}

func (l symbolLibrary) Extensions() nvml.ExtendedInterface { return l }
func (l symbolLibrary) LookupSymbol(name string) error {
	return exports{name: !l.missing[name]}.LookupSymbol(name)
}

// TestLookUpUsage: what needs a missing call is not asked, and all else is. A list is there in
// any of its three versions.
func TestLookUpUsage(t *testing.T) {
	everything := usageSymbols{memoryV2: true, mps: true, mig: true, cores: true, samples: true, processSamples: true, energy: true,
		gpm: true, gpmMIG: true, board: true, processes: true, graphics: true}
	for name, without := range map[string]func(s *usageSymbols){
		"":                                           func(*usageSymbols) {},
		"nvmlDeviceGetMemoryInfo_v2":                 func(s *usageSymbols) { s.memoryV2 = false },
		"nvmlDeviceGetMigMode":                       func(s *usageSymbols) { s.mig = false },
		"nvmlDeviceGetMigDeviceHandleByIndex":        func(s *usageSymbols) { s.mig = false },
		"nvmlDeviceGetNumGpuCores":                   func(s *usageSymbols) { s.cores = false },
		"nvmlDeviceGetSamples":                       func(s *usageSymbols) { s.samples = false },
		"nvmlDeviceGetProcessUtilization":            func(s *usageSymbols) { s.processSamples = false },
		"nvmlDeviceGetTotalEnergyConsumption":        func(s *usageSymbols) { s.energy = false },
		"nvmlGpmQueryDeviceSupport":                  func(s *usageSymbols) { s.gpm = false },
		"nvmlGpmSampleGet":                           func(s *usageSymbols) { s.gpm = false },
		"nvmlGpmMetricsGet":                          func(s *usageSymbols) { s.gpm = false },
		"nvmlGpmMigSampleGet":                        func(s *usageSymbols) { s.gpmMIG = false },
		"nvmlDeviceGetTemperature":                   func(s *usageSymbols) { s.board = false },
		"nvmlDeviceGetEnforcedPowerLimit":            func(s *usageSymbols) { s.board = false },
		"nvmlDeviceGetClockInfo":                     func(s *usageSymbols) { s.board = false },
		"nvmlDeviceGetCurrentClocksThrottleReasons":  func(s *usageSymbols) { s.board = false },
		"nvmlDeviceGetTotalEccErrors":                func(s *usageSymbols) { s.board = false },
		"nvmlDeviceGetMPSComputeRunningProcesses*":   func(s *usageSymbols) { s.mps = false },
		"nvmlDeviceGetComputeRunningProcesses*":      func(s *usageSymbols) { s.processes = false },
		"nvmlDeviceGetGraphicsRunningProcesses*":     func(s *usageSymbols) { s.graphics = false },
		"nvmlDeviceGetMPSComputeRunningProcesses":    func(*usageSymbols) {},
		"nvmlDeviceGetComputeRunningProcesses_v2":    func(*usageSymbols) {},
		"nvmlDeviceGetGraphicsRunningProcesses_v3":   func(*usageSymbols) {},
		"nvmlDeviceGetMPSComputeRunningProcesses_v2": func(*usageSymbols) {},
	} {
		missing := map[string]bool{name: true}
		if base := name[:max(len(name)-1, 0)]; base+"*" == name {
			missing = map[string]bool{base: true, base + "_v2": true, base + "_v3": true}
		}
		want := everything
		without(&want)
		if got := lookUpUsage(symbolLibrary{missing: missing}); *got != want {
			t.Errorf("without %s: %+v, want %+v", name, *got, want)
		}
	}
	versions := []string{"", "_v2", "_v3"}
	for _, only := range versions {
		missing := map[string]bool{}
		for _, list := range []string{"MPSCompute", "Compute", "Graphics"} {
			for _, v := range versions {
				missing["nvmlDeviceGet"+list+"RunningProcesses"+v] = v != only
			}
		}
		if got := lookUpUsage(symbolLibrary{missing: missing}); *got != everything {
			t.Errorf("with lists of version %q alone: %+v", only, *got)
		}
	}
}

// utilization counts how often the driver's samples of processes are asked for.
type utilization struct {
	busyDevice
	asked *int
}

func (d utilization) GetProcessUtilization(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
	*d.asked++
	return []nvml.ProcessUtilizationSample{{Pid: 7, TimeStamp: 1, SmUtil: 40}}, nvml.SUCCESS
}

func TestWhoseProcessesAreSampled(t *testing.T) {
	for name, c := range map[string]struct {
		has     bool
		clients []nvml.ProcessInfo
		asked   int
	}{
		"no clients":     {true, nil, 1},
		"clients of MPS": {true, []nvml.ProcessInfo{process(8, 1)}, 0},
		"no such call":   {false, nil, 0},
	} {
		d := utilization{busyDevice{fakeDevice: v100s(uuidA, 0x1a), compute: []nvml.ProcessInfo{process(7, 1)}, clients: c.clients}, new(int)}
		m := meter{lib: oneDevice{device: d}, step: func(string) {}, has: &usageSymbols{processes: true, mps: true, processSamples: c.has}}
		if r := m.read(0); r.Err != nil || r.Samples.Known != (c.asked > 0) || *d.asked != c.asked {
			t.Errorf("%s: %v, asked %d times, %+v", name, r.Err, *d.asked, r.Samples)
		}
	}
}
