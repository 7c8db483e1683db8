package rules

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

const migOne = gpu.UUID("MIG-00000000-0000-5000-8000-000000000001")

// TestSampled: each job on a shared GPU gets its memory, its processes there, and those elsewhere.
func TestSampled(t *testing.T) {
	mine := starter.Starter{ID: process.ID{PID: 1, Started: 1}, Slot: "slot1_1"}
	key := SlotKey(mine)
	onDevice := func(u gpu.UUID, known bool, all ...usage.Process) usage.DeviceUsage {
		return usage.DeviceUsage{Device: usage.Device{GPU: u}, Processes: gpu.Measured[[]usage.Process]{Value: all, Known: known}}
	}
	of := func(pid int, client bool) usage.Process {
		return usage.Process{DeviceProcess: gpu.DeviceProcess{PID: pid, MPSClient: client}, Owner: usage.OwnerSlot, Slot: key}
	}
	ended := func(pid int, stays bool) usage.Process {
		return usage.Process{DeviceProcess: gpu.DeviceProcess{PID: pid}, Owner: usage.OwnerEnded, Slot: key, Stays: stays}
	}
	p := &plan.Plan{GPUs: []plan.GPU{{UUID: uuid(0), Mode: config.ModeMPS, MaxClients: 6, LargestRequest: 8192}, {UUID: uuid(1), Mode: config.ModeWhole},
		{UUID: uuid(2), Mode: config.ModeTimeSlice}}}
	p.RequestVRAM.Quantum = 512
	other := usage.Process{DeviceProcess: gpu.DeviceProcess{PID: 9}, Owner: usage.OwnerNone}
	unknown := usage.Process{DeviceProcess: gpu.DeviceProcess{PID: 10}, Owner: usage.OwnerUnknown}
	memory := gpu.Known(gpu.Bytes(7))
	for name, c := range map[string]struct {
		gpu     gpu.UUID
		devices []usage.DeviceUsage
		want    []Job // what is sampled; nil: no job is put to
	}{
		"a whole GPU": {uuid(1), []usage.DeviceUsage{onDevice(uuid(1), true, of(5, false))}, nil},
		"not planned": {uuid(7), []usage.DeviceUsage{onDevice(uuid(7), true, of(5, false))}, nil},
		"two clients, one beside": {uuid(0), []usage.DeviceUsage{onDevice(uuid(0), true, of(6, true), of(5, false), other, of(4, true))},
			[]Job{{Known: true, PIDs: []int{4, 5, 6}, Beside: []int{5}, MostClients: 6, Largest: 8192}}},
		"processes are unknown": {uuid(0), []usage.DeviceUsage{onDevice(uuid(0), false, of(6, true))}, []Job{{MostClients: 6, Largest: 8192}}},
		"no sample":             {uuid(0), nil, []Job{{MostClients: 6, Largest: 8192}}},
		"elsewhere": {uuid(0), []usage.DeviceUsage{onDevice(uuid(0), true, of(6, true)), onDevice(uuid(1), true, of(8, false))},
			[]Job{{Known: true, PIDs: []int{6}, Elsewhere: []Stray{{8, uuid(1)}}, MostClients: 6, Largest: 8192}}},
		"ended, and listed still": {uuid(0), []usage.DeviceUsage{onDevice(uuid(0), true, of(6, true), ended(5, true), ended(4, false)), onDevice(uuid(1), true, ended(8, true))},
			[]Job{{Known: true, PIDs: []int{5, 6}, Elsewhere: []Stray{{8, uuid(1)}}, MostClients: 6, Largest: 8192}}},
		"one there may be its": {uuid(0), []usage.DeviceUsage{onDevice(uuid(0), true, of(6, true), unknown), onDevice(uuid(1), true)},
			[]Job{{Known: true, PIDs: []int{6}, Unclear: true, MostClients: 6, Largest: 8192}}},
		"one elsewhere may be its": {uuid(0), []usage.DeviceUsage{onDevice(uuid(0), true, of(6, true)), onDevice(uuid(1), true, unknown)},
			[]Job{{Known: true, PIDs: []int{6}, UnclearElsewhere: true, MostClients: 6, Largest: 8192}}},
		"time slices": {uuid(2), []usage.DeviceUsage{onDevice(uuid(2), true, of(5, false))}, []Job{{Known: true, PIDs: []int{5}}}},
	} {
		job := jobs.Job{Starter: mine, GPU: c.gpu, Budget: 4096}
		snap := &usage.Snapshot{Devices: c.devices, Slots: []usage.SlotUsage{{Slot: key, Device: usage.Device{GPU: c.gpu}, Memory: memory}}}
		for i := range c.want {
			c.want[i].Job, c.want[i].Memory, c.want[i].Quantum = job, memory, 512
		}
		if d := cmp.Diff(c.want, Sampled(snap, p, []jobs.Job{{GPU: uuid(8)}, job})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestIsOn: what a slot holds is a device, a place of one, or a part of a GPU.
func TestIsOn(t *testing.T) {
	p := &plan.Plan{GPUs: []plan.GPU{{UUID: uuid(0)}, {UUID: "PLACE", Place: "1g.5gb@0", Device: migOne, Parent: uuid(1)}, {UUID: migOne, Parent: uuid(1)}}}
	whole := func(u gpu.UUID) usage.Device { return usage.Device{GPU: u} }
	part := func(u, mig gpu.UUID) usage.Device { return usage.Device{GPU: u, MIG: mig} }
	for _, c := range []struct {
		held gpu.UUID
		on   usage.Device
		want bool
	}{
		{uuid(0), whole(uuid(0)), true}, {uuid(0), whole(uuid(1)), false}, {uuid(7), whole(uuid(7)), true}, {uuid(7), whole(uuid(0)), false},
		{"PLACE", part(uuid(1), migOne), true}, {"PLACE", part(uuid(1), "MIG-2"), false}, {"PLACE", whole(uuid(1)), true}, {"PLACE", whole(uuid(0)), false},
		{migOne, part(uuid(1), migOne), true}, {migOne, part(uuid(1), "MIG-2"), false}, {migOne, whole(uuid(1)), true},
		{"MIG-9", part(uuid(1), "MIG-9"), true}, {"MIG-9", part(uuid(1), migOne), false}, {uuid(0), part(uuid(0), migOne), false},
	} {
		if got := isOn(p, c.held, c.on); got != c.want {
			t.Errorf("%s on %+v: %t", c.held, c.on, got)
		}
	}
}

// TestJudgeGoesOn: a value that is not known keeps no other rule from being judged.
func TestJudgeGoesOn(t *testing.T) {
	j := jobUsing(100)
	j.Memory = gpu.Measured[gpu.Bytes]{}
	j.ToBeHeld, j.Elsewhere = true, []Stray{{300, uuid(1)}}
	_, found := Breaches{}.Judge([]Job{j}, defaultRules(), time.Unix(1000, 0))
	if len(found) != 1 || found[0].Code != api.CodeOtherGPU {
		t.Errorf("%+v", found)
	}
}
