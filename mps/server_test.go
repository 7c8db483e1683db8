package mps

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestServers: one run of the command line tells everything of a server that
// was there before, and a new one costs one more.
func TestServers(t *testing.T) {
	onServed(t, func(s *served) {
		if got := s.servers(); len(got) != 0 {
			t.Fatalf("servers %+v before the first client", got)
		}
		server := s.server()
		if server.UID != uint32(os.Geteuid()) || server.Status != s.status(Active) || server.Started == 0 ||
			server.Limit != "4G" || server.ThreadPercentage != "50.0" || len(server.Clients) != 0 {
			s.t.Errorf("the server: %+v", server)
		}
		clients := []int{s.guest().pid(), s.guest().pid()}
		slices.Sort(clients)
		runs := s.counted()
		checked, err := s.daemon.Check(s.t.Context(), s.wanted)
		if err != nil {
			s.t.Fatal(err)
		}
		slices.Sort(checked.States[0].Clients)
		server.Clients = clients
		if diff := cmp.Diff([]Server{server}, checked.States); diff != "" || checked.Clients() != 2 || len(checked.Stale) != 0 {
			s.t.Errorf("proof %+v (-want +got):\n%s", checked, diff)
		}
		if n := runs(); n != 1 {
			s.t.Errorf("a round with a known server takes %d runs of the command line, want 1", n)
		}
		if got, err := s.daemon.Clients(s.t.Context(), server.PID); err != nil || len(got) != 2 {
			s.t.Errorf("clients %v, %v", got, err)
		}
		_, err = s.daemon.Clients(s.t.Context(), 1)
		wantFault(s.t, err, NoServer, "no server 1")
	})
}

// TestServerComesAndGoes: each costs one more run.
func TestServerComesAndGoes(t *testing.T) {
	onServed(t, func(s *served) {
		first := s.server()
		if err := s.daemon.ShutdownServer(s.t.Context(), first.PID); err != nil {
			s.t.Fatal(err)
		}
		eventually(s.t, "the server is gone", func() bool { return len(s.servers()) == 0 })
		s.guest()
		runs := s.counted()
		next := s.servers()
		if len(next) != 1 || next[0].PID == first.PID || !next[0].Answers() || runs() != 2 {
			s.t.Errorf("servers %+v in %d runs", next, runs())
		}
		wantFault(s.t, s.daemon.ShutdownServer(s.t.Context(), first.PID), NoServer)
	})
}

// TestSameSet: the order in which a daemon lists its servers says nothing.
func TestSameSet(t *testing.T) {
	for _, tt := range []struct {
		a, b []int
		same bool
	}{{[]int{2, 1}, []int{1, 2}, true}, {[]int{1, 2}, []int{2, 1}, true}, {[]int{1, 2}, []int{1, 3}, false}, {nil, []int{}, true}} {
		if sameSet(tt.a, tt.b) != tt.same {
			t.Errorf("%v and %v: %t", tt.a, tt.b, !tt.same)
		}
	}
}

// TestStaleServers: limits act on later servers; the proof says which have
// others, and SetServers mends them for later clients.
func TestStaleServers(t *testing.T) {
	onServed(t, func(s *served) {
		server := s.server()
		w := s.wanted
		w.Limit, w.ThreadPercentage = 8192, 25
		checked, err := s.daemon.Set(s.t.Context(), w)
		if err != nil || !slices.Equal(checked.Stale, []int{server.PID}) {
			s.t.Fatalf("stale %v, %v; want %d", checked.Stale, err, server.PID)
		}
		want := []Difference{{SettingLimit, "4G", "8G"}, {SettingPercentage, "50.0", "25.0"}}
		if diff := cmp.Diff(want, checked.States[0].Differs(w)); diff != "" {
			s.t.Errorf("differences (-want +got):\n%s", diff)
		}
		checked, err = s.daemon.SetServers(s.t.Context(), w, checked.Stale...)
		if err != nil || len(checked.Stale) != 0 || checked.States[0].Limit != "8G" {
			s.t.Errorf("after SetServers: %+v, %v", checked, err)
		}
	})
}

// TestForeignChange: what somebody else set is named, and set back.
func TestForeignChange(t *testing.T) {
	onServed(t, func(s *served) {
		exchange(s.t, s.daemon, "set_default_device_pinned_mem_limit 0 30G")
		exchange(s.t, s.daemon, "set_default_active_thread_percentage 90")
		_, err := s.daemon.Check(s.t.Context(), s.wanted)
		want := []Difference{{SettingLimit, "30G", "4G"}, {SettingPercentage, "90.0", "50.0"}}
		if diff := cmp.Diff(want, DifferencesOf(err)); diff != "" || FaultOf(err) != WrongLimits {
			s.t.Errorf("%v: differences (-want +got):\n%s", err, diff)
		}
		if _, err := s.daemon.Set(s.t.Context(), s.wanted); err != nil || DifferencesOf(err) != nil {
			s.t.Error(err)
		}
	})
}

// TestFaultStatus: a fatal fault is seen in the status, as long as clients are left.
func TestFaultStatus(t *testing.T) {
	onServed(t, func(s *served) {
		g := s.guest()
		g.do("fault")
		eventually(s.t, "the server is in FAULT", func() bool { return s.servers()[0].Status == s.status(Faulted) })
		_ = g.cmd.Process.Kill()
		eventually(s.t, "the server is ACTIVE", func() bool { return s.servers()[0].Status == s.status(Active) })
	})
}

// TestPulse: the death of a server and a suspended one are seen without the
// command line, and so is the daemon's.
func TestPulse(t *testing.T) {
	onServed(t, func(s *served) {
		server := s.server()
		checked, err := s.daemon.Check(s.t.Context(), s.wanted)
		if err != nil {
			s.t.Fatal(err)
		}
		if p := s.daemon.QuickCheck(checked); !p.OK() {
			s.t.Errorf("pulse %+v", p)
		}
		runs := s.counted()
		signal(s.t, server.ID, syscall.SIGSTOP)
		if p := s.daemon.QuickCheck(checked); p.OK() || len(p.Suspended) != 1 || len(p.Died) != 0 || p.Err != nil {
			s.t.Errorf("with a suspended server: %+v", p)
		}
		signal(s.t, server.ID, syscall.SIGKILL)
		if p := s.daemon.QuickCheck(checked); p.OK() || len(p.Died) != 1 || p.Died[0].PID != server.PID || p.Err != nil {
			s.t.Errorf("with a dead server: %+v", p)
		}
		signal(s.t, checked.Process(), syscall.SIGKILL)
		wantFault(s.t, s.daemon.QuickCheck(checked).Err, NotRunning)
		if n := runs(); n != 0 {
			s.t.Errorf("the pulse took %d runs of the command line", n)
		}
	})
}

// TestPulseKnowsOtherProcesses: a PID alone may be given to another.
func TestPulseKnowsOtherProcesses(t *testing.T) {
	onServed(t, func(s *served) {
		s.server()
		checked, err := s.daemon.Check(s.t.Context(), s.wanted)
		if err != nil {
			s.t.Fatal(err)
		}
		checked.States[0].Started++
		if p := s.daemon.QuickCheck(checked); len(p.Died) != 1 {
			s.t.Errorf("pulse %+v, want one death", p)
		}
	})
}

// TestStartServerIsRefused: the daemon's words reach the operator.
func TestStartServerIsRefused(t *testing.T) {
	onServed(t, func(s *served) {
		s.daemon.program = writeProgram(s.t, s.runner.Logs+"/cli", `#!/bin/sh
while read line; do case $line in
start_server*) echo "The MPS control daemon is shutting down" ;;
eof-*) echo "Unknown command \"$line\"" ;;
esac; done
`)
		wantFault(s.t, s.daemon.StartServer(s.t.Context(), 0), Refused, "shutting down")
	})
}

func TestParseServer(t *testing.T) {
	const p = 77
	limits := []string{"50.0", "4G", "1\n2"}
	tests := []struct {
		name    string
		replies []string
		want    Server
		ok      bool
	}{
		{"active", append([]string{"ACTIVE"}, limits...), Server{Status: Active, Limit: "4G", ThreadPercentage: "50.0", Clients: []int{1, 2}}, true},
		{"fault", append([]string{"FAULT"}, limits...), Server{Status: Faulted, Limit: "4G", ThreadPercentage: "50.0", Clients: []int{1, 2}}, true},
		{"535", append([]string{`Unknown command "get_server_status"`}, limits...), Server{Limit: "4G", ThreadPercentage: "50.0", Clients: []int{1, 2}}, true},
		{"a new word", append([]string{"PAUSED"}, limits...), Server{Status: Unreadable, Limit: "4G", ThreadPercentage: "50.0", Clients: []int{1, 2}}, true},
		{"starting", []string{"INITIALIZING", "", "", ""}, Server{Status: Initializing}, true},
		{"no limit", []string{"ACTIVE", "100.0", "", ""}, Server{Status: Active, ThreadPercentage: "100.0"}, true},
		{"gone", []string{"Server 77 not found", "Server 77 not found", "Server 77 not found", "Server 77 not found"}, Server{}, false},
		{"gone meanwhile", []string{"ACTIVE", "50.0", "4G", "Server 77 not found"}, Server{}, false},
	}
	for _, tt := range tests {
		tt.want.PID = p
		got, ok := parseServer(p, tt.replies)
		if diff := cmp.Diff(tt.want, got); ok != tt.ok || ok && diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tt.name, ok, diff)
		}
	}
}

// FuzzParseServer: nothing is made up, neither a state nor a client.
func FuzzParseServer(f *testing.F) {
	f.Add("ACTIVE", "50.0", "4G", "1\n2")
	f.Add("INITIALIZING", "", "", "")
	f.Add(`Unknown command "get_server_status"`, "100.0", "", "0")
	f.Fuzz(func(t *testing.T, status, percentage, limit, clients string) {
		s, ok := parseServer(5, []string{status, percentage, limit, clients})
		if !ok {
			return
		}
		if s.Status != StatusUnknown && s.Status != Unreadable && strings.TrimSpace(status) != string(s.Status) {
			t.Fatalf("%q became %s", status, s.Status)
		}
		for _, pid := range s.Clients {
			if pid < 1 || !strings.Contains(clients, strconv.Itoa(pid)) {
				t.Fatalf("%q has no client %d", clients, pid)
			}
		}
		if !s.Answers() && (s.Limit != "" || s.Clients != nil) {
			t.Fatalf("%+v does not answer and has limits", s)
		}
	})
}

// TestServerOfAnotherAccount: whose it is tells the kernel.
func TestServerOfAnotherAccount(t *testing.T) {
	needsRoot(t)
	onEachDriver(t, func(t *testing.T, r Processes) {
		writeProgram(t, filepath.Join(r.ServerPath, "nvidia-cuda-mps-server"), fakeServer)
		d := started(t, r)
		if err := d.StartServer(t.Context(), 4711); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the server is listed as that account's", func() bool {
			all, err := d.Servers(t.Context())
			return err == nil && len(all) == 1 && all[0].UID == 4711
		})
	})
}
