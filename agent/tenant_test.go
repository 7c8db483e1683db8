package agent

import (
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
)

// TestTenantOfAVO: START is told of the VO, also by an agent that was started
// after the jobs, since the startd's ads say it.
func TestTenantOfAVO(t *testing.T) {
	ta := bareTestAgent(t, 1, "[sharing]\ntenancy = \"multi-user\"\ntenant = \"vo\"\n")
	ta.hw.inv.Driver = "555.58.02"
	ta.can.MultiUser.Has = true
	ta.restart()
	s := ta.proc.starter(100, "slot1_1")
	job := &api.Job{ID: "1.0", Owner: "alice", AssignedGPUs: []string{string(uuid(0))}, ProvisionedVRAM: vram(4096), VO: "atlas"}
	if r := ta.prepare(starter.Caller{UID: 1000, Hook: true, Starter: s}, job); r.Grant == nil {
		t.Fatalf("%+v", r)
	}
	tenant := func() string { return ta.answers.acceptances()[0].Tenant }
	if got := tenant(); got != "atlas" {
		t.Fatalf("tenant %q", got)
	}
	other := *job
	other.VO = "lhcb"
	if r := ta.prepare(starter.Caller{UID: 1000, Hook: true, Starter: ta.proc.starter(101, "slot1_2")}, &other); r.Refusal == nil || r.Refusal.Code != api.CodeOtherTenant {
		t.Errorf("another VO of the same account: %+v", r)
	}
	bobs := *job
	bobs.ID, bobs.Owner = "2.0", "bob"
	if r := ta.prepare(starter.Caller{UID: 1001, Hook: true, Starter: ta.proc.starter(102, "slot1_3")}, &bobs); r.Grant == nil {
		t.Errorf("another account of the same VO: %+v", r.Refusal)
	}
	if !ta.access.has(uuid(0), 1000) || !ta.access.has(uuid(0), 1001) || ta.access.has(uuid(0), 1002) {
		t.Error("the pipe directory is not open to exactly the accounts that were admitted")
	}
	ta.restart()
	slot := func(name, id, owner string) condor.Slot {
		return condor.Slot{Name: name + "@wn1", Type: "Dynamic", JobID: id, RemoteOwner: owner + "@example.org", VO: "atlas", AssignedGPUs: []string{string(uuid(0))}, VRAM: vram(4096)}
	}
	ta.startd.slots = []condor.Slot{slot("slot1_1", "1.0", "alice"), slot("slot1_3", "2.0", "bob"), {Name: "slot1_2@wn1", Type: "Dynamic"}}
	ta.startds.Ask(t.Context())
	if got := tenant(); got != "atlas" {
		t.Errorf("after a restart the tenant is %q", got)
	}
}

// TestTenantThatIsNotSaid: where the startd does not say a job's group, the GPU is closed
// to all but by the account, until the group is known. The slot's budget counts meanwhile.
func TestTenantThatIsNotSaid(t *testing.T) {
	ta := bareTestAgent(t, 1, "[sharing]\ntenancy = \"multi-user\"\ntenant = \"accounting-group\"\n")
	ta.hw.inv.Driver = "555.58.02"
	ta.can.MultiUser.Has = true
	s := ta.proc.starter(100, "slot1_1")
	ta.restart()
	ad := slotAd("slot1_1", "1.0", "alice", 4096, uuid(0))
	ad.Unsaid = "condor_status prints more than 64 MiB"
	ta.startd.set([]condor.Slot{ad}, nil)
	ta.startds.Ask(t.Context())
	if r := ta.entry("slot1_1"); r.Budget != 4096 || !r.Confirmed {
		t.Errorf("the job table has %+v", r)
	}
	got := ta.answers.acceptances()[0]
	if got.Accept || !strings.Contains(got.Reason, "slot1_1 holds it and its tenant (accounting-group) is not known: condor_status prints") {
		t.Errorf("START is told %+v", got)
	}
	job := &api.Job{ID: "2.0", Owner: "alice", AssignedGPUs: []string{string(uuid(0))}, ProvisionedVRAM: vram(4096)}
	if r := ta.prepare(starter.Caller{UID: 1000, Hook: true, Starter: ta.proc.starter(101, "slot1_2")}, job); r.Refusal == nil {
		t.Errorf("a job without a group is let in beside it: %+v", r.Grant)
	}
	ad.Unsaid, ad.Group = "", "cms"
	ta.startd.set([]condor.Slot{ad}, nil)
	ta.startds.Ask(t.Context())
	if got := ta.answers.acceptances()[0]; !got.Accept || got.Tenant != "cms" || !s.Is(ta.entry("slot1_1").Starter) {
		t.Errorf("START is told %+v", got)
	}
	// What the hook said stands where the startd says nothing.
	ad.Unsaid, ad.Group = "too long", ""
	ta.startd.set([]condor.Slot{ad}, nil)
	ta.startds.Ask(t.Context())
	if got := ta.answers.acceptances()[0]; !got.Accept || got.Tenant != "cms" {
		t.Errorf("START is told %+v", got)
	}
}

// Several accounts at once are refused where the control daemon lacks it.
func TestMultiUserIsRefused(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	ta.hw.inv.Driver = "555.58.02"
	ta.writeConfig("[sharing]\ntenancy = \"multi-user\"\n")
	if v := ta.apply(true); !strings.Contains(v.configError, "install driver 555 or newer") || v.plan.GPUs[0].Tenancy.Policy != config.TenancyOneAtATime {
		t.Errorf("%q, %s", v.configError, v.plan.GPUs[0].Tenancy)
	}
}
