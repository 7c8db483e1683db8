package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/hook"
)

// TestMain makes the program, and its links, commands of the scripts.
func TestMain(m *testing.M) {
	links := map[string]func(){"gpuslot-condor": main}
	for _, v := range verbs() {
		links[v.name] = main
	}
	delete(links, "help") // also a builtin of the scripts
	testscript.Main(m, links)
}

func TestScripts(t *testing.T) {
	testscript.Run(t, scriptParams())
}

func scriptParams() testscript.Params {
	return testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"agent": startAgent},
		Setup: func(e *testscript.Env) error {
			// A path of 108 bytes is the most that a socket can have.
			dir, err := os.MkdirTemp("", "agent")
			if err != nil {
				return err
			}
			e.Defer(func() { os.RemoveAll(dir) })
			e.Setenv("SOCKET", filepath.Join(dir, "s"))
			// The race detector lets every process sleep a second at its end.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
	}
}

// startAgent is the script command "agent REPLY...": an agent that answers the
// requests of the api with the lines in the files REPLY in turn, the last one again and
// again, and puts each request that it understood into the file requests. "agent silent"
// never answers. "agent old REPLY..." is one from before OpHook.
func startAgent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: agent [old] REPLY... | agent silent")
	}
	l, err := net.Listen("unix", ts.Getenv("SOCKET"))
	ts.Check(err)
	a := &fakeAgent{listener: l, requests: ts.MkAbs("requests"), done: make(chan struct{}), old: args[0] == "old"}
	if a.old {
		args = args[1:]
	}
	for _, file := range args {
		if file != "silent" {
			a.replies = append(a.replies, []byte(ts.ReadFile(file)))
		}
	}
	a.serving.Go(a.serve)
	ts.Defer(func() {
		close(a.done)
		l.Close()
		a.serving.Wait()
	})
}

type fakeAgent struct {
	listener net.Listener
	requests string
	done     chan struct{}
	serving  sync.WaitGroup
	// old: it does not know OpHook.
	old bool

	mu sync.Mutex
	// replies are those to come; none: it never answers.
	replies [][]byte
}

func (a *fakeAgent) serve() {
	for {
		c, err := a.listener.Accept()
		if err != nil {
			return
		}
		a.serving.Go(func() { a.answer(c) })
	}
}

func (a *fakeAgent) answer(c net.Conn) {
	defer c.Close()
	req, err := api.ReadRequest(c)
	switch {
	case err != nil:
		_ = api.WriteReply(c, api.Reply{Error: err.Error()})
	case a.old && req.Op == api.OpHook: // it reads the fields first (api.ReadRequest)
		_ = api.WriteReply(c, api.Reply{Error: `request: json: unknown field "hook"`})
	case a.silent():
		<-a.done
	default:
		_, _ = c.Write(a.note(req))
	}
}

func (a *fakeAgent) silent() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.replies) == 0
}

// note writes a request down as the reply's writer would, and returns the reply to it.
func (a *fakeAgent) note(req api.Request) (reply []byte) {
	if req.Op == api.OpHook { // as gpuslotd answers it
		text := hook.Answer(*req.Hook, func(job *api.Job) (reply api.Reply, err error) {
			return reply, json.Unmarshal(a.note(api.Request{Version: req.Version, Op: api.OpPrepare, Job: job}), &reply)
		})
		reply, _ = api.ReplyLine(api.Reply{Hook: string(text)})
		return reply
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	reply = a.replies[0]
	if len(a.replies) > 1 {
		a.replies = a.replies[1:]
	}
	f, err := os.OpenFile(a.requests, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return reply
	}
	defer f.Close()
	_ = writeJSON(f, req)
	return reply
}

// TestManual: the manual page names every verb as the help does.
func TestManual(t *testing.T) {
	page, err := os.ReadFile("../../docs/gpuslot-condor.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range verbs() {
		if word := "`" + strings.TrimSpace(v.name+" "+v.args) + "`"; !strings.Contains(string(page), word) {
			t.Errorf("docs/gpuslot-condor.md has no %s", word)
		}
	}
}
