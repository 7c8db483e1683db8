package main

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
)

// A long remark stands once below the table, with the GPUs it is about.
func TestStatusRemarks(t *testing.T) {
	const mode = "default, not exclusive-process: the inventory is a recorded file, not the hardware"
	s := api.Status{Host: "wn1", GPUs: []api.StatusGPU{
		{Index: 0, ComputeMode: mode, Server: "no server yet (starts with the first job)"},
		{Index: 1, ComputeMode: "exclusive-process", Server: "1 server"},
		{Index: 2, ComputeMode: mode, Unlisted: "875 MiB are in use"},
	}}
	yes, no := true, false
	s.MPS = []api.Capability{{Name: "server-status", Has: &yes}, {Name: "multi-user", Has: &no}, {Name: "cgroup-limits"}}
	s.MissingEnforcement = []string{"Accounts take turns."}
	var b strings.Builder
	statusText(&b, s)
	for _, want := range []string{
		"unlisted: GPU 2: 875 MiB are in use\n",
		"* GPU 0, 2: " + mode + "\n",
		"* GPU 0: no server yet (starts with the first job)\n",
		"\nMPS has server-status; lacks multi-user; not known: cgroup-limits\nlimitation: Accounts take turns.\n",
		"default *  ", "exclusive-process  ", "1 server\n",
	} {
		if strings.Count(b.String(), want) < 1 {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	if n := strings.Count(b.String(), mode); n != 1 {
		t.Errorf("the remark stands %d times in:\n%s", n, b.String())
	}
}

// Multiprocessors of a job's own stand beside its wall.
func TestStatusPartitions(t *testing.T) {
	sms := 32
	var b strings.Builder
	statusText(&b, api.Status{GPUs: []api.StatusGPU{{Jobs: []api.StatusJob{{Slot: "slot1_1", EnforcedBy: "watch", SMs: &sms}, {Slot: "slot1_2", EnforcedBy: "daemon"}}}}})
	if !strings.Contains(b.String(), " watch, 32 SMs  ") || strings.Count(b.String(), "SMs") != 1 {
		t.Errorf("%s", b.String())
	}
}

// On an observed node status has no word of what gpuslot does not do there.
func TestStatusOfAnObservedNode(t *testing.T) {
	used, sm := int64(4424), 0.25
	s := api.Status{Host: "wn1", Version: "1", Observe: true, GPUs: []api.StatusGPU{
		{UUID: "GPU-a", Mode: "observe", Shares: 1, PoolMiB: 81559, UsedMiB: 81559, Accept: true, UseMiB: &used, SM: &sm,
			Jobs: []api.StatusJob{{Slot: "slot1_1", ID: "7.0", Account: "alice", BudgetMiB: 81559, UseMiB: &used, Confirmed: true}}},
		{UUID: "GPU-b", Index: 1, Mode: "observe", Shares: 1, PoolMiB: 81559, Accept: true},
	}}
	var out strings.Builder
	statusText(&out, s)
	for _, want := range []string{"0 GPU-a observe 1 81559 4424 25 % -", "1 GPU-b observe 0 81559 ? - -", "slot1_1 7.0 alice 0 81559 4424 -", "observed: gpuslot changes nothing here"} {
		if !strings.Contains(strings.Join(strings.Fields(out.String()), " "), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	for _, never := range []string{"TAKES JOBS", "DAEMON", "MPS", "TENANT"} {
		if strings.Contains(out.String(), never) {
			t.Errorf("%q in\n%s", never, out.String())
		}
	}
	s.GPUs = s.GPUs[1:]
	out.Reset()
	if statusText(&out, s); !strings.Contains(out.String(), "no GPU jobs") {
		t.Error(out.String())
	}
}
