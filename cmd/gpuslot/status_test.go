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
		{Index: 2, ComputeMode: mode},
	}}
	yes, no := true, false
	s.MPS = []api.Capability{{Name: "server-status", Has: &yes}, {Name: "multi-user", Has: &no}, {Name: "cgroup-limits"}}
	s.Walls = []string{"Accounts take turns."}
	var b strings.Builder
	statusText(&b, s)
	for _, want := range []string{
		"* GPU 0, 2: " + mode + "\n",
		"* GPU 0: no server yet (starts with the first job)\n",
		"\nMPS has server-status; lacks multi-user; not known: cgroup-limits\nmissing wall: Accounts take turns.\n",
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
	statusText(&b, api.Status{GPUs: []api.StatusGPU{{Jobs: []api.StatusJob{{Slot: "slot1_1", Wall: "watch", SMs: &sms}, {Slot: "slot1_2", Wall: "daemon"}}}}})
	if !strings.Contains(b.String(), " watch, 32 SMs  ") || strings.Count(b.String(), "SMs") != 1 {
		t.Errorf("%s", b.String())
	}
}
