//go:build cgo

package nvml

import (
	"context"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/gpus"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/gpuslot/gpuslot/gpu"
)

const mockMiB = 1 << 20

// holds gives a GPU or MIG device of NVIDIA's mock, which has neither, memory and two processes:
// an MPS server, and an MPS client that is in both lists.
func holds(d *mock.Device, total, reserved, used uint64) {
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: total, Reserved: reserved, Used: used, Free: total - reserved - used}, nvml.SUCCESS
	}
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) {
		return nvml.Memory{Total: total, Used: reserved + used, Free: total - reserved - used}, nvml.SUCCESS
	}
	client := nvml.ProcessInfo{Pid: 4242, UsedGpuMemory: used - 27*mockMiB}
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{{Pid: 4200, UsedGpuMemory: 27 * mockMiB}, client}, nvml.SUCCESS
	}
	d.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{client}, nvml.SUCCESS
	}
}

// divide makes one GPU instance with one compute instance by the mock's own calls, and what the
// mock lacks: the MIG device's handle.
func divide(t *testing.T, d *server.Device) (profile nvml.GpuInstanceProfileInfo) {
	t.Helper()
	d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	profile, ret := d.GetGpuInstanceProfileInfo(nvml.GPU_INSTANCE_PROFILE_2_SLICE)
	if ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	gi, ret := d.CreateGpuInstance(&profile)
	if ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	info, _ := gi.GetInfo()
	handle := &mock.Device{
		GetUUIDFunc: func() (string, nvml.Return) {
			return "MIG-00000002-0000-5000-8000-000000000000", nvml.SUCCESS
		},
		GetNameFunc:              func() (string, nvml.Return) { return d.Config.Name + " MIG 2g.10gb", nvml.SUCCESS },
		GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return int(info.Id), nvml.SUCCESS },
		GetComputeInstanceIdFunc: func() (int, nvml.Return) { return 0, nvml.SUCCESS },
		GetAttributesFunc: func() (nvml.DeviceAttributes, nvml.Return) {
			return nvml.DeviceAttributes{MultiprocessorCount: profile.MultiprocessorCount}, nvml.SUCCESS
		},
	}
	holds(handle, profile.MemorySizeMB*mockMiB, 0, 516*mockMiB)
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetGpuInstanceByIdFunc = func(int) (nvml.GpuInstance, nvml.Return) { return gi, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i != 3 { // holes are usual
			return nil, nvml.ERROR_NOT_FOUND
		}
		return handle, nvml.SUCCESS
	}
	return profile
}

// TestNVIDIAsMockAtWork: on each configuration of NVIDIA's mock, memory, processes, a MIG device
// and an Xid are of the GPU that has them.
func TestNVIDIAsMockAtWork(t *testing.T) {
	for _, c := range mockConfigs {
		s := mocked(t, gpus.Multiple(4, c)...)
		for _, of := range s.Devices {
			d := of.(*server.Device)
			d.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 70000, nvml.SUCCESS }
			holds(&d.Device, c.MemoryMB*mockMiB, 600*mockMiB, uint64(1000+d.Index)*mockMiB)
		}
		profile := divide(t, s.Devices[3].(*server.Device))

		inv, unreadable, err := readNode(s, symbols{migMode: true, migDevices: true, memoryV2: true}, func(string) {})
		if err != nil || len(unreadable) > 0 || len(inv.GPUs) != 4 || *inv.GPUs[1].Reserved != 600 {
			t.Fatalf("%s: %+v, %v, %v", c.Name, inv, unreadable, err)
		}
		if m := inv.GPUs[3].MIGDevices; len(m) != 1 || m[0].Memory != gpu.MiB(profile.MemorySizeMB) || *m[0].Reserved != 0 ||
			m[0].Multiprocessors != int(profile.MultiprocessorCount) {
			t.Errorf("%s: MIG devices %+v, want %+v", c.Name, m, profile)
		}

		usage := &Usage{lib: s, count: newWorker(), has: &usageSymbols{memoryV2: true, mps: true, mig: true, processes: true}}
		readings, err := usage.Read(t.Context())
		if err != nil || len(readings) != 4 {
			t.Fatal(readings, err)
		}
		for i, r := range readings {
			use := r.Use
			used := gpu.Bytes(1000+i) * mockMiB
			if use.Memory.Value.Used != used || string(r.GPU) != s.Devices[i].(*server.Device).UUID || r.Power != gpu.Known[uint64](70000) {
				t.Errorf("%s: %+v", c.Name, r)
			}
			if i == 3 {
				if len(r.Instances) != 1 || use.Processes.Known {
					t.Fatalf("%s: %+v", c.Name, r)
				}
				use, used = r.Instances[0].Use, 516*mockMiB
			}
			p := use.Processes.Value
			if len(p) != 2 || p[0].MPSClient || p[0].Memory != gpu.Known[gpu.Bytes](27*mockMiB) ||
				!p[1].MPSClient || p[1].Memory != gpu.Known(used-27*mockMiB) || use.Memory.Value.Used != used {
				t.Errorf("%s: GPU %d: %+v", c.Name, i, use)
			}
		}
		if err := usage.Close(t.Context()); err != nil {
			t.Error(err)
		}
		hearXid(t, s)
	}
}

// hearXid: the mock library gives the events of all GPUs to whoever waits first. An Xid 48 of
// GPU 2 is one of GPU 2, and of no instance.
func hearXid(t *testing.T, s *server.Server) {
	t.Helper()
	const events = 8
	queue := make(chan nvml.EventData, events)
	for range events {
		queue <- nvml.EventData{Device: s.Devices[2], EventType: nvml.EventTypeXidCriticalError, EventData: 48}
	}
	s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{
			FreeFunc: func() nvml.Return { return nvml.SUCCESS },
			WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
				select {
				case e := <-queue:
					return e, nvml.SUCCESS
				case <-time.After(time.Millisecond):
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
			},
		}, nvml.SUCCESS
	}
	for _, of := range s.Devices {
		d := of.(*server.Device)
		d.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return nvml.EventTypeXidCriticalError, nvml.SUCCESS }
		d.RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.SUCCESS }
	}
	e := &ears{lib: s, instances: true, calls: map[string]int{},
		events: make(chan gpu.Event, 64), states: make(chan Listening, 16), ended: make(chan gpu.UUID)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	heard := 0
	err := e.listen(ctx, func(got gpu.Event) {
		if string(got.GPU) != s.Devices[2].(*server.Device).UUID || got.XID != 48 || got.GPUInstance != gpu.NoInstance {
			t.Errorf("%+v, want an Xid 48 of GPU 2", got)
		}
		if heard++; heard == events {
			cancel()
		}
	}, func(Listening) {})
	if err != nil || heard != events {
		t.Errorf("%d events, %v", heard, err)
	}
}
