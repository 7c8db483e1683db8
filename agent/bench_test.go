package agent

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// benchAgent is a node of 16 GPUs with 47 of 48 shares taken on each.
func benchAgent(b testing.TB, uid uint32) (*testAgent, starter.Starter) {
	b.Helper()
	ta := bareTestAgent(b, 16, "[sharing]\nshares = 47\n[request_vram]\nminimum = 512\n")
	ta.restart()
	pid := 10000
	for g := range 16 {
		for i := range 46 {
			pid++
			s := ta.proc.starter(pid, "slot"+strconv.Itoa(g+1)+"_"+strconv.Itoa(i+1))
			ta.grant(s, uid, "alice", uuid(g), 512)
		}
	}
	return ta, ta.proc.starter(9999, "slot1_47")
}

// BenchmarkAdmission is an admission without the socket: decision, job table, and
// the cheap check (which here is a fake).
func BenchmarkAdmission(b *testing.B) {
	ta, s := benchAgent(b, 1000)
	c, job := hookOf(s, 1000), jobOn(s, "alice", uuid(0), 512)
	for b.Loop() {
		if r := ta.prepare(c, job); r.Grant == nil {
			b.Fatalf("%+v", r)
		}
	}
}

// BenchmarkPrepareOverSocket is the whole round trip of a hook's request.
func BenchmarkPrepareOverSocket(b *testing.B) {
	ta, s := benchAgent(b, uint32(os.Getuid()))
	ta.proc.Add(proctree.Process{PID: os.Getpid(), Parent: s.PID, Comm: "prepare", Exe: "/usr/libexec/gpuslot/gpuslot-condor", UID: uint32(os.Getuid())})
	socket := filepath.Join(ta.dir, "s.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		b.Fatal(err)
	}
	srv := ta.answers.server(ta.proc.fs(), ta.proc.Program("/usr/libexec/gpuslot/gpuslot-condor"))
	done := make(chan error, 1)
	go func() { done <- srv.Serve(b.Context(), l) }()
	b.Cleanup(func() { <-done })
	job := jobOn(s, "alice", uuid(0), 512)
	for b.Loop() {
		ta.forgetQuestions(s)
		if r, err := api.Call(b.Context(), socket, api.Request{Op: api.OpPrepare, Job: job}); err != nil || r.Grant == nil {
			b.Fatalf("%+v, %v", r, err)
		}
	}
}

// BenchmarkRound is one round of the loop in which nothing changes.
func BenchmarkRound(b *testing.B) {
	ta, _ := benchAgent(b, 1000)
	for b.Loop() {
		ta.apply(false)
	}
}

// BenchmarkMonitor is one question of the startd's monitor.
func BenchmarkMonitor(b *testing.B) {
	ta, _ := benchAgent(b, 1000)
	for b.Loop() {
		ta.answers.acceptances()
	}
}
