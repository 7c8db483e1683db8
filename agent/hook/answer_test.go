package hook

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/condor"
)

// small is a job's ad with its environment, and what else stands in it.
func small(environment string, more ...string) string {
	return strings.Join(append([]string{`ClusterId = 7`, `ProcId = 0`, `Owner = "alice"`, `Environment = "` + environment + `"`}, more...), "\n")
}

// TestRefusedUnasked: a job that may not start at all is held with the reason, without a question to the agent.
func TestRefusedUnasked(t *testing.T) {
	for name, tt := range map[string]struct{ ad, says string }{
		"no ad":                      {"", "the job ad is empty"},
		"no ClassAd":                 {"<xml>", "the job ad"},
		"an environment of its own":  {small("A"), `\"A\" is not of the form NAME=value`},
		"an expression":              {"ClusterId = 7\nEnvironment = strcat(\"A\", \"=b\")", "is a ClassAd expression"},
		"a program outside":          {small("A=b", `PreCmd = "before"`), "run programs of this job outside its cgroup, where no limit holds (PreCmd)"},
		"two programs outside":       {small("A=b", `PreCmd = "before"`, `PostCmd = "after"`), "PostCmd"},
		"a tenant's name of its own": {small("A=b", `AcctGroup = "`+strings.Repeat("x", 300)+`"`), "use the name that the site gave it"},
	} {
		got := string(Answer(api.Hook{Ad: tt.ad}, func(*api.Job) (api.Reply, error) {
			t.Errorf("%s: it asks", name)
			return api.Reply{Grant: &api.Grant{}}, nil
		}))
		if !strings.HasPrefix(got, "HookStatusCode = 75\n") || !strings.Contains(got, tt.says) {
			t.Errorf("%s: the hook prints %q, want %q", name, got, tt.says)
		}
	}
	if got := string(Unreadable(errors.New("input/output error"))); !strings.HasPrefix(got, "HookStatusCode = 75\n") ||
		!strings.Contains(got, "read the job ad: input/output error") {
		t.Errorf("of an ad that it cannot read the hook prints %q", got)
	}
}

// TestAsked: the agent is asked about the job in the ad, on the GPUs that HTCondor named to the hook.
func TestAsked(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	ad := small("A=b", `RequestGPUs = 1`, `RequestVRAM = 4000`, `VramProvisioned = 4096`, `RequestCpus = 2`, `RequestMemory = 100`,
		`AcctGroup = "group"`, `x509UserProxyVOName = "atlas"`, `RequestGPUThreads = 30`, `Cmd = "/home/alice/train.py"`,
		`JobBatchName = "batch"`, `GlobalJobId = "ap#7.0#1"`, `WantDocker = true`, `AssignedGPUs = "GPU-of-the-job"`)
	want := api.Job{
		ID: "7.0", Owner: "alice", AssignedGPUs: []string{"GPU-a", "GPU-b"}, ProvisionedVRAM: number(4096), RequestGPUs: number(1),
		RequestVRAM: number(4000), Group: "group", VO: "atlas", Program: "train.py", Batch: "batch", Schedd: "ap",
		RequestCPUs: number(2), RequestMemory: number(100), Docker: true, RequestThreads: "30",
	}
	asked := 0
	Answer(api.Hook{Ad: ad, GPUs: "GPU-a, GPU-b"}, func(job *api.Job) (api.Reply, error) {
		asked++
		if diff := cmp.Diff(want, *job); diff != "" {
			t.Errorf("it asks about another job (-want +got):\n%s", diff)
		}
		return api.Reply{}, nil
	})
	if asked != 1 {
		t.Errorf("it asks %d times", asked)
	}
}

// TestDecision: a reply is a grant or a refusal. Whatever else it is sends the job back to the queue.
func TestDecision(t *testing.T) {
	grant, full := &api.Grant{EnforcedBy: "daemon"}, api.Refuse(api.CodeClosed, "it is full")
	for name, tt := range map[string]struct {
		reply api.Reply
		err   error
		code  int // 0 for the grant
		says  string
	}{
		"a grant":               {api.Reply{Grant: grant}, nil, 0, ""},
		"a refusal":             {api.Reply{Refusal: full}, nil, api.CodeClosed, "it is full"},
		"the least code":        {api.Reply{Refusal: api.Refuse(1, "it is odd")}, nil, 1, "it is odd"},
		"both":                  {api.Reply{Grant: grant, Refusal: full}, nil, api.CodeClosed, "it is full"},
		"no agent":              {api.Reply{Grant: grant}, errors.New("no agent"), api.CodeNoAgent, "no agent"},
		"an error":              {api.Reply{Error: "unknown caller", Grant: grant}, nil, api.CodeNoAgent, "gpuslotd refuses the request: unknown caller"},
		"nothing":               {api.Reply{}, nil, api.CodeNoAgent, "answered without a decision"},
		"a refusal of no code":  {api.Reply{Refusal: &api.Refusal{Reason: "x"}}, nil, api.CodeNoAgent, "answered without a decision"},
		"a grant, and no code":  {api.Reply{Grant: grant, Refusal: &api.Refusal{Code: 0}}, nil, api.CodeNoAgent, "answered without a decision"},
		"a code that is no one": {api.Reply{Refusal: &api.Refusal{Code: -1, Reason: "x"}}, nil, api.CodeNoAgent, "answered without a decision"},
	} {
		got, refusal := Decision(tt.reply, tt.err)
		if tt.code == 0 {
			if refusal != nil || got.EnforcedBy != grant.EnforcedBy {
				t.Errorf("%s: %+v, %+v", name, got, refusal)
			}
			continue
		}
		if refusal == nil || refusal.Code != tt.code || refusal.Requeue != (tt.code >= 300) || !strings.Contains(refusal.Reason, tt.says) {
			t.Errorf("%s: %+v, want code %d, %q", name, refusal, tt.code, tt.says)
		}
		if got.Environment != nil || got.EnforcedBy != "" {
			t.Errorf("%s: a grant beside the refusal: %+v", name, got)
		}
		printed := string(Answer(api.Hook{Ad: small("A=b")}, func(*api.Job) (api.Reply, error) { return tt.reply, tt.err }))
		if !strings.Contains(printed, fmt.Sprintf("HookStatusCode = %d\n", tt.code)) ||
			!strings.Contains(printed, tt.says) || strings.Contains(printed, "Environment") {
			t.Errorf("%s: the hook prints %q", name, printed)
		}
	}
}

// TestEnvironment: an admitted job gets the grant's variables in the place of its own, and its own in the
// place of the grant's defaults; its containers get the pipe directory besides what job and site bind.
func TestEnvironment(t *testing.T) {
	const pipes = "/run/gpuslot/mps/GPU-a"
	grant := &api.Grant{
		Environment: map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-a", "GPUSLOT_VRAM_MIB": "4000"},
		Defaults:    map[string]string{"TF_FORCE_GPU_ALLOW_GROWTH": "true"},
	}
	bound := &api.Grant{Environment: map[string]string{condor.BindVariable: pipes}}
	both := func(binds string) map[string]string {
		return map[string]string{"A": "b", condor.BindVariable: pipes, "APPTAINER_BIND": binds, "SINGULARITY_BIND": binds}
	}
	for name, tt := range map[string]struct {
		grant       *api.Grant
		environment string
		args        []string
		want        map[string]string
	}{
		"set, and defaults": {grant, "A=b CUDA_VISIBLE_DEVICES=all GPUSLOT_VRAM_MIB=1 CUDA_MPS_X=y", nil,
			map[string]string{"A": "b", "CUDA_VISIBLE_DEVICES": "GPU-a", "GPUSLOT_VRAM_MIB": "4000", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}},
		"the job's own before a default": {grant, "TF_FORCE_GPU_ALLOW_GROWTH=false", nil,
			map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-a", "GPUSLOT_VRAM_MIB": "4000", "TF_FORCE_GPU_ALLOW_GROWTH": "false"}},
		"no pipe directory":                  {&api.Grant{}, "A=b", []string{"APPTAINER_BIND=/cvmfs"}, map[string]string{"A": "b"}},
		"a bind":                             {bound, "A=b", nil, both(pipes)},
		"besides the job's":                  {bound, "A=b APPTAINER_BIND=/data SINGULARITY_BIND=/more", nil, both("/data,/more," + pipes)},
		"besides the site's":                 {bound, "A=b", []string{"APPTAINER_BIND=/cvmfs;SINGULARITY_BIND=/cvmfs,/data"}, both("/cvmfs,/data," + pipes)},
		"the site's, quoted and taken apart": {bound, "A=b", []string{`"X='a`, `""b""'`, `APPTAINER_BIND=/cvmfs"`}, both("/cvmfs," + pipes)},
		"the job's before the site's":        {bound, "A=b APPTAINER_BIND=/data", []string{"APPTAINER_BIND=/cvmfs"}, both("/data," + pipes)},
		"the site's are no environment":      {bound, "A=b", []string{`"'no`}, both(pipes)},
	} {
		reply := answer(api.Hook{Ad: small(tt.environment), Args: tt.args}, func(*api.Job) (api.Reply, error) {
			return api.Reply{Grant: tt.grant}, nil
		})
		got := map[string]string{}
		for _, variable := range reply.Environment.Names() {
			got[variable], _ = reply.Environment.Lookup(variable)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || reply.Code != 0 {
			t.Errorf("%s: code %d, environment (-want +got):\n%s", name, reply.Code, diff)
		}
	}
}
