package sim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// daemon is a simulated control daemon with its pipe directory.
type daemon struct {
	n    *Node
	pipe string
}

// daemon starts nvidia-cuda-mps-control in the foreground with variables; it
// and its server die with the test.
func (n *Node) daemon(t *testing.T, vars ...string) daemon {
	t.Helper()
	return n.daemonWith(t, []string{"-d"}, vars...)
}

// daemonWith starts it with these flags, which put it into the background.
func (n *Node) daemonWith(t *testing.T, flags []string, vars ...string) daemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "mps") // short: a pipe directory has at most 87 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := daemon{n, dir}
	cmd := exec.Command(filepath.Join(n.Dir, "bin/nvidia-cuda-mps-control"), flags...)
	cmd.Env = append(append(clean(), d.vars()...), vars...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("start the control daemon: %v: %s", err, out)
	}
	t.Cleanup(func() { d.control(t, "quit -t 1") })
	return d
}

func (d daemon) vars() []string {
	return append(d.n.Vars(), "CUDA_MPS_PIPE_DIRECTORY="+d.pipe, "CUDA_MPS_LOG_DIRECTORY="+d.pipe,
		"PATH="+filepath.Join(d.n.Dir, "bin")+":"+os.Getenv("PATH"))
}

// control gives the daemon one command and returns its reply.
func (d daemon) control(t *testing.T, command string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(d.n.Dir, "bin/nvidia-cuda-mps-control"))
	cmd.Env = append(clean(), d.vars()...)
	cmd.Stdin = strings.NewReader(command + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.HasPrefix(command, "quit") {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return strings.TrimSpace(string(out))
}

const oneT4 = `{"gpus": [{"model": "T4", "uuid": "GPU-aaaa0000-0000-4000-8000-000000000000"},
	{"model": "T4", "uuid": "GPU-bbbb0000-0000-4000-8000-000000000000"}]}`

const uuidA, uuidB = "GPU-aaaa0000-0000-4000-8000-000000000000", "GPU-bbbb0000-0000-4000-8000-000000000000"

// contextMiB is what a context takes on a T4, totalMiB what CUDA shows of one,
// serverMiB what an MPS server takes of it.
const contextMiB, totalMiB, serverMiB = 24 + 2*40, 15360 - 393, 27

// The traps of CUDA_MPS_PINNED_DEVICE_MEM_LIMIT, of a client whose daemon gives
// it 2 GiB.
func TestPinnedMemoryLimit(t *testing.T) {
	tests := []struct {
		name, list string
		want       int // MiB; 0: no limit; -1: not even a context fits
	}{
		{"a client may lower", "0=1G", 1024},
		{"and not raise", "0=4G", 2048},
		{"by UUID", uuidA + "=1G", 1024},
		{"MiB", "0=512M", 512},
		{"no unit is MiB", "0=512", 512},
		{"two letters count as one", "0=512MB", 512},
		{"kB are MiB", "0=512K", 512},
		{"small letter", "0=1g", 1024},
		{"1T is 1 MiB", "0=1T", -1},
		{"1.5G is 1 MiB", "0=1.5G", -1},
		{"a space before the unit is 1 MiB", "0=1 G", -1},
		{"zero is no wish", "0=0", 2048},
		{"the last of two counts", "0=1G,0=512M", 512},
		{"trailing comma", "0=1G,", 1024},
		{"empty", "", 2048},
		{"a GPU that is not visible removes all limits", "0=1G,1=1G", 0},
		{"in front, too", "1=1G,0=1G", 0},
		{"an unknown UUID too", "0=1G,GPU-cccc0000-0000-4000-8000-000000000000=1G", 0},
		{"the UUID of a hidden GPU too", uuidB + "=1G", 0},
		{"no equals sign", "1G", 0},
	}
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, oneT4)
		d := n.daemon(t, "CUDA_VISIBLE_DEVICES="+uuidA)
		d.control(t, "set_default_device_pinned_mem_limit 0 2G")
		check := func(name string, want int, vars ...string) {
			t.Helper()
			left := totalMiB - serverMiB
			if want > 0 {
				left = want
			}
			text, code := fmt.Sprintf("context on device 0: ok\ninfo %d MiB free of %d MiB: ok", left-contextMiB, totalMiB), 0
			if want < 0 {
				text, code = "context on device 0: error 2 CUDA_ERROR_OUT_OF_MEMORY: out of memory", 1
			}
			t.Run(name, func(t *testing.T) {
				wantJob(t, n, "info", text, code, append(d.vars(), vars...)...)
			})
		}
		check("none of its own", 2048)
		for _, tt := range tests {
			check(tt.name, tt.want, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="+tt.list)
		}
		// Nobody listens there: plain CUDA, and no limit at all.
		check("no daemon", 0, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G", "CUDA_MPS_PIPE_DIRECTORY="+t.TempDir(), "CUDA_VISIBLE_DEVICES=0")
		wantJob(t, n, "alloc 1000 alloc 1000", "context on device 0: ok\nalloc 1000 MiB: ok\n"+
			"alloc 1000 MiB: error 2 CUDA_ERROR_OUT_OF_MEMORY: out of memory", 1, d.vars()...)
	})
}

// A client may only lower its percentage, and gets whole pairs of multiprocessors.
func TestActiveThreadPercentage(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, oneT4)
		d := n.daemon(t, "CUDA_VISIBLE_DEVICES="+uuidA)
		d.control(t, "set_default_active_thread_percentage 50")
		for own, want := range map[string]int{"": 20, "25": 10, "33": 12, "80": 20, "0": 20, "150": 20, "x": 20, "1": 2} {
			out, _ := n.job(t, "devices", append(d.vars(), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="+own)...)
			if !strings.Contains(out, fmt.Sprintf(" MiB, %d multiprocessors: ok", want)) {
				t.Errorf("percentage %q: want %d multiprocessors:\n%s", own, want, out)
			}
		}
		// A kernel that wants all of the GPU gets its share.
		n.start(t, "load 100 1000s", d.vars()...)
		n.eventually(t, "half busy", func(s shown) bool { return s.GPUs[0].Load == 50 })
	})
}

// A client sees the devices of its daemon, numbered anew.
func TestDevicesBehindADaemon(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, oneT4)
		d := n.daemon(t, "CUDA_VISIBLE_DEVICES="+uuidB)
		for own, want := range map[string]string{"0": "bbbb0000", uuidB: "bbbb0000", "1": "", uuidA: "", uuidB + "," + uuidA: "bbbb0000"} {
			if got := n.devices(t, append(d.vars(), "CUDA_VISIBLE_DEVICES="+own)...); got != want {
				t.Errorf("CUDA_VISIBLE_DEVICES=%s shows %q, want %q", own, got, want)
			}
		}
		if got := n.devices(t, d.vars()...); got != "bbbb0000" {
			t.Errorf("without the variable: %q", got)
		}
	})
}

// With exclusive-process the server holds the GPU: its clients come in, a
// process past MPS does not.
func TestExclusiveProcessUnderMPS(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, oneT4)
		n.simgpu(t, "mode", "0", "exclusive-process")
		d := n.daemon(t, "CUDA_VISIBLE_DEVICES="+uuidA)
		a := n.start(t, "alloc 100 until eof", d.vars()...)
		a.line("alloc 100 MiB: ok")
		b := n.start(t, "alloc 100 until eof", d.vars()...)
		b.line("alloc 100 MiB: ok")
		wantJob(t, n, "context", "context on device 0: error 46 CUDA_ERROR_DEVICE_UNAVAILABLE: CUDA-capable device(s) is/are busy or unavailable",
			1, "CUDA_VISIBLE_DEVICES="+uuidA)
		clients := 0
		for _, p := range n.shown(t).Processes {
			if p.Kind == "MPS client" {
				clients++
			}
		}
		if clients != 2 {
			t.Errorf("%d MPS clients in the state, want 2:\n%s", clients, n.simgpu(t, "show"))
		}
	})
}

// A fatal fault of one client reaches the others of its server.
func TestFaultReachesNeighbours(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, oneT4)
		d := n.daemon(t, "CUDA_VISIBLE_DEVICES="+uuidA)
		a := n.start(t, "context until eof", d.vars()...)
		a.line("context on device 0: ok")
		const fault = ": error 700 CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"
		wantJob(t, n, "fault illegal_address", "context on device 0: ok\nfault illegal_address"+fault, 1, d.vars()...)
		if got := a.line("until eof"); got != "until eof"+fault {
			t.Errorf("the neighbour says %q", got)
		}
		if got := n.shown(t).GPUs[0].XID; got != 31 {
			t.Errorf("XID %d, want 31", got)
		}
	})
}

// simgpu mps fault: the server takes no new client until the affected ones are gone.
func TestInjectedServerFault(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, oneT4)
		d := n.daemon(t, "CUDA_VISIBLE_DEVICES="+uuidA)
		a := n.start(t, "go on context until eof", d.vars()...)
		a.line("context on device 0: ok")
		n.simgpu(t, "mps", "fault", "0")
		a.line("until eof: error 700 CUDA_ERROR_ILLEGAL_ADDRESS:")
		if s := n.shown(t).Servers; len(s) != 1 || s[0].State != "FAULT" {
			t.Errorf("the servers are %v, want one in FAULT", s)
		}
		out, code := n.job(t, "context", d.vars()...)
		if want := "init: error 807 CUDA_ERROR_MPS_SERVER_NOT_READY: "; code != 1 || !strings.HasPrefix(out, want) {
			t.Errorf("a newcomer says %q, want %q", out, want)
		}
		if code := a.end(); code != 1 {
			t.Errorf("the affected job ended with %d, want 1", code)
		}
		n.eventually(t, "ACTIVE", func(s shown) bool { return len(s.Servers) == 1 && s.Servers[0].State == "ACTIVE" })
		wantJob(t, n, "context", "context on device 0: ok", 0, d.vars()...)
	})
}

// A terminated client meets 810 at its next call; "kill -9" of it then hurts
// nobody. Without terminate_client a busy one takes its neighbours along.
func TestTerminatedAndKilledClients(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, oneT4)
		d := n.daemon(t, "CUDA_VISIBLE_DEVICES="+uuidA)
		neighbour := n.start(t, "context until eof", d.vars()...)
		neighbour.line("context on device 0: ok")
		server := d.control(t, "get_server_list")
		busy := func() *running {
			r := n.start(t, "go on exit on 810 load 60 1000s", d.vars()...)
			n.eventually(t, "60 % busy", func(s shown) bool { return s.GPUs[0].Load == 60 })
			return r
		}

		a := busy()
		d.control(t, fmt.Sprintf("terminate_client %s %d", server, a.cmd.Process.Pid))
		a.line("load 60 1000s: error 810 CUDA_ERROR_MPS_CLIENT_TERMINATED:")
		if code := a.end(); code != 1 {
			t.Errorf("the terminated job ended with %d, want 1", code)
		}

		b := busy() // the neighbour did not notice
		_ = b.cmd.Process.Kill()
		if got := neighbour.line("until eof"); !strings.HasPrefix(got, "until eof: error 719 CUDA_ERROR_LAUNCH_FAILED") {
			t.Errorf("the neighbour of a killed job says %q", got)
		}
		_ = neighbour.end()
		n.eventually(t, "free", func(s shown) bool { return s.GPUs[0].Used == serverMiB })
		wantJob(t, n, "context", "context on device 0: ok", 0, d.vars()...) // FAULT is over: they are all gone
	})
}

// A control daemon for a MIG device: its clients see that one, as device 0.
func TestMIGDeviceBehindADaemon(t *testing.T) {
	needRoot(t)
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, threeGPUs)
		n.simgpu(t, "mig", "2", "on")
		n.simgpu(t, "mig", "2", "create", "3g.20gb@4", "1g.5gb@0")
		mig := n.shown(t).GPUs[2].Devices
		d := n.daemon(t, "CUDA_VISIBLE_DEVICES="+mig[1].UUID)
		want := "devices 1: ok\n  0 " + strings.TrimPrefix(mig[1].UUID, "MIG-") + " NVIDIA A100-SXM4-40GB MIG 1g.5gb, 4861 MiB, 14 multiprocessors: ok"
		wantJob(t, n, "devices", want, 0, d.vars()...)
		wantJob(t, n, "devices", want, 0, append(d.vars(), "CUDA_VISIBLE_DEVICES="+mig[1].UUID)...)
		if got := n.devices(t, append(d.vars(), "CUDA_VISIBLE_DEVICES="+mig[0].UUID)...); got != "" {
			t.Errorf("the other instance of the GPU is seen: %q", got)
		}
		wantJob(t, n, "alloc 3000", "context on device 0: error 2 CUDA_ERROR_OUT_OF_MEMORY: out of memory", 1,
			append(d.vars(), "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="+mig[1].UUID+"=64M")...)
	})
}

// TestServerLogsItsLimit: from driver 580 on a server logs its limit to the byte (bottlerocket-kernel-kit
// PR 415), where the control daemon prints whole GiB.
func TestServerLogsItsLimit(t *testing.T) {
	for driver, logs := range map[string]bool{"550.163.01": false, "580.126.09": true, "615.71.09": true} {
		legs(t, func(t *testing.T, n *Node) {
			n.make(t, strings.Replace(oneH200, "590.48.01", driver, 1))
			d := n.daemonWith(t, []string{"-d"})
			d.control(t, "set_default_device_pinned_mem_limit 0 5119M")
			if out, code := n.job(t, "context", d.vars()...); code != 0 {
				t.Fatalf("%d, %s", code, out)
			}
			if got := d.control(t, "get_default_device_pinned_mem_limit 0"); got != "4G" {
				t.Errorf("the daemon prints %q", got)
			}
			server, err := strconv.Atoi(d.control(t, "get_server_list"))
			if err != nil {
				t.Fatal(err)
			}
			var text []byte
			var limit gpu.Bytes
			var found bool
			for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // it writes when it likes
				if text, err = os.ReadFile(filepath.Join(d.pipe, "server.log")); err != nil {
					t.Fatal(err)
				}
				limit, found = mps.LoggedLimit(strings.Split(string(text), "\n"), server)
				if found || !logs || time.Now().After(end) {
					break
				}
			}
			if found != logs || found && limit.MiB() != 5119 {
				t.Errorf("%s: %v, %v in\n%s", driver, limit, found, text)
			}
		})
	}
}
