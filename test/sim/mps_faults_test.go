package sim

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// What the simulation punishes. The daemon is either; server and clients are
// simulated.

// statusOf waits until the daemon says so of a server; 535 cannot say it.
func (b *bench) statusOf(server int, want string) {
	b.t.Helper()
	if b.leg.branch > 0 {
		b.until("the server is "+want, func() bool { return b.status(server) == want })
	}
}

// refusedWith waits until a newcomer is refused: the server notices a death
// when somebody looks.
func (b *bench) refusedWith(want string) {
	b.t.Helper()
	if got := b.guest(0).line(); got != want {
		b.t.Errorf("a newcomer: %q, want %q", got, want)
	}
}

// TestFault: a fatal fault reaches every client, newcomers get
// 807, and the server is ACTIVE again when all of them are gone (P15).
func TestFault(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim").start()
		culprit, line := b.attached(0)
		neighbour, _ := b.attached(0)
		server := serverOf(line)
		culprit.do("fault")
		for _, g := range []*guest{culprit, neighbour} {
			if got := g.do("error"); got != "700" {
				t.Errorf("client %d: error %s, want 700", g.pid(), got)
			}
		}
		b.statusOf(server, "FAULT")
		b.refusedWith("error 807")
		culprit.leave()
		b.statusOf(server, "FAULT")
		b.refusedWith("error 807")
		b.until("the server's log names the culprit", func() bool {
			return strings.Contains(b.output(), fmt.Sprintf("handling a fatal GPU error. Client %d ", culprit.pid()))
		})
		neighbour.leave()
		b.statusOf(server, "ACTIVE")
		if _, line := b.attached(0); serverOf(line) != server {
			t.Errorf("after recovery: %q, want server %d", line, server)
		}
	})
}

// TestKillBusyClient: killing a busy client harms its neighbours;
// terminate_client first does not, and an idle one may go as it likes.
func TestKillBusyClient(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim").start()
		neighbour, line := b.attached(0)
		server := serverOf(line)
		kill := func(prepare ...string) (int, *guest) {
			g, _ := b.attached(0)
			for _, word := range prepare {
				g.do(word)
			}
			return g.pid(), g
		}
		_, idle := kill("busy", "idle")
		idle.kill()
		pid, busy := kill("busy")
		if got := b.ask(fmt.Sprintf("terminate_client %d %d", server, pid)); got != "0" {
			t.Errorf("terminate_client: %q, want 0", got)
		}
		if got := busy.do("error"); got != "810" {
			t.Errorf("the terminated client's error: %s, want 810", got)
		}
		busy.kill()
		if got := neighbour.do("error"); got != "0" {
			t.Fatalf("after an idle and a terminated one the neighbour's error is %s, want none", got)
		}
		b.statusOf(server, "ACTIVE")
		_, busy = kill("busy")
		busy.kill()
		if got := neighbour.do("error"); got != "719" {
			t.Errorf("after a busy one the neighbour's error is %s, want 719", got)
		}
		b.statusOf(server, "FAULT")
		b.refusedWith("error 807")
		neighbour.kill()
		b.statusOf(server, "ACTIVE")
	})
}

// TestServerKilled: its clients lose it at once (SGL PR 2101), the next client
// gets a new one.
func TestServerKilled(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim").start()
		client, line := b.attached(0)
		_ = syscall.Kill(serverOf(line), syscall.SIGKILL)
		b.until("the daemon sees the end", func() bool { return b.ask("get_server_list") == "" })
		if got := client.do("error"); got != "806" {
			t.Errorf("the client's error: %s, want 806", got)
		}
		if _, next := b.attached(0); serverOf(next) == serverOf(line) {
			t.Errorf("the next client: %q", next)
		}
	})
}

// TestMaxClients: 48 clients up to CUDA 13.0, 60 from 13.1: then 808.
func TestMaxClients(t *testing.T) {
	onSimulated(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim").start()
		var last *guest
		for range 48 {
			last, _ = b.attached(0)
		}
		b.refusedWith("error 808")
		last.do("close")
		b.until("the place is free", func() bool { return strings.HasPrefix(b.guest(0).line(), "attached ") })
	})
}

// TestDeadDaemonIsAbsent: stale sockets mean plain CUDA; clients
// of a dead daemon go on with their server.
func TestDeadDaemonIsAbsent(t *testing.T) {
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim").start()
		client, line := b.attached(0)
		_ = syscall.Kill(b.pid(), syscall.SIGKILL)
		b.exit()
		if got := b.guest(0).line(); got != "absent" {
			t.Errorf("a newcomer: %q, want absent", got)
		}
		if got := client.do("error"); got != "0" || gone(serverOf(line)) {
			t.Errorf("the client's error: %s, its server gone: %v", got, gone(serverOf(line)))
		}
	})
}

// TestUnreachablePipe: an account that cannot reach the socket runs without MPS.
func TestUnreachablePipe(t *testing.T) {
	needRoot(t)
	onEachLeg(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim").start()
		if err := os.Chmod(b.pipe, 0o700); err != nil {
			t.Fatal(err)
		}
		if got := b.guest(1000).line(); got != "absent" {
			t.Errorf("the client: %q, want absent", got)
		}
	})
}

// TestExclusiveGPU: a process without MPS holds an exclusive GPU: no server (P6).
func TestExclusiveGPU(t *testing.T) {
	needRoot(t)
	onSimulated(t, func(t *testing.T, l leg) {
		b := newBench(t, l, "sim")
		n := b.node
		n.Poke(t, "set", "0", "compute_mode", "3")
		job := n.start(t, "context until eof", "CUDA_MPS_PIPE_DIRECTORY=/nonexistent")
		job.line("context")
		b.start()
		if got := b.guest(0).line(); got != "error 805" {
			t.Errorf("a client: %q, want 805", got)
		}
		b.until("the log tells", func() bool { // the client may know before
			return strings.Contains(b.output(), "Failed to start : CUDA-capable device(s) is/are busy or unavailable")
		})
		job.end()
		if _, line := b.attached(0); serverOf(line) == 0 {
			t.Error("with the GPU free there is no server")
		}
	})
}

// TestExclusiveMIGDevice: with MIG on the compute mode is that of the MIG
// device (nvml.h), for the server too; the GPU's own says nothing any more.
func TestExclusiveMIGDevice(t *testing.T) {
	needRoot(t)
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, `{"gpus": [{"model": "A100-40"}]}`)
		n.simgpu(t, "mode", "0", "prohibited")
		n.simgpu(t, "mig", "0", "on")
		n.simgpu(t, "mig", "0", "create", "3g.20gb@4", "1g.5gb@0")
		devices := n.shown(t).GPUs[0].Devices
		d := n.daemon(t, "CUDA_VISIBLE_DEVICES="+devices[0].UUID)
		wantJob(t, n, "context", "context on device 0: ok", 0, d.vars()...)
		d.control(t, "quit")
		n.eventually(t, "no server", func(s shown) bool { return len(s.Servers) == 0 })

		n.simgpu(t, "mode", "0", "exclusive-process")
		plain := n.start(t, "context until eof", "CUDA_VISIBLE_DEVICES="+devices[0].UUID, "CUDA_MPS_PIPE_DIRECTORY=/nonexistent")
		plain.line("context on device 0: ok")
		held := n.daemon(t, "CUDA_VISIBLE_DEVICES="+devices[0].UUID)
		if out, code := n.job(t, "context", held.vars()...); code != 1 || !strings.HasPrefix(out, "init: error 805 ") {
			t.Errorf("behind a held MIG device: %d, %q; want 805: the server finds it taken", code, out)
		}
		free := n.daemon(t, "CUDA_VISIBLE_DEVICES="+devices[1].UUID)
		wantJob(t, n, "context", "context on device 0: ok", 0, free.vars()...)
	})
}
