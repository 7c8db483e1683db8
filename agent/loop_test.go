package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/test/alone"
	"github.com/gpuslot/gpuslot/test/linger"
	"github.com/gpuslot/gpuslot/test/proctree"
)

func TestMain(m *testing.M) {
	alone.Enter() // the agent finds jobs in /proc
	goleak.VerifyTestMain(m)
}

// fakeManager remembers what it was told, and when it last heard of life.
type fakeManager struct {
	mu   sync.Mutex
	said []string
	ping time.Time
}

func (m *fakeManager) say(s string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, s)
	return nil
}

func (m *fakeManager) Ready() error          { return m.say("ready") }
func (m *fakeManager) Reloading() error      { return m.say("reloading") }
func (m *fakeManager) Status(t string) error { return m.say(t) }

func (m *fakeManager) Alive() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ping = time.Now()
	return nil
}

func (m *fakeManager) has(s string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.said, func(t string) bool { return strings.Contains(t, s) })
}

func (m *fakeManager) silentFor() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.ping)
}

// background runs do in the bubble until the test ends.
func background(t *testing.T, do func(context.Context)) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); do(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

func (ta *testAgent) rounds() uint64 { return ta.view.Load().rounds }

func TestLoopPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta := newTestAgent(t, 1, "[health]\ninterval = \"15s\"\n")
		background(t, func(ctx context.Context) { ta.loop(ctx, nil) })
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if n := ta.rounds(); n != 5 {
			t.Errorf("%d rounds after a minute, want the first and four", n)
		}
		// A crowd of refused jobs drives it at its own pace, not at theirs.
		for range 100 {
			nudge(ta.wake)
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if n := ta.rounds(); n < 6 || n > 5+10/3+1 {
			t.Errorf("%d rounds after 10 s of refusals", n-5)
		}
	})
}

// TestLoopSeesDaemons: a daemon that ends or goes on is seen within one beat.
func TestLoopSeesDaemons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta := newTestAgent(t, 2, "[health]\ninterval = \"10m\"\n")
		background(t, func(ctx context.Context) { ta.loop(ctx, nil) })
		soon := func() uint64 {
			before := ta.rounds()
			time.Sleep(2 * tick)
			synctest.Wait()
			return ta.rounds() - before
		}
		if n := soon(); n != 0 {
			t.Errorf("%d rounds without a cause", n)
		}
		ta.daemons.kill(uuid(0), false)
		if n := soon(); n != 1 || ta.reason(0) != "" {
			t.Errorf("%d rounds after a daemon ended, then %q", n, ta.reason(0))
		}
		freeze := func(frozen bool) { ta.daemons.change(uuid(1), func(d *fakeDaemon) { d.frozen = frozen }) }
		freeze(true)
		if n := soon(); n != 1 {
			t.Errorf("%d rounds after a daemon was suspended", n)
		}
		freeze(false)
		if n := soon(); n != 1 || ta.reason(1) != "" {
			t.Errorf("%d rounds after it goes on, then %q", n, ta.reason(1))
		}
	})
}

// TestProofsStayFresh: with nothing wrong no job is ever refused for an old
// proof, and with a loop that has stopped every job is.
func TestProofsStayFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta := newTestAgent(t, 1, "")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); ta.loop(ctx, nil) }()
		for range 20 {
			time.Sleep(17 * time.Second)
			if why := ta.reason(0); why != "" {
				t.Fatalf("closed: %s", why)
			}
		}
		cancel()
		<-done
		time.Sleep(61 * time.Second)
		if why := ta.reason(0); !strings.Contains(why, "1m0s is the most") {
			t.Errorf("reason = %q", why)
		}
		r := ta.refuse(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 4096)
		if r.Code != api.CodeClosed {
			t.Errorf("refusal = %+v", r)
		}
	})
}

func TestWedgedLoopStopsPinging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta := newTestAgent(t, 1, "")
		m := &fakeManager{}
		ta.heart.manager = m
		background(t, ta.heart.ping)
		background(t, func(ctx context.Context) { ta.loop(ctx, nil) })
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if d := m.silentFor(); d > 2*tick {
			t.Fatalf("no ping for %s though the loop is well", d)
		}
		stuck := make(chan struct{})
		ta.hw.mu.Lock()
		ta.hw.stuck = stuck
		ta.hw.mu.Unlock()
		time.Sleep(wedgedAfter + 30*time.Second)
		synctest.Wait()
		if d := m.silentFor(); d < 10*time.Second {
			t.Errorf("still pinging %s after the loop has stopped", d)
		}
		close(stuck)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if d := m.silentFor(); d > 2*tick {
			t.Errorf("no ping for %s though the loop goes on", d)
		}
	})
}

func TestLoopReloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta := newTestAgent(t, 1, "")
		m := &fakeManager{}
		ta.heart.manager = m
		reload := make(chan os.Signal, 1)
		background(t, func(ctx context.Context) { ta.loop(ctx, reload) })
		ta.writeConfig("[sharing]\nshares = 2\n")
		reload <- syscall.SIGHUP
		synctest.Wait()
		if g := ta.view.Load().plan.GPUs[0]; g.Shares != 2 {
			t.Errorf("shares = %d", g.Shares)
		}
		if !m.has("reloading") || !m.has("ready") || !m.has("1 GPUs, 1 shared, 1 of them open") {
			t.Errorf("the service manager heard %q", m.said)
		}
		ta.writeConfig("[sharing]\nshares = -2\n")
		reload <- syscall.SIGHUP
		synctest.Wait()
		if !m.has("the last configuration was rejected") {
			t.Errorf("the service manager heard %q", m.said)
		}
	})
}

// TestConfirmBatches: a burst of admissions is one question to the startd, an
// open question is asked again.
func TestConfirmBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta := newTestAgent(t, 1, "")
		background(t, ta.startds.Run)
		synctest.Wait()
		before := ta.startd.questions()
		var ads []condor.Slot
		for i := range 7 {
			s := ta.proc.starter(100+i, fmt.Sprintf("slot1_%d", i+1))
			ta.grant(s, 1000, "alice", uuid(0), 4096)
			ads = append(ads, slotAd(s.Slot, strings.TrimPrefix(s.Slot, "slot")+".0", "alice", 4096, uuid(0)))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := ta.startd.questions() - before; n != 1 {
			t.Errorf("%d questions for a burst", n)
		}
		ta.startd.set(ads, nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for _, r := range ta.jobs.Running() {
			if !r.Confirmed {
				t.Errorf("%s is not confirmed", r.Starter.Slot)
			}
		}
		if n := ta.startd.questions() - before; n != 2 {
			t.Errorf("%d questions", n)
		}
	})
}

// TestRun is the whole agent over fakes, with its real socket: from the start
// to a clean end that leaves the control daemons running. Its threads are watched. What jobs from before it have is
// known when it is ready.
func TestRun(t *testing.T) {
	ta := bareTestAgent(t, 2, "")
	ta.proc.starter(100, "slot1_1")
	ta.startd.set([]condor.Slot{slotAd("slot1_1", "7.0", "alice", 4096, uuid(0))}, nil)
	ta.proc.Add(proctree.Process{PID: os.Getpid(), Parent: 1, Comm: "gpuslot", UID: uint32(os.Getuid())})
	m := &fakeManager{}
	o := ta.options()
	o.Manager = m
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o) }()
	socket := filepath.Join(ta.dir, "r/agent.sock")
	// The socket answers before the service manager is told.
	for !m.has("ready") {
		select {
		case err := <-done:
			t.Fatalf("it ended before it was ready: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	reply, err := api.Call(ctx, socket, api.Request{Op: api.OpStatus})
	if err != nil || len(reply.Status.GPUs) != 2 || !reply.Status.GPUs[1].Accept {
		t.Errorf("status: %+v, %v", reply.Status, err)
	} else if on := reply.Status.GPUs[0].Jobs; len(on) != 1 || on[0].ID != "7.0" {
		t.Errorf("jobs from before: %+v", on)
	}
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("socket: %v, %v", info, err)
	}
	file, closed := linger.Connection(t), make(chan struct{})
	go func() { defer close(closed); _ = unix.Close(file) }()
	select {
	case <-closed:
	case <-time.After(5 * time.Minute):
		t.Error("a thread waits for the end of a file")
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("end: %v", err)
	}
	if len(ta.daemons.running) != 2 {
		t.Error("the control daemons ended with the agent")
	}
}

// TestRunStartsAgain: the agent asks the pool for what waits, and its MIG layouts hear that. It ends all its parts
// when a fresh process can use the driver again, which this one cannot.
func TestRunStartsAgain(t *testing.T) {
	ta, _ := migAgent(t, "7g.40gb", "repartition = \"suggest\"\n")
	ta.startd.demand = condor.Demand{At: time.Now(), Nodes: 7}
	heard, reload, healed := make(chan struct{}), make(chan os.Signal, 1), atomic.Bool{}
	ta.startd.heard = heard
	o := ta.options()
	o.Manager, o.Reload = &fakeManager{}, reload
	o.DriverMismatch = func(context.Context) (string, error) {
		if healed.Load() {
			return "", nil
		}
		return "the module has another version", nil
	}
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), o) }()
	late := time.After(2 * time.Minute)
	select {
	case <-heard:
	case <-late:
		t.Fatal("the pool is not asked")
	}
	for nodes := 0; nodes != 7; {
		select {
		case reload <- syscall.SIGHUP: // a round
		case <-late:
			t.Fatal("the answer is not heard")
		}
		reply, err := api.Call(t.Context(), filepath.Join(ta.dir, "r/agent.sock"), api.Request{Op: api.OpStatus})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range reply.Status.Repartition {
			nodes = r.Nodes
		}
	}
	healed.Store(true)
	select {
	case reload <- syscall.SIGHUP:
	default: // another round is due
	}
	select {
	case err := <-done:
		if !errors.Is(err, ErrStartAgain) {
			t.Errorf("it ends with %v", err)
		}
	case <-late:
		t.Fatal("it goes on")
	}
}

// TestRunWaitsForConfiguration: under systemd a broken file is logged once, every request
// is answered with its error, nothing is started, and a changed file ends the wait.
func TestRunWaitsForConfiguration(t *testing.T) {
	for name, text := range map[string]string{
		"unknown key": "[sharing]\nsharez = 1\n", "impossible plan": "[gpu.\"" + string(uuid(0)) + "\"]\nshares = 40\n",
	} {
		for _, end := range []string{"file", "SIGHUP", "SIGTERM"} {
			t.Run(name+", "+end, func(t *testing.T) {
				ta := bareTestAgent(t, 1, text)
				o, manager, reload, log := ta.options(), &fakeManager{}, make(chan os.Signal, 1), &bytes.Buffer{}
				l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(ta.dir, "a.sock"), Net: "unix"})
				if err != nil {
					t.Fatal(err)
				}
				o.Listener, o.Manager, o.Reload = l, manager, reload
				o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- Run(ctx, o) }()
				for _, req := range []api.Request{{Op: api.OpStatus}, {Op: api.OpMonitor}} {
					call, cancel := context.WithTimeout(ctx, 2*time.Minute)
					_, err = api.Call(call, l.Addr().String(), req)
					cancel()
					if err == nil || !strings.Contains(err.Error(), "all GPUs of this node are closed until") || !strings.Contains(err.Error(), "share") {
						t.Errorf("%s is answered %v", req.Op, err)
					}
				}
				if !manager.has("ready") || !manager.has("are closed until") {
					t.Errorf("the service manager was told %q", manager.said)
				}
				if len(ta.daemons.running) != 0 || len(ta.hw.modes) != 0 {
					t.Error("control daemons run, or compute modes were set")
				}
				want := ErrStartAgain
				switch end {
				case "file":
					ta.writeConfig("# mended\n")
				case "SIGHUP":
					reload <- syscall.SIGHUP
				case "SIGTERM":
					want = nil
					cancel()
				}
				select {
				case err = <-done:
				case <-time.After(2 * time.Minute):
					t.Fatal("it waits on")
				}
				if !errors.Is(err, want) {
					t.Errorf("it ends with %v", err)
				}
				if n := strings.Count(log.String(), "all GPUs are closed until"); n != 1 {
					t.Errorf("it was logged %d times:\n%s", n, log)
				}
			})
		}
	}
}

func TestRunWithBrokenConfiguration(t *testing.T) {
	for name, text := range map[string]string{
		"unknown key": "[sharing]\nsharez = 1\n", "impossible plan": "[gpu.\"" + string(uuid(0)) + "\"]\nshares = 40\n",
	} {
		t.Run(name, func(t *testing.T) {
			ta := bareTestAgent(t, 1, text)
			if err := Run(t.Context(), ta.options()); err == nil || !strings.Contains(err.Error(), "shares") && !strings.Contains(err.Error(), "sharez") {
				t.Errorf("error = %v", err)
			}
			if len(ta.daemons.running) != 0 {
				t.Error("control daemons run")
			}
		})
	}
}
