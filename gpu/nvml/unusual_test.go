//go:build cgo

package nvml

import (
	"errors"
	"slices"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/gpus"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/gpuslot/gpuslot/gpu"
)

// mockConfigs are all configurations of NVIDIA's mock.
var mockConfigs = []gpus.Config{gpus.A100_PCIE_40GB, gpus.A100_PCIE_80GB, gpus.A100_SXM4_40GB, gpus.A100_SXM4_80GB,
	gpus.A30_PCIE_24GB, gpus.B200_SXM5_180GB, gpus.H100_SXM5_80GB, gpus.H200_SXM5_141GB}

// mocked is a server of NVIDIA's mock (go-nvml). It answers neither for PCI addresses
// nor for compute modes.
func mocked(t *testing.T, gpus ...gpus.Config) *server.Server {
	t.Helper()
	s, err := server.New(server.WithGPUs(gpus...), server.WithDriverVersion("580.95.05"), server.WithCUDADriverVersion(13000))
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range s.Devices {
		d := of.(*server.Device)
		d.GetComputeModeFunc = func() (nvml.ComputeMode, nvml.Return) { return nvml.COMPUTEMODE_DEFAULT, nvml.SUCCESS }
		d.GetPciInfoFunc = func() (p nvml.PciInfo, ret nvml.Return) {
			for i := range d.PciBusID {
				p.BusId[i] = int8(d.PciBusID[i]) // ASCII
			}
			return p, nvml.SUCCESS
		}
	}
	return s
}

// TestNVIDIAsMock: a node with eight GPUs of each of the eight configurations of NVIDIA's mock is
// read as the configuration states it.
func TestNVIDIAsMock(t *testing.T) {
	for _, c := range mockConfigs {
		s := mocked(t, gpus.Multiple(8, c)...)
		inv, unreadable, err := readNode(s, symbols{migMode: true, cudaVersion: true}, func(string) {})
		if err != nil || len(unreadable) > 0 || len(inv.GPUs) != 8 || inv.Driver != "580.95.05" || inv.CUDA != "13.0" {
			t.Errorf("%s: %d GPUs, %v, %v", c.Name, len(inv.GPUs), unreadable, err)
			continue
		}
		for _, g := range inv.GPUs {
			d := s.Devices[g.Index].(*server.Device)
			capability := gpu.ComputeCapability{Major: c.CudaMajor, Minor: c.CudaMinor}
			if string(g.UUID) != d.UUID || g.Name != c.Name || g.Memory != gpu.MiB(c.MemoryMB) || g.Capability != capability ||
				!g.MIGCapable || g.MIGEnabled || len(g.Unusual) > 0 {
				t.Errorf("%+v of %+v", g, c)
			}
		}
	}
}

// TestUnusualGPUs: what NVML answers about each trait.
func TestUnusualGPUs(t *testing.T) {
	all := symbols{unusual: unusualSymbols{virtualization: true, display: true, confidential: true, numa: true}}
	type answers struct {
		mode    nvml.GpuVirtualizationMode
		display nvml.EnableState
		cc      uint32
		numa    int
		c2c     func(nvml.Device) (nvml.C2cModeInfo_v1, nvml.Return)
		ret     nvml.Return
	}
	link := func(on uint32, ret nvml.Return) func(*answers) {
		return func(a *answers) {
			a.numa = 0
			a.c2c = func(nvml.Device) (nvml.C2cModeInfo_v1, nvml.Return) {
				return nvml.C2cModeInfo_v1{IsC2cEnabled: on}, ret
			}
		}
	}
	none := answers{numa: -1}
	with := func(change func(*answers)) answers {
		a := none
		change(&a)
		return a
	}
	for name, c := range map[string]struct {
		answers
		want []gpu.Trait
	}{
		"usual":                    {none, nil},
		"pass-through":             {with(func(a *answers) { a.mode = nvml.GPU_VIRTUALIZATION_MODE_PASSTHROUGH }), nil},
		"vGPU":                     {with(func(a *answers) { a.mode = nvml.GPU_VIRTUALIZATION_MODE_VGPU }), []gpu.Trait{gpu.VGPU}},
		"host of vGPUs":            {with(func(a *answers) { a.mode = nvml.GPU_VIRTUALIZATION_MODE_HOST_VGPU }), []gpu.Trait{gpu.HostVGPU}},
		"display":                  {with(func(a *answers) { a.display = nvml.FEATURE_ENABLED }), []gpu.Trait{gpu.Display}},
		"confidential":             {with(func(a *answers) { a.cc = nvml.CC_SYSTEM_FEATURE_ENABLED }), []gpu.Trait{gpu.Confidential}},
		"GH200":                    {with(func(a *answers) { a.numa = 1 }), []gpu.Trait{gpu.NUMAMemory}},
		"GB200, its link":          {with(link(1, nvml.SUCCESS)), []gpu.Trait{gpu.NUMAMemory}},
		"a link that is not known": {with(link(0, nvml.ERROR_UNKNOWN)), []gpu.Trait{gpu.NUMAMemory}},
		"NVIDIA's mock of an H100": {with(link(0, nvml.ERROR_NOT_SUPPORTED)), nil},
		"a link that is off":       {with(link(0, nvml.SUCCESS)), nil},
		"nothing is supported": {with(func(a *answers) {
			a.mode, a.display, a.cc, a.numa, a.ret = nvml.GPU_VIRTUALIZATION_MODE_VGPU, nvml.FEATURE_ENABLED, 1, 1, nvml.ERROR_NOT_SUPPORTED
		}), nil},
	} {
		s := mocked(t, gpus.H100_SXM5_80GB)
		lib := &mock.Interface{
			DeviceGetCountFunc: s.DeviceGetCount, SystemGetDriverVersionFunc: s.SystemGetDriverVersion,
			DeviceGetHandleByIndexFunc: s.DeviceGetHandleByIndex,
			SystemGetConfComputeStateFunc: func() (nvml.ConfComputeSystemState, nvml.Return) {
				return nvml.ConfComputeSystemState{CcFeature: c.cc}, c.ret
			},
		}
		d := s.Devices[0].(*server.Device)
		d.GetVirtualizationModeFunc = func() (nvml.GpuVirtualizationMode, nvml.Return) { return c.mode, c.ret }
		d.GetDisplayActiveFunc = func() (nvml.EnableState, nvml.Return) { return c.display, c.ret }
		d.GetNumaNodeIdFunc = func() (int, nvml.Return) { return c.numa, c.ret }
		has := all
		has.unusual.c2c = c.c2c
		inv, unreadable, err := readNode(lib, has, func(string) {})
		if err != nil || len(unreadable) > 0 || !slices.Equal(inv.GPUs[0].Unusual, c.want) {
			t.Errorf("%s: %+v, %v, %v", name, inv.GPUs, unreadable, err)
		}
	}
}

// TestWithoutMemoryOfItsOwn: a GB10 with driver 580 answers "not supported" (XuehaiPan/nvitop PR 208).
func TestWithoutMemoryOfItsOwn(t *testing.T) {
	s := mocked(t, gpus.H100_SXM5_80GB, gpus.H100_SXM5_80GB)
	s.Devices[0].(*server.Device).GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_NOT_SUPPORTED }
	inv, unreadable, err := readNode(s, symbols{}, func(string) {})
	if err != nil || len(inv.GPUs) != 1 || len(unreadable) != 1 || !errors.Is(unreadable[0], errIntegrated) {
		t.Errorf("%+v, %v, %v", inv.GPUs, unreadable, err)
	}
}
