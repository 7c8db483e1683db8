package mps

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/gpu/process"
)

func serving(pid int, status ServerStatus, clients ...int) Server {
	return Server{ID: process.ID{PID: pid, Started: 1}, Status: status, ThreadPercentage: "50.0", Clients: clients}
}

func TestEndingStep(t *testing.T) {
	begin := time.Unix(1000, 0)
	rules := EndRules{Again: time.Second, Deadline: 5 * time.Second}
	server9, server8 := process.ID{PID: 9, Started: 1}, process.ID{PID: 8, Started: 1}
	mute := Server{ID: process.ID{PID: 9, Started: 1}}
	tests := []struct {
		name    string
		pids    []int
		servers []Server
		after   time.Duration
		book    []Termination
		want    EndStep
	}{
		{"no clients", []int{3, 1, 3}, []Server{serving(9, Active, 2)}, 0, nil, EndStep{Free: []int{1, 3}}},
		{"no servers", []int{1}, nil, 0, nil, EndStep{Free: []int{1}}},
		{"the youngest first", []int{1, 2, 3}, []Server{serving(9, Active, 3, 2, 8)}, 0, nil,
			EndStep{Terminate: []Order{{server9, []int{3, 2}}}, Free: []int{1}, Waiting: []int{2, 3}}},
		{"two servers", []int{1, 2}, []Server{serving(9, Active, 2), serving(8, Active, 1)}, 0, nil,
			EndStep{Terminate: []Order{{server9, []int{2}}, {server8, []int{1}}}, Waiting: []int{1, 2}}},
		{"driver 535", []int{1}, []Server{serving(9, StatusUnknown, 1)}, 0, nil,
			EndStep{Terminate: []Order{{server9, []int{1}}}, Waiting: []int{1}}},
		{"ended, still listed", []int{1}, []Server{serving(9, Active, 1)}, 0, []Termination{{1, 0, false}}, EndStep{Free: []int{1}}},
		{"failed", []int{1}, []Server{serving(9, Active, 1)}, 0, []Termination{{1, 800, false}}, EndStep{Waiting: []int{1}}},
		{"failed, again", []int{1}, []Server{serving(9, Active, 1)}, time.Second, []Termination{{1, 800, false}},
			EndStep{Terminate: []Order{{server9, []int{1}}}, Waiting: []int{1}}},
		{"left by itself", []int{1}, []Server{serving(9, Active)}, 0, []Termination{{1, 1, true}}, EndStep{Free: []int{1}}},
		{"in a fault nothing is left to end", []int{1}, []Server{serving(9, Faulted, 1)}, 0, nil, EndStep{Free: []int{1}}},
		{"listed no more, by nobody who knows", []int{1}, []Server{serving(9, Active, 1)}, 0, []Termination{{1, 1, false}}, EndStep{Waiting: []int{1}}},
		{"its server begins", []int{1}, []Server{{ID: process.ID{PID: 9}, Status: Initializing}}, 0, nil, EndStep{Waiting: []int{1}}},
		{"a server that does not answer", []int{1}, []Server{mute}, 0, nil, EndStep{Waiting: []int{1}}},
		{"overdue", []int{1}, []Server{mute}, 5 * time.Second, nil, EndStep{Waiting: []int{1}, Overdue: true}},
	}
	for _, tt := range tests {
		e := BeginEnding(tt.pids, begin, rules)
		if tt.book != nil {
			e = e.Answered(begin, tt.book)
		}
		if diff := cmp.Diff(tt.want, e.Step(begin.Add(tt.after), tt.servers)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestEndingProperties: every process is free or waited for, nobody else is
// ever terminated, and it comes to an end.
func TestEndingProperties(t *testing.T) {
	pid := rapid.IntRange(1, 6)
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1000, 0)
		e := BeginEnding(rapid.SliceOf(pid).Draw(t, "pids"), now, EndRules{Again: time.Second, Deadline: 5 * time.Second})
		statuses := rapid.SampledFrom([]ServerStatus{StatusUnknown, Initializing, Active, Faulted})
		for range 12 {
			servers := []Server{serving(100, statuses.Draw(t, "status"), rapid.SliceOf(pid).Draw(t, "clients")...)}
			step := e.Step(now, servers)
			all := append(slices.Clone(step.Free), step.Waiting...)
			slices.Sort(all)
			if !slices.Equal(all, e.PIDs) {
				t.Fatalf("%v is neither free nor waited for: %+v", e.PIDs, step)
			}
			for _, o := range step.Terminate {
				for i, c := range o.Clients {
					if !slices.Contains(step.Waiting, c) || i > 0 && o.Clients[i-1] <= c {
						t.Fatalf("order %v among %+v", o, step)
					}
					result := rapid.SampledFrom([]int{0, 1, 800}).Draw(t, "result")
					e = e.Answered(now, []Termination{{c, result, rapid.Bool().Draw(t, "left")}})
				}
				if again := e.Step(now, servers); len(again.Terminate) > 0 {
					t.Fatalf("ordered twice at one time: %+v", again)
				}
			}
			now = now.Add(500 * time.Millisecond)
		}
		if !e.Step(now, []Server{serving(100, StatusUnknown, 1, 2, 3)}).Done() {
			t.Fatal("it does not end")
		}
	})
}

// TestEndClients: busy clients are ended without harm to their neighbour, in
// two runs of the command line.
func TestEndClients(t *testing.T) {
	onServed(t, func(s *served) {
		neighbour, a, b := s.guest(), s.guest(), s.guest()
		for _, g := range []*guest{neighbour, a, b} {
			g.do("busy")
		}
		s.servers()
		runs := s.counted()
		step, err := s.daemon.EndClients(s.t.Context(), []int{a.pid(), b.pid(), os.Getpid()}, DefaultEndRules)
		if err != nil || len(step.Free) != 3 || step.Overdue || runs() != 2 {
			s.t.Fatalf("%+v, %v, in %d runs", step, err, runs())
		}
		for _, g := range []*guest{a, b} {
			if got := g.do("error"); got != "810" {
				s.t.Errorf("an ended client's error: %s, want 810", got)
			}
			_ = g.cmd.Process.Kill()
		}
		eventually(s.t, "they have left the client list", func() bool { return len(s.servers()[0].Clients) == 1 })
		if got := neighbour.do("error"); got != "0" || s.servers()[0].Status != s.status(Active) {
			s.t.Errorf("the neighbour's error: %s, the server %+v", got, s.servers()[0])
		}
	})
}

// TestEndClientsIsBounded: a daemon that hangs does not keep a job for ever.
func TestEndClientsIsBounded(t *testing.T) {
	onServed(t, func(s *served) {
		g := s.guest()
		server := s.servers()[0]
		signal(s.t, server.ID, syscall.SIGSTOP)
		step, err := s.daemon.EndClients(s.t.Context(), []int{g.pid()}, EndRules{Again: 100 * time.Millisecond, Deadline: 300 * time.Millisecond})
		if !step.Overdue || !slices.Equal(step.Waiting, []int{g.pid()}) {
			s.t.Errorf("%+v, %v; want overdue", step, err)
		}
		signal(s.t, server.ID, syscall.SIGCONT)
	})
}

// readyOnce is a command line that answers its first conversation as a ready server
// with one client would, and then hands over to the daemon.
const readyOnce = `#!/bin/sh
[ -e FLAG ] && exec PROGRAM
: >FLAG
while read -r line; do case $line in
get_server_list) echo SERVER ;;
get_server_status*) echo ACTIVE ;;
get_active_thread_percentage*) echo 50.0 ;;
get_device_pinned_mem_limit*) echo 4G ;;
get_client_list*) echo CLIENT ;;
eof-*) echo "Unknown command \"$line\"" ;;
esac; done
`

func onceReady(t *testing.T, program string, server, client int) string {
	t.Helper()
	return writeProgram(t, filepath.Join(tempDir(t), "cli"), strings.NewReplacer(
		"FLAG", filepath.Join(tempDir(t), "asked"), "PROGRAM", program,
		"SERVER", strconv.Itoa(server), "CLIENT", strconv.Itoa(client)).Replace(readyOnce))
}

// TestServerThatIsNotReadyProvesNothing holds a race open: a server that had a client
// is not ready when the client is to be terminated. NVIDIA's daemons then answer
// "not found!", 1 and an empty client list, which says nothing about the client.
func TestServerThatIsNotReadyProvesNothing(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		writeProgram(t, filepath.Join(r.ServerPath, "nvidia-cuda-mps-server"), fakeServer)
		d := started(t, r)
		if err := d.StartServer(t.Context(), uint32(os.Geteuid())); err != nil {
			t.Fatal(err)
		}
		var server process.ID
		eventually(t, "the server is listed", func() bool {
			all, err := d.Servers(t.Context())
			if err == nil && len(all) == 1 {
				server = all[0].ID
			}
			return server.Started != 0
		})
		client := os.Getpid()
		got, err := d.Terminate(t.Context(), server, client)
		if want := []Termination{{Client: client, Result: 1}}; err != nil || !slices.Equal(got, want) || got[0].Ended() {
			t.Errorf("%+v, %v; want %+v, which is not ended", got, err, want)
		}
		d.program = onceReady(t, r.Program, server.PID, client)
		step, err := d.EndClients(t.Context(), []int{client}, EndRules{Again: 100 * time.Millisecond, Deadline: 2 * time.Second})
		if len(step.Free) != 0 || !slices.Equal(step.Waiting, []int{client}) || !step.Overdue {
			t.Errorf("%+v, want the client waiting and overdue", step)
		}
		wantFault(t, err, Wedged, "does not answer", "is not known", "gpuslot status")
	})
}

// changesMeanwhile is a command line of a server that is ready for one of the two questions
// about its percentage only.
const changesMeanwhile = `#!/bin/sh
while read -r line; do case $line in
terminate_client*) echo 1 ;;
get_active_thread_percentage*) n=$((n+1)); case READY in *$n*) echo 50.0 ;; *) echo "not found!" ;; esac ;;
get_client_list*) ;;
eof-*) echo "Unknown command \"$line\"" ;;
esac; done
`

// TestServerThatChangesInAConversation: an empty list says that a client has left only if the
// server was ready before it and after it.
func TestServerThatChangesInAConversation(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		d := started(t, r)
		own, err := proc.Stat(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		for ready, left := range map[string]bool{"1": false, "2": false, "12": true} {
			d.program = writeProgram(t, filepath.Join(tempDir(t), "cli"), strings.ReplaceAll(changesMeanwhile, "READY", ready))
			got, err := d.Terminate(t.Context(), own.ID, 4711)
			if want := []Termination{{Client: 4711, Result: 1, Left: left}}; err != nil || !slices.Equal(got, want) {
				t.Errorf("ready at %s: %+v, %v; want %+v", ready, got, err, want)
			}
		}
		d.program = writeProgram(t, filepath.Join(tempDir(t), "cli"), strings.ReplaceAll(changesMeanwhile, "list*) ", "list*) echo no such list "))
		_, err = d.Terminate(t.Context(), own.ID, 4711)
		wantFault(t, err, Refused, `"no such list"`)
	})
}

// TestServerThatItsDaemonForgot: a daemon that took the place of another one knows none
// of its servers, so that its empty list frees nobody while the server lives.
func TestServerThatItsDaemonForgot(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		d := started(t, r)
		server := exec.Command("sleep", "600")
		server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
		client := os.Getpid()
		d.remember([]int{server.Process.Pid})
		var err error
		// A busy machine has time for one look only in two seconds: the server was ready at that one.
		for deadline := 2 * time.Second; deadline < 5*time.Minute; deadline *= 2 {
			var step EndStep
			d.program = onceReady(t, r.Program, server.Process.Pid, client)
			step, err = d.EndClients(t.Context(), []int{client}, EndRules{Again: 100 * time.Millisecond, Deadline: deadline})
			if len(step.Free) != 0 || !slices.Equal(step.Waiting, []int{client}) || !step.Overdue {
				t.Errorf("%+v, want the client waiting and overdue", step)
			}
			if err == nil || !strings.Contains(err.Error(), "did not end within") {
				break
			}
		}
		wantFault(t, err, Wedged, "does not answer")
	})
}

// TestNotEnded: a server that does not answer is named, one in a fault never answers.
func TestNotEnded(t *testing.T) {
	d := NewDaemon(uuid0, "/nonexistent", "/nonexistent")
	mute := Server{ID: process.ID{PID: 9, Started: 1}}
	faulted := mute
	faulted.Status = Faulted
	for says, server := range map[string]Server{"server 9 does not answer": mute, "clients [1] did not end": serving(9, Active, 1)} {
		wantFault(t, d.notEnded([]int{1}, []Server{server}, time.Second), Wedged, says)
	}
	wantFault(t, d.notEnded([]int{1}, []Server{faulted, mute}, time.Second), Wedged, "server 9 does not answer")
	wantFault(t, d.notEnded([]int{1}, []Server{faulted}, time.Second), Wedged, "clients [1] did not end")
	// Without a look nothing is said of servers.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if step, err := d.EndClients(ctx, []int{1}, DefaultEndRules); !step.Overdue || FaultOf(err) == Wedged {
		t.Errorf("%+v, %v", step, err)
	}
}

func TestTerminate(t *testing.T) {
	onServed(t, func(s *served) {
		g := s.guest()
		server := s.servers()[0].ID
		got, err := s.daemon.Terminate(s.t.Context(), server, g.pid(), 999999999)
		if err != nil || len(got) != 2 || got[0].Client != g.pid() || got[0].Result != 0 || got[1] != (Termination{999999999, 1, true}) || !got[1].Ended() {
			s.t.Errorf("%+v, %v", got, err)
		}
		if got, err := s.daemon.Terminate(s.t.Context(), server); got != nil || err != nil {
			s.t.Errorf("nobody: %v, %v", got, err)
		}
		_, err = s.daemon.Terminate(s.t.Context(), process.ID{PID: 1}, g.pid())
		wantFault(s.t, err, NoServer)
		// A later process may have the PID of the server that was meant.
		server.Started++
		_, err = s.daemon.Terminate(s.t.Context(), server, g.pid())
		wantFault(s.t, err, NoServer)
	})
}

// FuzzParseResult: a result is a whole line, and no other line is another number.
func FuzzParseResult(f *testing.F) {
	for _, s := range []string{"0", "Server 1 not found\nServer 1 not found!\n1", "800", "", "x", "1\n-1", "1 0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, reply string) {
		n, err := parseResult(reply)
		if err != nil {
			return
		}
		alone := false
		for line := range strings.SplitSeq(reply, "\n") {
			got, err := strconv.Atoi(line)
			alone = alone || err == nil && got == n
			if err == nil && got != n {
				t.Fatalf("%q gave %d", reply, n)
			}
		}
		if !alone || n < 0 {
			t.Fatalf("%q gave %d", reply, n)
		}
	})
}
