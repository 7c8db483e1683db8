package main

import (
	"errors"
	"strings"
	"testing"
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
			f.jobAsked, f.jobSaid = true, strings.ReplaceAll(contractText, c.old, c.new)
			if c.old == "" {
				f.jobSaid = contractText
			}
			found := checkContract(f)
			ok := len(found) == 1 && found[0].Level == levelOK
			if c.says == "" && !ok || c.says != "" && (ok || !strings.Contains(found[0].What, c.says)) {
				t.Errorf("%+v", found)
			}
		})
	}
	f := healthy()
	f.jobAsked, f.jobErr = true, errors.New("held:\nwhy")
	if got := checkContract(f); len(got) != 1 || got[0].Level != levelError || got[0].What != "held: why" {
		t.Errorf("%+v", got)
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
		want level
	}{
		"none":       {selinux{}, levelOK},
		"enforcing":  {selinux{enforcing: true, denials: []string{line}}, levelError},
		"permissive": {selinux{denials: []string{line}}, levelNote},
		"unreadable": {selinux{enforcing: true, err: errors.New("no")}, levelWarning},
	} {
		f := healthy()
		f.selinux = c.s
		if got := checkSELinux(f); len(got) != 1 || got[0].Level != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
