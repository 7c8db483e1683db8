package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"gpuslot": main})
}

// TestScripts runs testdata/script/*.txtar against the real program. The
// command "agent FILE" puts an agent on $WORK/agent.sock that answers any
// valid request with the reply in FILE; "exits CODE ARGS..." runs gpuslot and compares
// its exit code.
func TestScripts(t *testing.T) {
	examples, err := filepath.Abs("../../docs/examples")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("EXAMPLES", examples)
			e.Setenv("TZ", "UTC")
			e.Setenv("GPUSLOTBIN", filepath.SplitList(e.Getenv("PATH"))[0]) // where testscript has put gpuslot
			short, err := os.MkdirTemp("/tmp", "g")                         // paths.run has at most 42 bytes
			e.Setenv("SHORT", short)
			e.Defer(func() { _ = os.RemoveAll(short) })
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"agent": startAgent, "exits": exits},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "nvml":
				_, _, err := readNode(t.Context())
				return err == nil, nil
			case "default-config":
				_, err := os.Stat(config.DefaultPath)
				return err == nil, nil
			}
			return false, errors.New("unknown condition " + cond)
		},
	})
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE ARGS...")
	}
	code := exitOK
	if exit := (*exec.ExitError)(nil); errors.As(ts.Exec("gpuslot", args[1:]...), &exit) {
		code = exit.ExitCode()
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// startAgent serves until the script ends.
func startAgent(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: agent FILE")
	}
	var reply api.Reply
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &reply))
	var c net.ListenConfig
	l, err := c.Listen(context.Background(), "unix", ts.MkAbs("agent.sock"))
	ts.Check(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			answer(conn, reply)
		}
	}()
	ts.Defer(func() {
		_ = l.Close()
		<-done
	})
}

func answer(conn net.Conn, reply api.Reply) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	req, err := api.ReadRequest(conn)
	switch {
	case err != nil:
		reply = api.Reply{Version: api.Version, Error: err.Error()}
	case req.Op == api.OpVerify:
		reply.Verified = slices.DeleteFunc(slices.Clone(reply.Verified), func(v api.Verification) bool { return !strings.HasPrefix(v.UUID, req.GPU) })
	}
	_ = api.WriteReply(conn, reply)
}

// TestReadme runs what README.md shows a newcomer before anything is installed.
func TestReadme(t *testing.T) {
	t.Chdir("../..")
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		_, args, ok := strings.Cut(lines.Text(), "go run ./cmd/gpuslot ")
		if !ok {
			continue
		}
		args, _, _ = strings.Cut(args, "#")
		ran++
		var stdout, stderr bytes.Buffer
		if code := run(strings.Fields(args), &stdout, &stderr); code != exitOK || stdout.Len() == 0 || stderr.Len() > 0 {
			t.Errorf("gpuslot %s: exit code %d, %d bytes, stderr %q", args, code, stdout.Len(), stderr.String())
		}
	}
	if ran == 0 {
		t.Error("README.md shows no line that begins with go run ./cmd/gpuslot")
	}
}

// TestChangesText: what gpuslot plan says of HTCondor.
func TestChangesText(t *testing.T) {
	for want, r := range map[string]report{
		"": {},
		"What HTCondor runs is not known: nobody answers.":                     {HTCondorUnknown: "nobody answers."},
		"HTCondor's slots are as planned.":                                     {HTCondor: &[]api.Change{}},
		"The plan is in force; HTCondor:\n  STARTD waits.\n  So does another.": {HTCondor: &[]api.Change{{Says: "STARTD waits."}, {Says: "So does another."}}},
		"admission change at once; HTCondor:\n  STARTD waits.":                 {HTCondor: &[]api.Change{{Says: "STARTD waits."}}, Differences: []string{"x"}},
	} {
		var b strings.Builder
		r.changesText(&b)
		if got := strings.TrimSpace(b.String()); want == "" && got != "" || !strings.HasSuffix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestExitCodes holds the table of docs/operations.md to the help.
func TestExitCodes(t *testing.T) {
	page := string(read(t, "../../docs/operations.md"))
	_, table, ok := strings.Cut(root().Long, "Exit codes of all commands:\n")
	if !ok {
		t.Fatal("the help has no exit codes")
	}
	for line := range strings.SplitSeq(table, "\n") {
		code, meaning, _ := strings.Cut(strings.TrimSpace(line), "   ")
		who, what, named := strings.Cut(meaning, ": ")
		if named {
			meaning = "`" + strings.ReplaceAll(who, ", ", "`, `") + "`: " + what
		}
		if row := "| " + code + " | " + meaning + " |"; !strings.Contains(page, row) {
			t.Errorf("docs/operations.md lacks the row %s", row)
		}
	}
}
