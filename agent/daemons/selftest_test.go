package daemons

import (
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// TestLimitReadBack: the log of a server says it exactly, as long as it is of this daemon with this limit.
func TestLimitReadBack(t *testing.T) {
	w := mps.Wanted{GPU: uuid(0), Limit: 8500}
	daemon := process.ID{PID: 7}
	logged := State{Wanted: w, Checked: mps.Checked{PID: 7}, SelfTest: SelfTest{exact: true, of: subject{daemon: daemon, wanted: w}}}
	const rounded = "8192 to 9215 MiB: the control daemon prints whole GiB"
	for name, c := range map[string]struct {
		bend func(*State)
		want string
	}{
		"logged":          {func(*State) {}, "exact, by the log of an MPS server"},
		"not logged":      {func(s *State) { s.SelfTest.exact = false }, rounded},
		"another daemon":  {func(s *State) { s.Checked.PID = 8 }, rounded},
		"another limit":   {func(s *State) { s.Wanted.Limit = 8501 }, rounded},
		"less than a GiB": {func(s *State) { s.Wanted.Limit = 1000 }, "exact, by the reply of the control daemon"},
	} {
		s := logged
		c.bend(&s)
		if got := s.LimitReadBack(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestLimited: what the server of a self-test logged says whether it has the wanted limit.
func TestLimited(t *testing.T) {
	w := mps.Wanted{GPU: uuid(0), Limit: 8192}
	server := process.ID{PID: 70}
	right := logged{server: server, of: w, limit: gpu.Known(gpu.Bytes(8192 << 20))}
	for name, c := range map[string]struct {
		bend           func(*logged)
		exact, differs bool
	}{
		"as wanted":       {func(*logged) {}, true, false},
		"another limit":   {func(l *logged) { l.limit.Value++ }, false, true},
		"another server":  {func(l *logged) { l.server.PID++; l.limit.Value++ }, false, false},
		"wanted before":   {func(l *logged) { l.of.Limit++; l.limit.Value++ }, false, false},
		"nothing is said": {func(l *logged) { l.limit.Known = false }, false, false},
	} {
		l := right
		c.bend(&l)
		if got := (SelfTest{of: subject{wanted: w}}).limited(l, server); got.exact != c.exact || (got.differs != "") != c.differs {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestSelfTestCloses: the server that all jobs of the GPU need closes it, where a server can start at all.
func TestSelfTestCloses(t *testing.T) {
	daemon := process.ID{PID: 7}
	failed := SelfTest{of: subject{daemon: daemon}, stays: true, failure: "no memory"}
	for name, c := range map[string]struct {
		bend func(*SelfTest)
		want string
	}{
		"it fails":            {func(*SelfTest) {}, "no MPS server starts for uid 0"},
		"it is well":          {func(t *SelfTest) { t.failure = "" }, ""},
		"jobs have their own": {func(t *SelfTest) { t.stays = false }, ""},
		"there is no GPU":     {func(t *SelfTest) { t.noDevice = true }, ""},
		"another daemon's":    {func(t *SelfTest) { t.of.daemon.PID++ }, ""},
		"another limit":       {func(t *SelfTest) { t.failure, t.differs = "", "a limit of 1" }, "a limit of 1: see who sets limits there"},
		"of another daemon":   {func(t *SelfTest) { t.failure, t.differs = "", "a limit of 1"; t.of.daemon.PID++ }, ""},
	} {
		test := failed
		c.bend(&test)
		if got := test.closed(daemon); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestWhyNoServerCame: the log's last reason counts, then how the server ended; after some looks without a word that is
// the reason.
func TestWhyNoServerCame(t *testing.T) {
	for name, c := range map[string]struct {
		looks    int
		lines    []string
		want     string
		noDevice bool
	}{
		"nothing yet":      {mostLooks - 1, []string{"x"}, "", false},
		"nothing for long": {mostLooks, nil, "none came, and the daemon's log gives no reason", false},
		"a signal":         {1, []string{logStamp + "Server 337 exited with status 0"}, "it ended without a reason, as by a signal", false},
		"a status":         {1, []string{logStamp + "Server 337 exited with status 1"}, "it ended with status 1 and gave no reason", false},
		"a reason": {1, []string{logStamp + "Failed to start : invalid argument", logStamp + "Server 337 exited with status 1",
			logStamp + "Server encountered a fatal exception. Shutting down"}, "invalid argument", false},
		"no GPU": {1, []string{logStamp + "Failed to start : no CUDA-capable device is detected"}, "no CUDA-capable device is detected", true},
	} {
		got := SelfTest{looks: c.looks}.after(c.lines)
		if !strings.HasPrefix(got.failure, c.want) || got.over != (c.want != "") || got.noDevice != c.noDevice || (got.failure == "") != (c.want == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestSelfTestThatCannotBeMade: a server that cannot be asked for is a failure, and so is a log that cannot be read
// after some looks. A server that does not end is none.
func TestSelfTestThatCannotBeMade(t *testing.T) {
	for what, c := range map[string]struct {
		comes mps.ServerStatus
		round int // after how many it closes; 0 if it does not
	}{
		"start": {mps.Active, 1}, "log": {"", mostLooks + 1}, "end": {mps.Active, 0},
	} {
		n := newNode(t, 1)
		n.Own, n.comes = 5, c.comes
		if what == "end" {
			n.Own = 0
		}
		n.fails[what] = errNo
		for i := range mostLooks + 2 {
			n.round()
			s := n.now[uuid(0)]
			if closed := s.Closed() != ""; closed != (c.round > 0 && i+1 >= c.round) || s.SelfTest.over != (i+1 >= c.round && (c.round > 0 || i > 0)) {
				t.Errorf("%s, round %d: closed %t, %+v", what, i, closed, s.SelfTest)
			}
		}
	}
}

// TestServerThatIsWell: it ends what was known of a failure, whoever asked for it.
func TestServerThatIsWell(t *testing.T) {
	failed := SelfTest{failure: "no memory", noDevice: true, tries: 3}
	at := time.Unix(10000, 0)
	for name, c := range map[string]struct {
		server mps.Server
		well   bool
	}{
		"active":                   {mps.Server{Status: mps.Active}, true},
		"in FAULT":                 {mps.Server{Status: mps.Faulted, ThreadPercentage: "100.0"}, false},
		"of which no state is had": {mps.Server{ThreadPercentage: "100.0"}, true},
		"that does not answer":     {mps.Server{}, false},
	} {
		want := failed
		if c.well {
			want = SelfTest{well: at}
		}
		if got := failed.seen(mps.Checked{At: at, States: []mps.Server{c.server}}); got != want {
			t.Errorf("a server %s: %+v", name, got)
		}
	}
}
