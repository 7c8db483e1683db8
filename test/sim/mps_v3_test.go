package sim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// MPS v3 (R615). Nothing of it was measured here: there is no R615. The rows
// are the examples of the MPS documentation of release 615 and the cases that
// NVIDIA ran on 615.71.09 (Dynamo guide, "Verified Behavior").

// twoRTX are of the model that NVIDIA measured on.
const twoRTX = `{"driver": "615.71.09", "gpus": [{"model": "RTXPRO6000", "uuid": "GPU-aaaa0000-0000-4000-8000-000000000000"},
	{"model": "RTXPRO6000", "uuid": "GPU-bbbb0000-0000-4000-8000-000000000000"}]}`

// v3 runs a command of the command line itself.
func (d daemon) v3(t *testing.T, words string) (string, int) {
	t.Helper()
	cmd := exec.Command(filepath.Join(d.n.Dir, "bin/nvidia-cuda-mps-control"), strings.Fields(words)...)
	cmd.Env = append(clean(), d.vars()...)
	out, _ := cmd.CombinedOutput() // the code is looked at
	return strings.TrimRight(string(out), "\n"), cmd.ProcessState.ExitCode()
}

// rows holds commands, their output and their exit code.
func (d daemon) rows(t *testing.T, rows ...[2]string) {
	t.Helper()
	for _, r := range rows {
		want, code := r[1], 0
		if rest, bad := strings.CutPrefix(want, "1: "); bad {
			want, code = rest, 1
		}
		if got, rc := d.v3(t, r[0]); got != want || rc != code {
			t.Errorf("%s: %q, rc %d; want %q, rc %d", r[0], got, rc, want, code)
		}
	}
}

// ready waits for a named server and returns its PID.
func (d daemon) ready(t *testing.T, name string) string {
	t.Helper()
	d.n.eventually(t, name+" is ready", func(shown) bool { got, _ := d.v3(t, "server get "+name+" status"); return got == "Ready" })
	pid, _ := d.v3(t, "server get "+name+" pid")
	return pid
}

func TestNamedServers(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, twoRTX)
		d := n.daemonWith(t, []string{"-d", "-p", "3"})
		d.rows(t, [2]string{"server create training --allowed-devices=" + uuidA, ""})
		pid, me := d.ready(t, "training"), os.Geteuid()
		pipe := filepath.Join(d.pipe, "training")
		d.rows(t, [][2]string{
			{"server set training --pinned-memory-limit=8G", ""},
			{"server list --format=csv,noheader", fmt.Sprintf("training,%d,%s,Ready,%s,%s,-", me, pid, pipe, uuidA)},
			{"server list --format=csv", fmt.Sprintf("NAME,UID,PID,STATUS,PIPE DIRECTORY,ALLOWED DEVICES,CONTEXT IDS\ntraining,%d,%s,Ready,%s,%s,-", me, pid, pipe, uuidA)},
			{"server get training pipe-directory", pipe},
			{"namespace create high_priority --server=training", ""},
			{"namespace set high_priority --server=training --pinned-memory-limit=4G", ""},
			{"namespace get high_priority training pinned-memory-limit", "4G"},
			{"namespace set high_priority --server=training --pinned-memory-limit=1536M --client-priority=1", ""},
			{"namespace list --server=training --format=csv,noheader", "high_priority,training,Ready,1536M,100.00,1," + pipe +
				"/high_priority\ndefault,training,Ready,8G,100.00,0," + pipe + "/default"},
			{"namespace delete high_priority --server=training", ""},
			{"namespace list --format=csv,noheader", "default,training,Ready,8G,100.00,0," + pipe + "/default"},
			{"feature describe --format=csv", "FEATURE,STATE,MODULE,COVERS\nmemacct,enabled (default),memacct,-\ncontext-share,enabled (default),context-share,-"},
			{"feature disable memacct", ""},
			{"feature describe memacct --format=csv,noheader", "memacct,disabled,memacct,-"},
			{"memacct set audit_log=true", ""},
			{"memacct describe --format=csv", "KEY,VALUE\naudit_log,true"},
			// What fails says so by its exit code; its words are inferred.
			{"server create training", "1: Server 'training' cannot be created: it exists"},
			{"server create Training", "1: Server 'Training' cannot be created: a name has 1 to 64 lower-case letters, digits and underscores"},
			{"server create", "1: Either a name or --uid is required"},
			{"server set training", "1: At least one option is required"},
			{"server set training --pinned-memory-limit=8", "1: pinned-memory-limit: a memory limit is a whole number with G, M or K"},
			{"server set training --active-thread-percentage=0", "1: active-thread-percentage: an active thread percentage is 1 to 100"},
			{"server get none pid", "1: Server 'none' not found"},
			{"namespace delete default --server=training", "1: Namespace 'default' cannot be deleted"},
			{"namespace get none training name", "1: Namespace 'none' not found"},
			{"client terminate 1", "1: Client 1 not found"},
			{"feature enable none", "1: There is no feature 'none'"},
			{"sm-partition list", `1: Unknown command "sm-partition list"`}, // not simulated
			{"get_server_list", `1: Unknown command "get_server_list"`},
		}...)
		if out, _ := d.v3(t, "-v"); out != "CUDA MPS Control binary version: 13040" {
			t.Errorf("-v: %q", out)
		}
	})
}

// TestNamespaceLimits: a client chooses its namespace by the directory, and
// gets what NVIDIA measured there.
func TestNamespaceLimits(t *testing.T) {
	const config = `schema_version = "1.0"

[servers.shared]
allowed_devices          = "` + uuidA + `"
pinned_memory_limit      = "10G"
active_thread_percentage = "50"

[servers.shared.namespaces.quarter]
pinned_memory_limit      = "5G"
active_thread_percentage = "25"

[servers.shared.namespaces.unlimited]

[servers.shared.namespaces.above]
pinned_memory_limit      = "20G"
active_thread_percentage = "75"

[features.memacct]
audit_log = true
`
	const whole = 97887 - 638
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, twoRTX)
		file := writeFile(t, filepath.Join(t.TempDir(), "mps.toml"), config, 0o644)
		d := n.daemonWith(t, []string{"-d", "-p", "3", "-a", file})
		d.ready(t, "shared")
		tests := []struct {
			where, own string
			sms, limit int // limit in MiB; 0: none
		}{
			{"shared", "", 94, 10 << 10},
			{"shared/default", "", 94, 10 << 10},
			{"shared/quarter", "", 46, 5 << 10},
			{"shared/unlimited", "", 188, 0},
			{"shared/above", "", 140, 20 << 10},
			{"shared/default", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G", 94, 2 << 10},
			{"shared/default", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=" + uuidA + "=2G", 94, 2 << 10},
			{"shared/default", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=20G", 94, 10 << 10},
			{"shared/default", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2G,1=4G", 94, 0},
			{"shared/quarter", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10", 46, 5 << 10}, // a namespace's wins
			{"shared/unlimited", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25", 46, 0},
			{"nowhere", "", 188, -1}, // plain CUDA, all of the GPU
		}
		for _, tt := range tests {
			vars := append(d.vars(), "CUDA_VISIBLE_DEVICES=0", "CUDA_MPS_PIPE_DIRECTORY="+filepath.Join(d.pipe, tt.where), "X="+tt.own)
			if tt.own != "" {
				vars = append(vars, tt.own)
			}
			left := whole - serverMiB
			if tt.limit > 0 {
				left = tt.limit
			}
			if tt.limit < 0 && n.shown(t).Servers == nil {
				left = whole
			}
			out, _ := n.job(t, "devices info", vars...)
			for _, want := range []string{fmt.Sprintf(" MiB, %d multiprocessors: ok", tt.sms),
				fmt.Sprintf("info %d MiB free of %d MiB: ok", left-64-2*tt.sms, whole)} {
				if !strings.Contains(out, want) {
					t.Errorf("%s %s: want %q:\n%s", tt.where, tt.own, want, out)
				}
			}
		}
	})
}

// TestV3Clients: who is where, terminated by PID, and refused to be left alone.
func TestV3Clients(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, twoRTX)
		d := n.daemonWith(t, []string{"-p", "3", "-d"})
		d.rows(t, [2]string{"server create training --allowed-devices=" + uuidB, ""})
		d.ready(t, "training")
		d.rows(t, [2]string{"namespace create batch --server=training", ""})
		in := func(where string) *running {
			r := n.start(t, "context until eof", append(d.vars(), "CUDA_MPS_PIPE_DIRECTORY="+filepath.Join(d.pipe, where))...)
			r.line("context on device 0: ok")
			return r
		}
		a, b, c := in("training"), in("training/batch"), in("")
		command := filepath.Join(n.Dir, "bin/simjob") + " context until eof"
		d.rows(t, [][2]string{
			{"client list --server=training --format=csv,noheader", fmt.Sprintf("%d,training,1,default,%s\n%d,training,1,batch,%s",
				a.cmd.Process.Pid, command, b.cmd.Process.Pid, command)},
			{fmt.Sprintf("client list --server=uid_%d --format=csv,noheader", os.Geteuid()), // the way of v2's clients
				fmt.Sprintf("%d,uid_%d,0,default,%s", c.cmd.Process.Pid, os.Geteuid(), command)},
			{fmt.Sprintf("client get %d maws-ns", b.cmd.Process.Pid), "batch"},
			{fmt.Sprintf("client get %d server", b.cmd.Process.Pid), "training"},
			{fmt.Sprintf("client get %d cmd", b.cmd.Process.Pid), command},
			{"namespace delete batch --server=training", "1: Namespace 'batch' has active clients"},
			{"server delete training", "1: Server 'training' has active clients"},
			{fmt.Sprintf("client terminate %d", b.cmd.Process.Pid), ""},
		}...)
		if got := b.line("until eof"); !strings.HasPrefix(got, "until eof: error 810 ") {
			t.Errorf("the terminated client says %q", got)
		}
		d.rows(t, [2]string{"server delete training --force", ""})
		n.eventually(t, "gone", func(shown) bool { _, rc := d.v3(t, "server get training pid"); return rc == 1 })
		// Whoever points there now runs without MPS and without limits.
		out, code := n.job(t, "info", append(d.vars(), "CUDA_MPS_PIPE_DIRECTORY="+filepath.Join(d.pipe, "training"))...)
		if code != 0 || !strings.Contains(out, "info ") {
			t.Errorf("a client of a deleted server: %d, %s", code, out)
		}
	})
}

// TestAbsentDevice: it is accepted, the server dies and disappears, and its
// clients run without MPS (Dynamo guide).
func TestAbsentDevice(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, twoRTX)
		d := n.daemonWith(t, []string{"-p", "3", "-d"})
		d.rows(t, [2]string{"server create lost --allowed-devices=GPU-cccc0000-0000-4000-8000-000000000000", ""})
		n.eventually(t, "gone", func(shown) bool { out, _ := d.v3(t, "server list --format=csv,noheader"); return out == "" })
		log, err := os.ReadFile(filepath.Join(d.pipe, "lost/server.log"))
		if err != nil || !strings.Contains(string(log), "no CUDA-capable device is detected") {
			t.Errorf("server.log: %v, %q", err, log)
		}
		wantJob(t, n, "context", "context on device 0: ok", 0, append(d.vars(), "CUDA_MPS_PIPE_DIRECTORY="+filepath.Join(d.pipe, "lost"))...)
	})
}

// TestV3Accounts: a server is its account's; root too is refused. A multi-user
// daemon serves all.
func TestV3Accounts(t *testing.T) {
	needRoot(t)
	n := New(t, "615.71.09", "RTXPRO6000")
	reachable := filepath.Dir(publicCopy(t, filepath.Join(n.Dir, "bin/nvidia-cuda-mps-server"))) // by the account too
	d := n.daemonWith(t, []string{"-d", "-p", "3"}, "PATH="+reachable)
	if err := os.Chmod(d.pipe, 0o755); err != nil {
		t.Fatal(err)
	}
	d.rows(t, [2]string{"server create theirs --uid=1000", ""})
	if got := uidOf(t, serverOf(d.ready(t, "theirs"))); got != 1000 {
		t.Errorf("the server runs as %d", got)
	}
	out, code := n.job(t, "context", append(d.vars(), "CUDA_MPS_PIPE_DIRECTORY="+filepath.Join(d.pipe, "theirs"))...)
	if code != 1 || !strings.HasPrefix(out, "init: error 800 CUDA_ERROR_NOT_PERMITTED") {
		t.Errorf("root on another's server: %d, %q, want 800", code, out)
	}
	multi := n.daemonWith(t, []string{"-d", "-p", "3", "-m"})
	multi.rows(t, [][2]string{{"server create theirs --uid=1000", "1: In multiuser mode only --uid=0 is allowed"}, {"server create all --uid=0", ""}}...)
	multi.ready(t, "all")
	wantJob(t, n, "context", "context on device 0: ok", 0, append(multi.vars(), "CUDA_MPS_PIPE_DIRECTORY="+filepath.Join(multi.pipe, "all"))...)
}

// TestV3Foreground: with -f it ends when its standard input does, and its
// servers with it. The variable wins over -p.
func TestV3Foreground(t *testing.T) {
	n := New(t, "615.71.09", "RTXPRO6000")
	for name, vars := range map[string][]string{"-p 3": nil, "-p 2": {"CUDA_MPS_PROTOCOL_VERSION=3"}} {
		d := daemon{n, shortDir(t)}
		cmd := exec.Command(filepath.Join(n.Dir, "bin/nvidia-cuda-mps-control"), append(strings.Fields(name), "-f")...)
		cmd.Env = append(append(clean(), d.vars()...), vars...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		n.eventually(t, "it listens", func(shown) bool { _, rc := d.v3(t, "server list"); return rc == 0 })
		d.rows(t, [2]string{"server create one", ""})
		pid := serverOf(d.ready(t, "one"))
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // that it comes is what is held
		n.eventually(t, "the server is gone", func(shown) bool { return gone(pid) })
	}
	// v2 does not (measured up to 555, and unchanged by the documentation).
	d := n.daemonWith(t, []string{"-d", "-p", "2"})
	if got, rc := d.v3(t, "server list"); got != `Unknown command "server"` || rc != 0 {
		t.Errorf("a v2 daemon of R615: %q, rc %d", got, rc)
	}
	if _, rc := d.v3(t, "-q"); rc != 0 {
		t.Errorf("-q: rc %d", rc)
	}
}

// TestV3ConfigurationErrors: any other key is an error, and nothing is left.
func TestV3ConfigurationErrors(t *testing.T) {
	n := New(t, "615.71.09", "RTXPRO6000")
	for text, want := range map[string]string{
		"[servers.a]\nmemory = \"1G\"":                     "line 2: memory: there is no such setting",
		"[servers.a]\npinned_memory_limit = 10":            "line 2: pinned_memory_limit: it is a string",
		"[servers.a.namespaces.b]\nuid = \"1\"":            "line 2: uid: there is no such setting",
		"[servers.A]":                                      "line 1: A: a name has 1 to 64 lower-case letters, digits and underscores",
		"[server.a]":                                       "line 1: server: there is no such key",
		"[servers.a]\nactive_thread_percentage = \"101\"":  "line 2: active_thread_percentage: an active thread percentage is 1 to 100",
		"[servers.a":                                       "line 1: a . or ] belongs here",
		"[features.memacct]\nenabled = true\naudit = true": "line 3: audit: there is no such key of a feature",
		"schema_version = \"1.0\"\n[servers.a]\nclient_priority = \"2\"\n": "line 3: client_priority: a client priority is 0 or 1",
	} {
		d := daemon{n, shortDir(t)}
		file := writeFile(t, filepath.Join(t.TempDir(), "c.toml"), text, 0o644)
		cmd := exec.Command(filepath.Join(n.Dir, "bin/nvidia-cuda-mps-control"), "-d", "-p", "3", "-a", file)
		cmd.Env = append(clean(), d.vars()...)
		out, _ := cmd.CombinedOutput() // the code is looked at
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if d := cmp.Diff("Configuration error: "+want, lines[len(lines)-1]); d != "" || cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("%q: rc %d (-want +got):\n%s", text, cmd.ProcessState.ExitCode(), d)
		}
		n.eventually(t, "no server", func(s shown) bool { return len(s.Servers) == 0 })
	}
}
