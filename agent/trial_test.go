package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// fakeServers are the servers of fakeDaemons: one that is asked for comes up, or
// ends and leaves its words in the log.
type fakeServers struct {
	*fakeDaemons
	mu sync.Mutex
	// comes is the state of a server that is asked for; empty if it fails.
	comes  mps.ServerStatus
	log    []string
	logErr error
	asked  []string
	starts uint64
	trims  int
	// stubborn servers do not end.
	stubborn bool
}

func (f *fakeServers) StartServer(_ context.Context, u gpu.UUID, uid uint32) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf("start %d", uid))
	f.starts++
	if f.comes != "" {
		f.change(u, func(d *fakeDaemon) {
			d.servers = []mps.Server{{ID: process.ID{PID: 70, Started: f.starts}, UID: uid, Status: f.comes, ThreadPercentage: "100.0"}}
		})
	}
	return nil
}

func (f *fakeServers) ShutdownServer(_ context.Context, u gpu.UUID, server int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf("shutdown %d", server))
	if !f.stubborn {
		f.change(u, func(d *fakeDaemon) { d.servers = nil })
	}
	return nil
}

func (f *fakeServers) Log(context.Context, gpu.UUID, time.Time) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, "log")
	return f.log, f.logErr
}

func (f *fakeServers) TrimLog(gpu.UUID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trims++
	return nil
}

// since is what was asked for since the last call.
func (f *fakeServers) since() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := strings.Join(f.asked, ", ")
	f.asked = nil
	return out
}

// newTrialAgent has servers, which the others have not; it has not applied yet.
func newTrialAgent(t *testing.T, text string) (*testAgent, *fakeServers) {
	ta := newTestAgent(t, 1, text)
	f := &fakeServers{fakeDaemons: ta.daemons}
	ta.keeper.Servers, ta.keeper.Logs = f, f
	ta.own, ta.keeper.Own = 0, 0
	return ta, f
}

const (
	logStamp   = "[2026-02-06 09:34:36.380 Other  337] "
	exitedLine = "[2026-02-06 09:34:36.390 Control   261] Server 337 exited with status 1"
)

func (ta *testAgent) serverText() string { return ta.status().GPUs[0].Server }

// wants a round to ask for something and then to say something.
func (ta *testAgent) round(f *fakeServers, asked, says string) {
	ta.t.Helper()
	ta.apply(false)
	if got := f.since(); got != asked {
		ta.t.Errorf("asked for %q, want %q", got, asked)
	}
	if got := ta.serverText(); !strings.Contains(got, says) {
		ta.t.Errorf("status says %q, want %q", got, says)
	}
}

// TestTrialOfAServer: root's server comes and makes way.
func TestTrialOfAServer(t *testing.T) {
	ta, f := newTrialAgent(t, "")
	f.comes = mps.Initializing
	ta.round(f, "start 0", "one is being tried")
	if d := ta.view.Load().until(); d > tick {
		t.Errorf("the next look is after %v", d)
	}
	ta.round(f, "", "INITIALIZING")
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.servers[0].Status = mps.Active })
	ta.round(f, "log, shutdown 70", "ACTIVE")
	ta.round(f, "", "starts with the first job (last proven at ")
	if f.trims == 0 {
		t.Error("nobody looks after the size of logs")
	}
	for range 5 {
		ta.round(f, "", "last proven at ")
	}
	if d := ta.view.Load().until(); d <= tick {
		t.Errorf("the loop hurries for ever: %v", d)
	}
	// Another process is tried, too, and the last proof is remembered meanwhile.
	ta.daemons.kill(uuid(0), true)
	ta.round(f, "start 0", "one is being tried")
	if why := ta.reason(0); why != "" {
		t.Error(why)
	}
}

// TestTrialFails: once per process, and only the common account's closes the GPU.
func TestTrialFails(t *testing.T) {
	const common = "[sharing]\ntenancy = \"common:nobody\"\n"
	broken := logStamp + "Failed to start : invalid argument"
	for _, tt := range []struct {
		name, config string
		log          []string
		logErr       error
		looks        int
		says, closes string
	}{
		{name: "no GPU", log: []string{"noise", logStamp + "Failed to start : no CUDA-capable device is detected", exitedLine}, looks: 1, says: "not provable without a GPU (no CUDA-capable device is detected)"},
		{name: "no GPU, common", config: common, log: []string{logStamp + "Failed to start : no CUDA-capable device is detected"}, looks: 1, says: "not provable without a GPU ("},
		{name: "broken", log: []string{broken}, looks: 1, says: "does not start (tried at "},
		{name: "broken, common", config: common, log: []string{broken}, looks: 1, says: ": invalid argument", closes: "no MPS server starts for uid 65534, under which all its jobs run: invalid argument"},
		{name: "no word", log: []string{exitedLine}, looks: 1, says: "ended with status 1 and gave no reason"},
		{name: "nothing", looks: 5, says: "none came"},
		{name: "no log", logErr: errors.New("no journal"), looks: 5, says: "why is not known: no journal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ta, f := newTrialAgent(t, tt.config)
			f.log, f.logErr = tt.log, tt.logErr
			start := "start 0"
			if tt.config != "" {
				start = "start 65534"
			}
			ta.round(f, start, "being tried")
			for i := range tt.looks {
				says := "being tried"
				if i == tt.looks-1 {
					says = tt.says
				}
				ta.round(f, "log", says)
			}
			for range 3 {
				ta.round(f, "", tt.says)
			}
			if why := ta.reason(0); (why == "") != (tt.closes == "") || !strings.Contains(why, tt.closes) {
				t.Errorf("closed for %q, want %q", why, tt.closes)
			}
			// A restart is the operator's word that the cause is gone.
			f.comes, f.log = mps.Active, nil
			ta.daemons.kill(uuid(0), true)
			ta.round(f, start, "being tried")
			ta.apply(false)
			if why := ta.reason(0); why != "" {
				t.Errorf("closed after a restart: %s", why)
			}
		})
	}
}

// TestTrialStays: the common account's server is there for its first job.
func TestTrialStays(t *testing.T) {
	ta, f := newTrialAgent(t, "[sharing]\ntenancy = \"common:nobody\"\n")
	f.comes = mps.Active
	ta.round(f, "start 65534", "being tried")
	ta.round(f, "log", "ACTIVE (pid 70")
	for range 3 {
		ta.round(f, "", "ACTIVE (pid 70")
	}
}

// TestTrialReadsTheExactLimit: the control daemon prints whole GiB. The log of a driver 580 has
// the bytes: a limit that is another closes the GPU, whatever the daemon prints, if the daemon was
// restarted and logs it again.
func TestTrialReadsTheExactLimit(t *testing.T) {
	for name, c := range map[string]struct{ line, proof, closes string }{
		"as wanted":       {"set to 0x7e0000000 bytes", "exact, by the log of an MPS server", ""},
		"600 MiB more":    {"set to 0x805800000 bytes", "31744 to 32767 MiB", "process 70, logged a limit of 34452013056 bytes, want 33822867456"},
		"an older driver": {"", "31744 to 32767 MiB: the control daemon prints whole GiB", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ta, f := newTrialAgent(t, "")
			f.comes = mps.Active
			if c.line != "" {
				f.log = []string{"[2026-04-28 18:20:41.986 Server    70] Device pinned memory limit for device 0 " + c.line}
			}
			ta.round(f, "start 0", "being tried")
			ta.round(f, "log, shutdown 70", "")
			if c.closes != "" {
				if why := ta.reason(0); why != "" {
					t.Errorf("closed before it is repeated: %s", why)
				}
				ta.round(f, "start 0", "being tried")
				ta.round(f, "log, shutdown 70", "ACTIVE")
			}
			if why := ta.reason(0); (why == "") != (c.closes == "") || !strings.Contains(why, c.closes) {
				t.Errorf("closed for %q, want %q", why, c.closes)
			}
			if got := ta.status().GPUs[0].LimitReadBack; !strings.Contains(got, c.proof) {
				t.Errorf("the limit is %d MiB: %s, want %s", ta.status().GPUs[0].LimitMiB, got, c.proof)
			}
		})
	}
}

// TestTrialServerStaysOn: one that does not end is asked once; it makes way for
// another account's all the same.
func TestTrialServerStaysOn(t *testing.T) {
	ta, f := newTrialAgent(t, "")
	f.comes, f.stubborn = mps.Active, true
	ta.round(f, "start 0", "being tried")
	ta.round(f, "log, shutdown 70", "ACTIVE")
	for range 3 {
		ta.round(f, "", "ACTIVE")
	}
}

// TestServerProvesItself: one that comes later opens the GPU again.
func TestServerProvesItself(t *testing.T) {
	ta, f := newTrialAgent(t, "[sharing]\ntenancy = \"common:nobody\"\n")
	f.log = []string{logStamp + "Failed to start : invalid argument"}
	ta.round(f, "start 65534", "being tried")
	ta.round(f, "log", "invalid argument")
	if ta.reason(0) == "" {
		t.Error("open without a server")
	}
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.servers = serverIn(mps.Active) })
	ta.round(f, "log", "ACTIVE")
	if why := ta.reason(0); why != "" {
		t.Error(why)
	}
}

// TestTrialWaits: nothing is asked for beside jobs, or where a server is; the log of a server
// is read once.
func TestTrialWaits(t *testing.T) {
	ta, f := newTrialAgent(t, "")
	s := ta.proc.starter(100, "slot1_1")
	ta.grant(s, 1000, "alice", uuid(0), 4096)
	ta.round(f, "", "no server yet (starts with the first job)")
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.servers = serverIn(mps.Active, 7) })
	ta.round(f, "log", "ACTIVE")
	ta.proc.End(100)
	ta.sweeper.now()
	ta.round(f, "", "ACTIVE")
	ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.servers = nil })
	ta.round(f, "", "starts with the first job (last proven at ")
}

// TestTrialMeetsAJob: nothing is ended beside a job that came meanwhile.
func TestTrialMeetsAJob(t *testing.T) {
	ta, f := newTrialAgent(t, "")
	f.comes = mps.Active
	ta.round(f, "start 0", "")
	ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 4096)
	ta.round(f, "log", "ACTIVE (pid 70")
	ta.proc.End(100)
	ta.sweeper.now()
	ta.round(f, "shutdown 70", "ACTIVE")
	ta.round(f, "", "starts with the first job (last proven at ")
}

func serverIn(status mps.ServerStatus, clients ...int) []mps.Server {
	return []mps.Server{{ID: process.ID{PID: 50}, Status: status, Clients: clients}}
}
