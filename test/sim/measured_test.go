package sim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// What MPS did on an H200 with driver 580.159.04 (docs/hardware/H200-580.159.04, by
// trial), and what the simulation keeps of older drivers, which were not run on a GPU.

const measured, unmeasured = "580.159.04", "550.163.01"

// onDrivers runs a test with the measured driver and an older one.
func onDrivers(t *testing.T, test func(t *testing.T, n *Node, d daemon, measures bool)) {
	for _, driver := range []string{measured, unmeasured} {
		t.Run(driver, func(t *testing.T) {
			legs(t, func(t *testing.T, n *Node) {
				n.make(t, strings.Replace(oneH200, "590.48.01", driver, 1))
				test(t, n, n.daemon(t), driver == measured)
			})
		})
	}
}

// logged is what the servers wrote.
func (d daemon) logged(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(d.pipe, "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestMeasuredMemory: a server and contexts (T5, T6). They are facts of the GPU, so
// they hold for all drivers; 2 MiB are a page.
func TestMeasuredMemory(t *testing.T) {
	onDrivers(t, func(t *testing.T, n *Node, d daemon, _ bool) {
		for percentage, want := range map[string]int{"100": 518, "50": 276, "25": 146, "10": 74} {
			j := n.start(t, "context until eof", append(d.vars(), "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="+percentage)...)
			j.line("context on device 0: ok")
			for _, p := range n.shown(t).Processes {
				if p.Kind == "MPS server" && p.Memory != 66 {
					t.Errorf("the server has %d MiB, want 66", p.Memory)
				}
				if p.PID == j.cmd.Process.Pid && (p.Memory < want-2 || p.Memory > want+2) {
					t.Errorf("a context of %s %%: %d MiB, want %d", percentage, p.Memory, want)
				}
			}
			j.end()
		}
	})
}

// TestMeasuredReserve: CUDA shows 143,771 - 616 MiB (T2).
func TestMeasuredReserve(t *testing.T) {
	onDrivers(t, func(t *testing.T, n *Node, _ daemon, measures bool) {
		want := map[bool]int{true: 143155, false: 143771 - 700}[measures]
		if out, _ := n.job(t, "info"); !strings.Contains(out, fmt.Sprintf("of %d MiB: ok", want)) {
			t.Errorf("%q, want %d", out, want)
		}
	})
}

// TestMeasuredManaged: a limit covers managed memory (T7), and nothing else does.
func TestMeasuredManaged(t *testing.T) {
	onDrivers(t, func(t *testing.T, n *Node, d daemon, measures bool) {
		d.control(t, "set_default_device_pinned_mem_limit 0 2G")
		want := map[bool]string{true: "managed 3072 MiB: error 2 ", false: "managed 3072 MiB: ok"}[measures]
		if out, _ := n.job(t, "managed 3072", d.vars()...); !strings.Contains(out, want) {
			t.Errorf("under 2 GiB: %q, want %q", out, want)
		}
		for name, vars := range map[string][]string{"1 GiB": d.vars(), "no daemon": nil} {
			mib := map[bool]string{true: "1024", false: "300000"}[vars != nil]
			if out, _ := n.job(t, "managed "+mib, vars...); !strings.Contains(out, "managed "+mib+" MiB: ok") {
				t.Errorf("%s: %q", name, out)
			}
		}
	})
}

// TestMeasuredUUID: a default limit by UUID binds, and is read back by UUID alone (T2).
func TestMeasuredUUID(t *testing.T) {
	onDrivers(t, func(t *testing.T, n *Node, d daemon, measures bool) {
		d.control(t, "set_default_device_pinned_mem_limit "+uuidA+" 2G")
		read := d.control(t, "get_default_device_pinned_mem_limit "+uuidA)
		if want := map[bool]string{true: "2G"}[measures]; read != want {
			t.Errorf("by UUID it reads %q, want %q", read, want)
		}
		if read := d.control(t, "get_default_device_pinned_mem_limit 0"); read != "" {
			t.Errorf("by ordinal it reads %q", read)
		}
		want := map[bool]string{true: "alloc 3072 MiB: error 2 ", false: "alloc 3072 MiB: ok"}[measures]
		if out, _ := n.job(t, "alloc 3072", d.vars()...); !strings.Contains(out, want) {
			t.Errorf("%q, want %q", out, want)
		}
	})
}

// TestMeasuredDeath: a server ends with its killed control daemon, and its clients
// meet 806 (T17). Before 580 it lives on.
func TestMeasuredDeath(t *testing.T) {
	onDrivers(t, func(t *testing.T, n *Node, d daemon, measures bool) {
		j := n.start(t, "context until eof", d.vars()...)
		j.line("context on device 0: ok")
		server, err := strconv.Atoi(d.control(t, "get_server_list"))
		if err != nil {
			t.Fatal(err)
		}
		its, err := os.FindProcess(server) // the PID may soon be another's
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = its.Kill() })
		text, err := os.ReadFile(filepath.Join(d.pipe, "nvidia-cuda-mps-control.pid"))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(string(text))
		if err != nil || syscall.Kill(pid, syscall.SIGKILL) != nil {
			t.Fatalf("the control daemon is %q: %v", text, err)
		}
		if measures {
			j.line("until eof: error 806 ")
			n.eventually(t, "the server ends", func(s shown) bool { return len(s.Servers) == 0 })
		} else if code := j.end(); code != 0 {
			t.Errorf("the client ends with %d: %q", code, j.said())
		}
	})
}

// TestMeasuredFaults: an assertion ends its own client; what else is fatal reaches all,
// and the log does not name the culprit (T8).
func TestMeasuredFaults(t *testing.T) {
	onDrivers(t, func(t *testing.T, n *Node, d daemon, measures bool) {
		for kind, code := range map[string]int{"assert": 710, "illegal_address": 700, "launch_failed": 719} {
			neighbour := n.start(t, "go on context until eof", d.vars()...) // it stays: the log names who is there
			neighbour.line("context on device 0: ok")
			culprit := n.start(t, "go on fault "+kind+" until eof", d.vars()...)
			culprit.line(fmt.Sprintf("fault %s: error %d ", kind, code))
			server := d.control(t, "get_server_list")
			if alone := measures && kind == "assert"; alone {
				if got := d.control(t, "get_server_status "+server); got != "ACTIVE" || neighbour.end() != 0 {
					t.Errorf("after an assertion the server is %s and the neighbour says %q", got, neighbour.said())
				}
			} else {
				neighbour.line(fmt.Sprintf("until eof: error %d ", code))
				d.waitLogged(t, map[bool]string{
					true:  fmt.Sprintf("error trigging process %d will be torn down", culprit.cmd.Process.Pid),
					false: fmt.Sprintf("Client %d encountered it", culprit.cmd.Process.Pid),
				}[measures])
			}
			names := fmt.Sprintf("Client {PID: %d, Context: 1} encountered a fatal GPU error.", neighbour.cmd.Process.Pid)
			if named := strings.Contains(d.logged(t), names); named != (measures && kind == "illegal_address") {
				t.Errorf("%s: the log names the neighbour: %v\n%s", kind, named, d.logged(t))
			}
			culprit.end()
			neighbour.end()
			n.eventually(t, "the server recovers", func(s shown) bool { return len(s.Servers) == 1 && s.Servers[0].State == "ACTIVE" })
		}
	})
}

// waitLogged waits until a server wrote that.
func (d daemon) waitLogged(t *testing.T, words string) {
	t.Helper()
	d.n.eventually(t, "the log has "+words, func(shown) bool { return strings.Contains(d.logged(t), words) })
}

// TestMeasuredKill: a busy client that is killed leaves Xid 31 and 700 (T10, N6).
func TestMeasuredKill(t *testing.T) {
	onDrivers(t, func(t *testing.T, n *Node, d daemon, measures bool) {
		neighbour := n.start(t, "context until eof", d.vars()...)
		neighbour.line("context on device 0: ok")
		busy := n.start(t, "load 10 60s until eof", d.vars()...)
		n.eventually(t, "it is busy", func(s shown) bool { return s.GPUs[0].Load > 0 })
		_ = busy.cmd.Process.Kill()
		neighbour.line(map[bool]string{true: "until eof: error 700 ", false: "until eof: error 719 "}[measures])
		if got, want := n.shown(t).GPUs[0].XID, map[bool]int{true: 31}[measures]; got != want {
			t.Errorf("Xid %d, want %d", got, want)
		}
	})
}

// TestMeasuredNamespace: a client in a PID namespace of its own with the node's /proc
// is refused by its own library (T3); without MPS nothing is known of it.
func TestMeasuredNamespace(t *testing.T) {
	needRoot(t)
	onDrivers(t, func(t *testing.T, n *Node, d daemon, measures bool) {
		words := func(vars ...string) string {
			cmd := exec.Command("unshare", "--pid", "--fork", "--kill-child", filepath.Join(n.Dir, "bin/simjob"), "context")
			cmd.Env = append(append(clean(), n.Vars()...), vars...)
			out, _ := cmd.CombinedOutput()
			return string(out)
		}
		want := map[bool]string{true: "init: error 304 CUDA_ERROR_OPERATING_SYSTEM", false: "context on device 0: ok"}[measures]
		if out := words(d.vars()...); !strings.Contains(out, want) {
			t.Errorf("%q, want %q", out, want)
		}
		if out := words(); !strings.Contains(out, "context on device 0: ok") {
			t.Errorf("without MPS: %q", out)
		}
	})
}
