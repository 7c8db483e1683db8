package doctor

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/plan"
)

// contractText is what a job printed under 25.14.1.
const contractText = `cgroup 0::/system.slice/condor.service/htcondor/_var_lib_condor_execute_slot1_1@wn1.slice/_var_lib_condor_execute_slot1_1@wn1.scope
env CUDA_VISIBLE_DEVICES=GPU-0000000a-0000-4000-8000-000000000000
env CUDA_MPS_PIPE_DIRECTORY=/run/gpuslot/mps/GPU-0000000a-0000-4000-8000-000000000000
env GPUSLOT_GPU=GPU-0000000a-0000-4000-8000-000000000000
env _CONDOR_SLOT=slot1_1
env _CONDOR_SCRATCH_DIR=/var/lib/condor/execute/dir_1/scratch
parent /usr/libexec/gpuslot/supervise /var/lib/condor/execute/dir_1/scratch/condor_exec.exe
directory /var/lib/condor/execute/dir_1/scratch
scratch writable
pipe reachable
`

func TestContract(t *testing.T) {
	for name, c := range map[string]struct {
		old, new string
		says     string // empty: ok
	}{
		"as it is":               {"", "", ""},
		"another cgroup":         {"_slot1_1@wn1.slice/_var_lib_condor_execute_slot1_1@wn1.scope", "_job7", "cgroup does not name its slot"},
		"a neighbour's cgroup":   {"slot1_1@wn1", "slot1_2@wn1", "cgroup does not name its slot"},
		"no hook":                {"env GPUSLOT_GPU=", "env X=", "what the hook gives"},
		"another GPU's pipe":     {"mps/GPU-0000000a", "mps/GPU-0000000b", "pipe directory"},
		"pipe hidden":            {"pipe reachable\n", "", "pipe directory"},
		"no supervisor":          {"gpuslot/supervise ", "condor_exec ", "below the supervisor"},
		"no scratch":             {"scratch writable\n", "", "scratch directory"},
		"a whole GPU has no MPS": {"env CUDA_MPS_PIPE_DIRECTORY=/run/gpuslot/mps/GPU-0000000a-0000-4000-8000-000000000000\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			f.job = &contractJob{said: contractText}
			if c.old != "" {
				f.job.said = strings.ReplaceAll(contractText, c.old, c.new)
			}
			found := checkContract(f)
			ok := len(found) == 1 && found[0].Level == OK
			if c.says == "" && !ok || c.says != "" && (ok || !strings.Contains(found[0].What, c.says)) {
				t.Errorf("%+v", found)
			}
		})
	}
	f := healthy()
	f.job = &contractJob{err: errors.New("held:\nwhy\x1b[2J")}
	if got := checkContract(f); len(got) != 1 || got[0].Level != Error || got[0].What != "held: why?[2J" {
		t.Errorf("%+v", got)
	}
	f.job = &contractJob{said: contractText + "cgroup 0::/\x1b]0;x\x07\nenv _CONDOR_SLOT=\x1b[2J\nparent \u009b2J\n"}
	for _, found := range checkContract(f) {
		if strings.ContainsFunc(found.What, unicode.IsControl) {
			t.Errorf("%q", found.What)
		}
	}
}

// TestObservedJob: the job of an observed node has nothing of gpuslot, and is seen.
func TestObservedJob(t *testing.T) {
	stock := strings.NewReplacer("env GPUSLOT_GPU=", "env X=", "env CUDA_MPS_PIPE_DIRECTORY=", "env Y=", "/usr/libexec/gpuslot/supervise ", "condor_starter -f -a slot1_1 ").Replace(contractText)
	for name, c := range map[string]struct {
		job  contractJob
		says string // empty: ok
	}{
		"as it is":     {contractJob{said: stock, recorded: true}, ""},
		"not recorded": {contractJob{said: stock}, "no record"},
		"no GPU":       {contractJob{said: strings.ReplaceAll(stock, "env CUDA_VISIBLE", "env Z"), recorded: true}, "no GPU"},
		"supervised":   {contractJob{said: contractText, recorded: true}, "it met gpuslot"},
		"held":         {contractJob{err: errors.New("held")}, "held"},
		"not tried":    {contractJob{unable: "the agent does not answer"}, "no job was submitted: the agent does not answer"},
	} {
		f := facts{plan: plan.Plan{Observe: true}, settings: map[string]string{}, job: &c.job}
		var found []Finding
		for _, one := range diagnose(f) {
			if one.Check == checkOneJob {
				found = append(found, one)
			}
		}
		if len(found) != 1 || (c.says == "") != (found[0].Level == OK) || !strings.Contains(found[0].What, c.says) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// TestRunsNone: no job is submitted where it would wait in vain.
func TestRunsNone(t *testing.T) {
	for want, spoil := range map[string]func(*facts){
		"":                          func(*facts) {},
		"the agent does not answer": func(f *facts) { f.statusErr = errors.New("x") },
		"no GPU takes jobs":         func(f *facts) { f.status.GPUs[0].Accept = false },
		"the node is quiesced":      func(f *facts) { f.status.Node = &api.NodeStatus{Phase: "quiesced"} },
	} {
		f := healthy()
		if spoil(&f); !strings.HasPrefix(runsNone(f), want) || (want == "") != (runsNone(f) == "") {
			t.Errorf("%q, want %q", runsNone(f), want)
		}
	}
}

func TestSELinux(t *testing.T) {
	// As auditd writes them (audit-userspace; SELinux notebook, AVC audit events).
	const line = `type=AVC msg=audit(1700000000.1:42): avc:  denied  { connectto } for  pid=7 comm="simjob" path="/run/gpuslot/agent.sock" scontext=a tcontext=b tclass=unix_stream_socket permissive=0`
	for text, want := range map[string]bool{
		line: true,
		strings.Replace(line, "/run/gpuslot", "/run/other", 1):  false,
		strings.Replace(line, "denied", "granted", 1):           false,
		strings.Replace(line, "type=AVC", "type=USER_AVC", 1):   false,
		`type=AVC msg=a: denied { x } comm="nvidia-cuda-mps-s"`: true,
		"": false,
	} {
		if isDenial(text) != want {
			t.Errorf("isDenial(%q) = %v", text, !want)
		}
	}
	for name, c := range map[string]struct {
		s    selinux
		want Level
	}{
		"none":       {selinux{}, OK},
		"enforcing":  {selinux{enforcing: true, denials: []string{line}}, Error},
		"permissive": {selinux{denials: []string{line}}, Note},
		"unreadable": {selinux{enforcing: true, err: errors.New("no")}, Warning},
	} {
		f := healthy()
		f.selinux = c.s
		if got := checkSELinux(f); len(got) != 1 || got[0].Level != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
