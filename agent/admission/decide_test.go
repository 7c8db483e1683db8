package admission

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// admitState is a healthy V100S with 8 shares and 30720 MiB, and a whole one.
func admitState() State {
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	shared := plan.GPU{
		UUID: uuid(0), Name: "Tesla V100S-PCIE-32GB", Memory: 32768, Mode: config.ModeMPS, Shares: 8, Pool: 30720,
		LargestRequest: 16384, DefaultRequest: 3584, Threads: plan.Threads{Policy: config.ThreadsUncapped},
		Tenancy: plan.Tenancy{Policy: config.TenancyOneAtATime},
	}
	whole := plan.GPU{UUID: uuid(1), Name: shared.Name, Memory: 32768, Mode: config.ModeWhole, Shares: 1, Pool: 32768}
	another := shared
	another.UUID = uuid(2)
	return State{
		Plan:  &plan.Plan{Host: gpu.Host{Name: "wn1"}, Driver: "550.163.01", GPUs: []plan.GPU{shared, whole, another}},
		Pipes: "/run/gpuslot/mps", Now: now, MaxAge: time.Minute,
		Health: Health{PrivilegeChecks: true, Checked: mps.Checked{PID: 7, Started: 8, At: now.Add(-10 * time.Second)}},
	}
}

func running(pid int, uid uint32, owner string, mib gpu.MiB) jobs.Job {
	return jobs.Job{Starter: starter.Starter{ID: process.ID{PID: pid, Started: 1}, Slot: "slot1_9"}, GPU: uuid(0), Budget: mib,
		Account: starter.Account{UID: uid, Known: true}, Owner: owner, ID: "1.0"}
}

// TestDecideWithoutRequest: where the site says so a job without request_vram gets a
// share, also from an access point that writes none into it.
func TestDecideWithoutRequest(t *testing.T) {
	alice := starter.Caller{UID: 1000, Hook: true, Starter: starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: "slot1_1"}}
	for _, provisioned := range []*int64{nil, vram(0)} {
		s := admitState()
		s.Plan.RequestVRAM.WithoutRequest = config.WithoutRequestShare
		g, r := Decide(s, alice, &api.Job{AssignedGPUs: []string{string(uuid(0))}, ProvisionedVRAM: provisioned})
		if r != nil || g.Environment["GPUSLOT_VRAM_MIB"] != fmt.Sprint(int64(s.Plan.GPUs[0].DefaultRequest)) {
			t.Errorf("%+v, %+v", g, r)
		}
	}
}

func TestDecideRefuses(t *testing.T) {
	alice := starter.Caller{UID: 1000, Hook: true, Starter: starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: "slot1_1"}}
	for _, tt := range []struct {
		name string
		gpus []string
		vram *int64
		with func(*State)
		code int
		says string // the cause
		todo string // what to do, at the end
	}{
		{"no request", []string{string(uuid(0))}, nil, nil, api.CodeNoRequest, "not for VRAM", "add the line request_vram = 3584 (MiB, as much as the job needs) to the submit file"},
		{"zero", []string{string(uuid(0))}, vram(0), nil, api.CodeNoRequest, "not for VRAM", "to the submit file"},
		{"negative", []string{string(uuid(0))}, vram(-5), nil, api.CodeBadRequest, "request_vram = -5 is less than nothing", "as the job needs"},
		{"negative, where a share is the default", []string{string(uuid(0))}, vram(-5), func(s *State) {
			s.Plan.RequestVRAM.WithoutRequest = config.WithoutRequestShare
		}, api.CodeBadRequest, "less than nothing", "as the job needs"},
		{"negative, on a whole GPU", []string{string(uuid(1))}, vram(-5), nil, api.CodeBadRequest, "less than nothing", "as the job needs"},
		{"in GiB", []string{string(uuid(0))}, vram(4), nil, api.CodeBadRequest, "request_vram is in MiB", "did you mean 4096?"},
		{"too large", []string{string(uuid(0))}, vram(16385), nil, api.CodeTooLarge, "16385 MiB", "use request_vram = 16384 or less"},
		{"absurd", []string{string(uuid(0))}, vram(1 << 62), nil, api.CodeTooLarge, "more than one job may have", "or less"},
		{"several, one shared", []string{string(uuid(0)), string(uuid(1))}, vram(4096), nil, api.CodeSeveralGPUs, "2 GPUs", "use request_gpus = 1"},
		{"several, the second shared", []string{string(uuid(1)), string(uuid(0))}, vram(4096), nil, api.CodeSeveralGPUs, "2 GPUs", "use request_gpus = 1"},
		{"several, one a MIG device", []string{string(uuid(0)), string(uuid(1))}, vram(4096), func(s *State) {
			s.Plan.GPUs[0].Mode, s.Plan.GPUs[0].Parent = config.ModeMIG, uuid(9)
		}, api.CodeSeveralGPUs, "is a MIG device", "use request_gpus = 1"},
		{"the same twice", []string{string(uuid(0)), string(uuid(0))}, vram(4096), nil, api.CodeBadGPUs, "more than once", "use request_gpus = 1"},
		{"not a UUID", []string{"CUDA0"}, vram(4096), nil, api.CodeBadGPUs, `"CUDA0"`, "tell its administrator"},
		{"short id", []string{"GPU-00000000"}, vram(4096), nil, api.CodeBadGPUs, "not a GPU's UUID", "tell its administrator"},
		{"not in the plan", []string{string(uuid(9))}, vram(4096), nil, api.CodeNotPlanned, "not in the plan of wn1", "condor_restart -peaceful -daemon STARTD"},
		{"closed", []string{string(uuid(0))}, vram(4096), func(s *State) { s.Health.Closed = "it is wedged: restart it" }, api.CodeClosed, "is closed", "restart it"},
		{"never proven", []string{string(uuid(0))}, vram(4096), func(s *State) { s.Health = Health{} }, api.CodeClosed, "has not proven its health yet", "look at gpuslot status"},
		{"old proof", []string{string(uuid(0))}, vram(4096), func(s *State) { s.Now = s.Now.Add(2 * time.Minute) }, api.CodeClosed, "2m10s ago", "look at gpuslot status"},
		{"cheap check", []string{string(uuid(0))}, vram(4096), func(s *State) { s.Health.Check = errors.New("it is suspended") }, api.CodeClosed, "it is suspended", "look at gpuslot status"},
		{"other tenant", []string{string(uuid(0))}, vram(4096), func(s *State) { s.Running = []jobs.Job{running(7, 1001, "bob", 4096)} }, api.CodeOtherTenant, "held by bob", "waits in the queue for that or another GPU"},
		{"unknown tenant", []string{string(uuid(0))}, vram(4096), func(s *State) {
			s.Running = []jobs.Job{{Starter: starter.Starter{ID: process.ID{PID: 7, Started: 1}, Slot: "slot1_9"}, GPU: uuid(0), Budget: 4096}}
		}, api.CodeOtherTenant, "held by the job of slot1_9", "another GPU"},
		{"not the common account", []string{string(uuid(0))}, vram(4096), func(s *State) {
			s.Plan.GPUs[0].Tenancy = plan.Tenancy{Policy: config.TenancyCommon, User: "gpujobs"}
			s.Common = starter.Account{UID: 2000, Known: true}
		}, api.CodeOtherTenant, "run as gpujobs", "sets the slot's account or another tenancy"},
		{"unknown common account", []string{string(uuid(0))}, vram(4096), func(s *State) {
			s.Plan.GPUs[0].Tenancy = plan.Tenancy{Policy: config.TenancyCommon, User: "gpujobs"}
		}, api.CodeOtherTenant, "run as gpujobs", "another tenancy"},
		{"pool full", []string{string(uuid(0))}, vram(4096), func(s *State) {
			s.Running = []jobs.Job{running(7, 1000, "alice", 16384), running(8, 1000, "alice", 10752)}
		}, api.CodeNotPlanned, "31232 of 30720 MiB", "condor_restart -peaceful -daemon STARTD"},
		{"shares full", []string{string(uuid(0))}, vram(512), func(s *State) {
			for pid := range 8 {
				s.Running = append(s.Running, running(200+pid, 1000, "alice", 512))
			}
		}, api.CodeNotPlanned, "9 of 8 shares", "condor_restart -peaceful -daemon STARTD"},
		{"claims another GPU", []string{string(uuid(2))}, vram(4096), func(s *State) {
			s.Held = []jobs.Job{{Starter: alice.Starter, GPU: uuid(0), Budget: 4096}}
		}, api.CodeNotPlanned, "slot1_1 holds 4096 MiB of " + string(uuid(0)), ".machine.ad"},
		{"claims more", []string{string(uuid(0))}, vram(8192), func(s *State) {
			s.Held = []jobs.Job{{Starter: alice.Starter, GPU: uuid(0), Budget: 4096}}
			s.Running = s.Held
		}, api.CodeNotPlanned, "the request says 8192 MiB", ".machine.ad"},
		{"whole GPU still shared", []string{string(uuid(1))}, vram(4096), func(s *State) {
			r := running(7, 1001, "bob", 4096)
			r.GPU = uuid(1)
			s.Running = []jobs.Job{r}
		}, api.CodeClosed, "still held by bob", "until that ends"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := admitState()
			if tt.with != nil {
				tt.with(&s)
			}
			grant, r := Decide(s, alice, &api.Job{AssignedGPUs: tt.gpus, ProvisionedVRAM: tt.vram})
			if grant != nil || r == nil {
				t.Fatalf("granted %+v", grant)
			}
			if r.Code != tt.code || r.Requeue != (tt.code >= 300) {
				t.Errorf("code %d, requeue %v, want %d", r.Code, r.Requeue, tt.code)
			}
			if !strings.Contains(r.Reason, tt.says) || !strings.HasSuffix(r.Reason, tt.todo) {
				t.Errorf("reason = %q, want %q in it and %q at its end", r.Reason, tt.says, tt.todo)
			}
			if strings.ContainsAny(r.Reason, "\n\t") {
				t.Errorf("reason %q is not one line", r.Reason)
			}
		})
	}
}

func TestDecideGrants(t *testing.T) {
	const device = "MIG-00000000-0000-5000-8000-000000000001"
	alice := starter.Caller{UID: 1000, Hook: true, Starter: starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: "slot1_1"}}
	for _, tt := range []struct {
		name string
		gpus []string
		vram int64
		with func(*State)
		want api.Grant
	}{
		{"share", []string{string(uuid(0))}, 4096, nil, api.Grant{EnforcedBy: jobs.EnforcedByNone,
			Environment: map[string]string{
				"CUDA_VISIBLE_DEVICES": string(uuid(0)), "CUDA_MPS_PIPE_DIRECTORY": "/run/gpuslot/mps/" + string(uuid(0)),
				"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M", "GPUSLOT_GPU": string(uuid(0)), "GPUSLOT_VRAM_MIB": "4096", "GPUSLOT_ENFORCED_BY": "none",
				"GPUSLOT_BIND": "/run/gpuslot/mps/" + string(uuid(0)),
			},
			// 4096/32768 = 0.125, rounded down.
			Defaults: map[string]string{"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.12"}}},
		{"largest, capped", []string{string(uuid(0))}, 16384, func(s *State) {
			s.Plan.GPUs[0].Threads = plan.Threads{Policy: config.ThreadsEqual}
		}, api.Grant{EnforcedBy: jobs.EnforcedByDaemon,
			Environment: map[string]string{
				"CUDA_VISIBLE_DEVICES": string(uuid(0)), "CUDA_MPS_PIPE_DIRECTORY": "/run/gpuslot/mps/" + string(uuid(0)),
				"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=16384M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "12.5",
				"GPUSLOT_GPU": string(uuid(0)), "GPUSLOT_VRAM_MIB": "16384", "GPUSLOT_ENFORCED_BY": "daemon",
				"GPUSLOT_BIND": "/run/gpuslot/mps/" + string(uuid(0)),
			},
			Defaults: map[string]string{"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.50"}}},
		// Without MPS nothing of MPS is in the environment, and the daemon's health does not count.
		{"time slices", []string{string(uuid(0))}, 4096, func(s *State) {
			s.Plan.GPUs[0].Mode, s.Plan.GPUs[0].Threads = config.ModeTimeSlice, plan.Threads{Policy: config.ThreadsEqual}
			s.Health = Health{ByDriver: true, CgroupLimits: true}
		}, api.Grant{EnforcedBy: jobs.EnforcedByCgroup,
			Environment: map[string]string{
				"CUDA_VISIBLE_DEVICES": string(uuid(0)), "GPUSLOT_GPU": string(uuid(0)), "GPUSLOT_VRAM_MIB": "4096",
				"GPUSLOT_ENFORCED_BY": "cgroup",
			},
			Defaults: map[string]string{"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": "1.00"}}},
		{"whole", []string{string(uuid(1))}, 32768, nil, api.Grant{EnforcedBy: jobs.EnforcedByWhole,
			Environment: map[string]string{"CUDA_VISIBLE_DEVICES": string(uuid(1)), "GPUSLOT_GPU": string(uuid(1)),
				"GPUSLOT_VRAM_MIB": "32768", "GPUSLOT_ENFORCED_BY": "whole"}}},
		{"two whole GPUs, the smaller one counts", []string{string(uuid(1)), string(uuid(2))}, 0, func(s *State) {
			s.Plan.GPUs[2].Mode, s.Plan.GPUs[2].Memory = config.ModeWhole, 16384
		}, api.Grant{EnforcedBy: jobs.EnforcedByWhole,
			Environment: map[string]string{"CUDA_VISIBLE_DEVICES": string(uuid(1)) + "," + string(uuid(2)),
				"GPUSLOT_GPU": string(uuid(1)) + "," + string(uuid(2)), "GPUSLOT_VRAM_MIB": "16384", "GPUSLOT_ENFORCED_BY": "whole"}}},
		{"whole GPU of unknown memory", []string{string(uuid(1))}, 0, func(s *State) { s.Plan.GPUs[1].Memory = 0 },
			api.Grant{EnforcedBy: jobs.EnforcedByWhole, Environment: map[string]string{
				"CUDA_VISIBLE_DEVICES": string(uuid(1)), "GPUSLOT_GPU": string(uuid(1)), "GPUSLOT_ENFORCED_BY": "whole"}}},
		{"MIG device", []string{device}, 0, func(s *State) {
			s.Plan.GPUs[1].UUID, s.Plan.GPUs[1].Mode, s.Plan.GPUs[1].Memory = gpu.UUID(device), config.ModeMIG, 19968
		}, api.Grant{EnforcedBy: jobs.EnforcedByMIG, Environment: map[string]string{"CUDA_VISIBLE_DEVICES": device,
			"NVIDIA_VISIBLE_DEVICES": device, "GPUSLOT_GPU": device, "GPUSLOT_VRAM_MIB": "19968", "GPUSLOT_ENFORCED_BY": "mig"}}},
		{"none", nil, 0, nil, api.Grant{EnforcedBy: jobs.EnforcedByNone, Environment: map[string]string{}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := admitState()
			if tt.with != nil {
				tt.with(&s)
			}
			grant, r := Decide(s, alice, &api.Job{AssignedGPUs: tt.gpus, ProvisionedVRAM: &tt.vram})
			if r != nil {
				t.Fatalf("refused: %s", r.Reason)
			}
			if diff := cmp.Diff(&tt.want, grant); diff != "" {
				t.Errorf("grant (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecideDocker: nothing limits a docker universe job where only its cgroup would.
func TestDecideDocker(t *testing.T) {
	alice := starter.Caller{UID: 1000, Hook: true, Starter: starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: "slot1_1"}}
	job := &api.Job{AssignedGPUs: []string{string(uuid(0))}, ProvisionedVRAM: vram(4096), Docker: true}
	s := admitState()
	if _, r := Decide(s, alice, job); r != nil {
		t.Errorf("with MPS: %s", r.Reason)
	}
	s.Plan.GPUs[0].Mode, s.Health = config.ModeTimeSlice, Health{ByDriver: true, CgroupLimits: true}
	if _, r := Decide(s, alice, job); r == nil || r.Code != api.CodeBadRequest || !strings.Contains(r.Reason, "docker") {
		t.Errorf("%+v", r)
	}
}

// TestDecideBeside: what does not stand in a job's way.
func TestDecideBeside(t *testing.T) {
	me := starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: "slot1_1"}
	for name, with := range map[string]func(*State){
		"own account's jobs": func(s *State) { s.Running = []jobs.Job{running(7, 1000, "alice", 16384)} },
		"to the last MiB": func(s *State) {
			s.Running = []jobs.Job{running(7, 1000, "alice", 16384), running(8, 1000, "alice", 10240)}
		},
		"the same job again": func(s *State) {
			r := running(100, 1000, "alice", 4096)
			s.Running, s.Held = []jobs.Job{r}, []jobs.Job{r}
		},
		"the common account": func(s *State) {
			s.Plan.GPUs[0].Tenancy = plan.Tenancy{Policy: config.TenancyCommon, User: "gpujobs"}
			s.Common = starter.Account{UID: 1000, Known: true}
		},
		"proof at its limit": func(s *State) { s.Now = s.Health.Checked.At.Add(s.MaxAge) },
	} {
		t.Run(name, func(t *testing.T) {
			s := admitState()
			with(&s)
			job := &api.Job{AssignedGPUs: []string{string(uuid(0))}, ProvisionedVRAM: vram(4096)}
			if _, r := Decide(s, starter.Caller{UID: 1000, Hook: true, Starter: me}, job); r != nil {
				t.Errorf("refused: %s", r.Reason)
			}
		})
	}
}

// TestStaleServerIsNoWall: a server from before the limits would serve the job.
func TestStaleServerIsNoWall(t *testing.T) {
	s := admitState()
	s.Health.Stale = true
	grant, r := Decide(s, starter.Caller{UID: 1000, Starter: starter.Starter{ID: process.ID{PID: 1, Started: 1}}}, &api.Job{AssignedGPUs: []string{string(uuid(0))}, ProvisionedVRAM: vram(16384)})
	if r != nil || grant.EnforcedBy != jobs.EnforcedByNone || grant.Environment["GPUSLOT_ENFORCED_BY"] != jobs.EnforcedByNone {
		t.Errorf("%+v, %+v", grant, r)
	}
}

func TestWallOf(t *testing.T) {
	for _, tt := range []struct {
		limit, budget gpu.MiB
		health        Health
		want          string
	}{
		{4096, 4096, Health{PrivilegeChecks: true}, jobs.EnforcedByDaemon},
		{4096, 8192, Health{PrivilegeChecks: true}, jobs.EnforcedByDaemon},
		{4096, 4096, Health{PrivilegeChecks: true, Watched: true}, jobs.EnforcedByDaemon},
		{4096, 4096, Health{PrivilegeChecks: true, Stale: true}, jobs.EnforcedByNone},
		{4096, 4096, Health{PrivilegeChecks: true, Stale: true, Watched: true}, jobs.EnforcedByWatch},
		{4096, 4095, Health{PrivilegeChecks: true}, jobs.EnforcedByNone},
		{4096, 4095, Health{PrivilegeChecks: true, Watched: true}, jobs.EnforcedByWatch},
		{4096, 4096, Health{}, jobs.EnforcedByNone}, // any account may change its limit, or it is not known
		{4096, 4096, Health{Watched: true}, jobs.EnforcedByWatch},
	} {
		if got := Enforcement(tt.limit, tt.budget, tt.health); got != tt.want {
			t.Errorf("Enforcement(%s, %s, %+v) = %s, want %s", tt.limit, tt.budget, tt.health, got, tt.want)
		}
	}
}

func TestFraction(t *testing.T) {
	for _, tt := range []struct {
		limit, total gpu.MiB
		want         string
	}{
		{16384, 32768, "0.50"}, {4096, 32768, "0.12"}, {32768, 32768, "1.00"},
		{1, 32768, "0.01"}, {29, 100, "0.29"}, {65536, 32768, "1.00"}, {1, 0, "1.00"},
	} {
		if got := fraction(tt.limit, tt.total); got != tt.want {
			t.Errorf("fraction(%d, %d) = %s, want %s", tt.limit, tt.total, got, tt.want)
		}
	}
}

// A request is rounded up by the hook, and cut off by the startd.
// A slot may be made for less than was asked for, or for more.
func TestDecideNegativeRequest(t *testing.T) {
	job := &api.Job{AssignedGPUs: []string{string(uuid(0))}, ProvisionedVRAM: vram(4096), RequestVRAM: vram(-1)}
	_, r := Decide(admitState(), starter.Caller{UID: 1000, Hook: true}, job)
	if r == nil || r.Code != api.CodeBadRequest || !strings.Contains(r.Reason, "request_vram = -1 is less than nothing") {
		t.Errorf("%+v", r)
	}
}

func TestDecideFraction(t *testing.T) {
	job := &api.Job{AssignedGPUs: []string{string(uuid(0))}, ProvisionedVRAM: vram(4000), RequestVRAM: vram(4001)}
	_, r := Decide(admitState(), starter.Caller{UID: 1000, Hook: true, Starter: starter.Starter{ID: process.ID{PID: 100, Started: 1}, Slot: "slot1_1"}}, job)
	if r == nil || r.Code != api.CodeBadRequest || r.Reason != "request_vram must be a whole number of MiB: use request_vram = 4001" {
		t.Errorf("%+v", r)
	}
}

// FuzzDecide: whatever a hook says, a grant keeps the pool, the shares and the
// largest request, and exactly one of grant and refusal comes back.
func FuzzDecide(f *testing.F) {
	f.Add(string(uuid(0)), "", int64(4096), int64(8192), uint8(1))
	f.Add(string(uuid(1)), string(uuid(0)), int64(-1), int64(0), uint8(9))
	f.Add("GPU-x", "\x00", int64(1)<<62, int64(1)<<40, uint8(3))
	f.Fuzz(func(t *testing.T, first, second string, mib, others int64, n uint8) {
		s := admitState()
		var used gpu.MiB
		for pid := range int(n % 12) {
			r := running(500+pid, 1000, "alice", gpu.MiB(others&0x7fff))
			s.Running = append(s.Running, r)
			used += r.Budget
		}
		job := &api.Job{AssignedGPUs: []string{first}, ProvisionedVRAM: &mib}
		if second != "" {
			job.AssignedGPUs = append(job.AssignedGPUs, second)
		}
		grant, refusal := Decide(s, starter.Caller{UID: 1000, Starter: starter.Starter{ID: process.ID{PID: 1, Started: 1}}}, job)
		if (grant == nil) == (refusal == nil) {
			t.Fatal("neither or both of grant and refusal")
		}
		if grant == nil || grant.EnforcedBy == jobs.EnforcedByWhole {
			return
		}
		g := s.Plan.GPUs[0]
		if gpu.MiB(mib) > g.LargestRequest || used+gpu.MiB(mib) > g.Pool || len(s.Running)+1 > g.Shares {
			t.Errorf("granted %d MiB beside %d in %d jobs", mib, used, len(s.Running))
		}
	})
}
