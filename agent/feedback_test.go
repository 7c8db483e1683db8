package agent

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/metrics"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/proctree"
)

func TestFeedbackIsThatOfTheWorst(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(1760000000+s, 0) }
	type step struct {
		op api.Op
		ok bool
		at int64
	}
	for name, c := range map[string]struct {
		steps []step
		want  *metrics.Feedback
	}{
		"nobody asked":              {nil, nil},
		"one program":               {[]step{{api.OpMonitor, true, 1}, {api.OpMonitor, true, 5}}, &metrics.Feedback{OK: true, At: at(5)}},
		"one of two is quiet":       {[]step{{api.OpUsage, true, 1}, {api.OpMonitor, true, 9}}, &metrics.Feedback{OK: true, At: at(1)}},
		"the last did not work":     {[]step{{api.OpUsage, true, 1}, {api.OpMonitor, true, 2}, {api.OpUsage, false, 3}}, &metrics.Feedback{At: at(1)}},
		"one never worked":          {[]step{{api.OpUsage, false, 1}, {api.OpMonitor, true, 2}}, &metrics.Feedback{}},
		"it works after a failure":  {[]step{{api.OpUsage, false, 1}, {api.OpUsage, true, 2}}, &metrics.Feedback{OK: true, At: at(2)}},
		"the older one comes later": {[]step{{api.OpMonitor, true, 4}, {api.OpUsage, true, 6}}, &metrics.Feedback{OK: true, At: at(4)}},
	} {
		var f feedback
		for _, s := range c.steps {
			f.note(s.op, s.ok, at(s.at))
		}
		got := f.last()
		if (got == nil) != (c.want == nil) || got != nil && (got.OK != c.want.OK || !got.At.Equal(c.want.At)) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// converseOnce asks the server from a process that begins below the startd; stays
// says whether it waits for the reply.
func converseOnce(t *testing.T, s *server, req api.Request, stays bool) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	caller, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = caller.Close() }()
	conn, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	req.Version = api.Version
	line, err := json.Marshal(req)
	if err == nil {
		_, err = caller.Write(append(line, 10))
	}
	if err != nil {
		t.Fatal(err)
	}
	if !stays {
		_ = caller.Close()
	}
	s.converse(context.Background(), conn, starter.Peer{PID: os.Getpid(), UID: s.proc.Own}, func() {})
}

func TestHandOver(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	s := newServer(ta.log, ta.proc.fs(), ta.Agent)
	ta.proc.Add(proctree.Process{PID: os.Getpid(), Parent: 1, Comm: "gpuslot-condor", Cgroup: "/user.slice"})
	converseOnce(t, s, api.Request{Op: api.OpMonitor}, true)
	if f := ta.snapshot().Feedback; f != nil {
		t.Fatalf("root asked by hand, which feeds no startd: %+v", f)
	}
	ta.proc.Add(proctree.Process{PID: 900, Parent: 1, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd"})
	ta.proc.Add(proctree.Process{PID: os.Getpid(), Parent: 900, Comm: "gpuslot-condor", UID: uint32(os.Getuid())})
	converseOnce(t, s, api.Request{Op: api.OpHere}, true)
	if f := ta.snapshot().Feedback; f != nil {
		t.Fatalf("another question is no feedback: %+v", f)
	}
	for _, op := range []api.Op{api.OpMonitor, api.OpUsage} {
		converseOnce(t, s, api.Request{Op: op}, true)
		took := ta.snapshot().Feedback
		if took == nil || !took.OK || took.At.IsZero() {
			t.Fatalf("%s: it took the reply: %+v", op, took)
		}
		converseOnce(t, s, api.Request{Op: op}, false)
		if f := ta.snapshot().Feedback; f.OK || !f.At.Equal(took.At) {
			t.Fatalf("%s: it left without the reply: %+v, before %+v", op, f, took)
		}
		converseOnce(t, s, api.Request{Op: op}, true)
	}
}

func TestWhatDaemonsTell(t *testing.T) {
	server := func(percent string, clients ...int) mps.Server {
		return mps.Server{Status: mps.Active, ThreadPercentage: percent, Clients: clients}
	}
	for name, c := range map[string]struct {
		servers []mps.Server
		want    gpu.Measured[float64]
	}{
		"no server":                 {nil, gpu.Known(0.0)},
		"two":                       {[]mps.Server{server("50.0", 11, 12), server("50.0", 13)}, gpu.Known(3.0)},
		"one that does not answer":  {[]mps.Server{server("50.0", 11), server("")}, gpu.Measured[float64]{}},
		"a server without a client": {[]mps.Server{server("50.0")}, gpu.Known(0.0)},
	} {
		if got := clientsOf(mps.Proof{States: c.servers}); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	for text, want := range map[string]float64{"25.0": 0.25, "100.0": 1, "0.1": 0.001} {
		if got := threadRatio(mps.Proof{ThreadPercentage: text}); !got.Known || strconv.FormatFloat(got.Value, 'g', 4, 64) != strconv.FormatFloat(want, 'g', 4, 64) {
			t.Errorf("%s: %+v", text, got)
		}
	}
	if got := threadRatio(mps.Proof{}); got.Known {
		t.Errorf("nothing was read back: %+v", got)
	}
}

// The metrics have what the control daemon told last, and nothing of one that is
// not proven.
func TestMPSInMetrics(t *testing.T) {
	ta := newTestAgent(t, 2, "")
	for i, g := range ta.snapshot().GPUs {
		if g.Device.GPU != uuid(i) || g.Device.MIG != "" || g.Clients != gpu.Known(0.0) || !g.ThreadRatio.Known || g.ThreadRatio.Value <= 0 || g.ThreadRatio.Value > 1 {
			t.Errorf("%+v", g)
		}
	}
	v := *ta.view.Load()
	v.guards = nil
	ta.view.Store(&v)
	for _, g := range ta.snapshot().GPUs {
		if g.Clients.Known || g.ThreadRatio.Known {
			t.Errorf("not proven: %+v", g)
		}
	}
}
