package mps

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseEvent(t *testing.T) {
	const stamp = "[2026-02-06 09:34:36.380 Control   261] "
	other := func(text string) string { return "[2026-02-06 09:34:36.386 Other 12337] " + text }
	uid := func(e Event, uid uint32) Event { e.UID, e.HasUID = uid, true; return e }
	tests := []struct {
		line string
		want Event
	}{
		{stamp + "Starting new server 337 for user 0", uid(Event{Kind: ServerStarting, Writer: 261, Server: 337}, 0)},
		{stamp + "NEW SERVER 337: Ready", Event{Kind: ServerReady, Writer: 261, Server: 337}},
		{stamp + "Server 337 exited with status 1", Event{Kind: ServerExited, Writer: 261, Server: 337, Status: 1}},
		{stamp + "Server encountered a fatal exception. Shutting down", Event{Kind: ServerBroken, Writer: 261}},
		{stamp + "Failed to start server using uid 1000. Operation not permitted", uid(Event{Kind: ServerBroken, Writer: 261, Reason: "Operation not permitted"}, 1000)},
		{stamp + "Failed to start server using uid 1000, error: Invalid argument", uid(Event{Kind: ServerBroken, Writer: 261, Reason: "Invalid argument"}, 1000)},
		{other("Failed to start : no CUDA-capable device is detected"), Event{Kind: ServerBroken, Writer: 12337, Reason: "no CUDA-capable device is detected"}},
		{"[2024-04-29 11:22:10.421 Legacy Server   425] Failed to start : invalid argument", Event{Kind: ServerBroken, Writer: 425, Reason: "invalid argument"}},
		{stamp + "Server 337 has 2 active worker threads. Server will not shutdown.", Event{Kind: ServerRefuses, Writer: 261, Server: 337}},
		{stamp + "Force shutting down server 337", Event{Kind: ServerForced, Writer: 261, Server: 337}},
		{stamp + "NEW CLIENT 0 from user 1001: Server is not ready, push client to pending list", uid(Event{Kind: ClientWaits, Writer: 261}, 1001)},
		{stamp + "NEW CLIENT 99 from user 4294967295: Server already exists", uid(Event{Kind: ClientAttached, Writer: 261, Client: 99}, 4294967295)},
		{other("Volta MPS Server: Client process 20942 encountered a fatal GPU error."), Event{Kind: GPUFault, Writer: 12337, Client: 20942}},
		{other("Volta MPS Server: Server is handling a fatal GPU error."), Event{Kind: GPUFault, Writer: 12337}},
		{other("Volta MPS: Server is handling a fatal GPU error. Client 20942 encountered it"), Event{Kind: GPUFault, Writer: 12337, Client: 20942}},
		// Driver 580 writes clients so (bottlerocket-kernel-kit PR 415); its words for a fault are not known.
		{"[2026-04-28 18:20:41.986 Server 4428] Client {PID: 4267, Context ID: 0} encountered a fatal GPU error.", Event{Kind: GPUFault, Writer: 4428, Client: 4267}},
		{"[2026-04-28 18:20:41.986 Server 4428] Server is handling a fatal GPU error. Client {PID: 4267, Context ID: 1} encountered it", Event{Kind: GPUFault, Writer: 4428, Client: 4267}},
		{"[2026-04-28 18:20:41.986 Server  4428] Device pinned memory limit for device 0 set to 0x140000000 bytes",
			Event{Kind: ServerLimited, Writer: 4428, Bytes: 5 << 30}},
		{other("Volta MPS: Forcefully terminating client 20942"), Event{Kind: ClientTerminated, Writer: 12337, Client: 20942}},
	}
	for _, tt := range tests {
		got, ok := ParseEvent(tt.line + "\n")
		if diff := cmp.Diff(tt.want, got); !ok || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", tt.line, ok, diff)
		}
	}
}

func TestParseEventIgnores(t *testing.T) {
	const stamp = "[2026-02-06 09:34:36.380 Control   261] "
	for _, line := range []string{
		"", "Server 3 exited with status 1", stamp, stamp + "Accepting connection...", stamp + "Cmd:start_server -uid 0",
		stamp + "Cmd:NEW SERVER 5: Ready", stamp + "NEW SERVER x: Ready", stamp + "NEW SERVER 5: Ready or not",
		stamp + "Failed to start : \x1b[2Jall is well", stamp + "Failed to start server using uid 7, error: \u202eall is well",
		stamp + "Server 99999999999999999999 exited with status 1",
		"[2026-02-06 09:34:36.380 Nobody   261] NEW SERVER 5: Ready", " " + stamp + "NEW SERVER 5: Ready",
		stamp + "NEW SERVER 5: Ready\n" + stamp + "NEW SERVER 6: Ready",
	} {
		if got, ok := ParseEvent(line); ok {
			t.Errorf("%q became %+v", line, got)
		}
	}
}

// FuzzParseEvent: every number of an event stands in its line.
func FuzzParseEvent(f *testing.F) {
	f.Add("[2026-02-06 09:34:36.380 Control   261] Starting new server 337 for user 0")
	f.Add("[2026-02-06 09:34:36.380 Other 12] Volta MPS: Server is handling a fatal GPU error. Client 5 encountered it")
	f.Add("[2026-02-06 09:34:36.380 Control   261] Failed to start server using uid 7, error: Invalid argument")
	f.Fuzz(func(t *testing.T, line string) {
		e, ok := ParseEvent(line)
		if !ok {
			return
		}
		if e.Kind == "" || e.Writer < 0 || e.Server < 0 || e.Client < 0 || !strings.Contains(line, e.Reason) {
			t.Fatalf("%q became %+v", line, e)
		}
		digits := strings.FieldsFunc(line, func(r rune) bool { return r < '0' || r > '9' })
		for i, n := range digits {
			digits[i] = strings.TrimLeft(n, "0")
		}
		for _, n := range []int{e.Server, e.Client, int(e.UID)} {
			if n != 0 && !slices.Contains(digits, strconv.Itoa(n)) {
				t.Fatalf("%q has no %d: %+v", line, n, e)
			}
		}
	})
}

// events are those of the daemon's log so far.
func (s *served) events() []Event {
	s.t.Helper()
	b, err := os.ReadFile(s.logFile())
	if err != nil {
		s.t.Fatal(err)
	}
	var all []Event
	for line := range strings.Lines(string(b)) {
		if e, ok := ParseEvent(line); ok {
			all = append(all, e)
		}
	}
	return all
}

// TestEventsOfALife: the log of a server from its start to its end.
func TestEventsOfALife(t *testing.T) {
	onServed(t, func(s *served) {
		g := s.guest()
		server := s.servers()[0]
		g.do("fault")
		culprit := func(e Event) bool { return e.Kind == GPUFault && e.Client == g.pid() }
		eventually(s.t, "the log names the culprit", func() bool { return slices.ContainsFunc(s.events(), culprit) })
		_ = g.cmd.Process.Kill()
		signal(s.t, server.ID, 9)
		seen := func() []EventKind {
			var kinds []EventKind
			for _, e := range s.events() {
				if e.Server == server.PID || e.Client == g.pid() {
					kinds = append(kinds, e.Kind)
				}
			}
			return kinds
		}
		want := []EventKind{ClientWaits, ServerStarting, ServerReady, GPUFault, ServerExited}
		eventually(s.t, "the log tells of the whole life", func() bool { return slices.Contains(seen(), ServerExited) })
		if diff := cmp.Diff(want, seen()); diff != "" {
			s.t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}
