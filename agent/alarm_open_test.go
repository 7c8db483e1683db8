package agent

import (
	"os"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/faults"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestOpenIsKept: what an operator opened stays open, though the agent is
// killed as soon as it has said so.
func TestOpenIsKept(t *testing.T) {
	ta := newTestAgent(t, 1, "")
	ta.faults.Event(gpu.Event{GPU: uuid(0), Kind: gpu.EventXID, XID: 79, Time: time.Now()})
	next := func() bool {
		t.Helper()
		ta.restart()
		return ta.faults.Verdict(uuid(0), time.Now()).Closed()
	}
	if err := ta.faults.Keep(); err != nil || !next() {
		t.Fatalf("the next agent does not know of it (%v)", err)
	}
	if _, err := ta.open("0", "", true); err != nil {
		t.Fatal(err)
	}
	if next() {
		t.Error("the next agent closes it again")
	}
}

// TestTroublesUnreadable: a file that may close any GPU closes all of them, in
// every agent until an operator has opened each, and is not lost.
func TestTroublesUnreadable(t *testing.T) {
	whole := `[{"gpu":"` + string(uuid(1)) + `","class":"broken","what":"Xid 79","since":"2026-11-21T09:42:50Z"}]`
	for name, text := range map[string]string{
		"empty": "", "truncated": whole[:40], "rubbish": "\x00\x00", "a wrong type": `{"gpu":"x"}`, "null": "null",
		"text after it": whole + "]", "of a newer agent": `[{"gpu":"` + string(uuid(1)) + `","closed_by":"x"}]`, "no GPU": `[{"class":"broken"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			ta := newTestAgent(t, 2, "")
			file := faults.File(ta.view.Load().config.Paths)
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			closed := func(want ...bool) {
				t.Helper()
				if err := ta.faults.Keep(); err != nil {
					t.Fatal(err)
				}
				for i, w := range want {
					if why := ta.reason(i); (why != "") != w {
						t.Fatalf("GPU %d: closed because %q, want closed: %t", i, why, w)
					}
				}
			}
			kept := func(path string) {
				t.Helper()
				if b, err := os.ReadFile(path); string(b) != text || err != nil {
					t.Fatalf("%s says %q, %v", path, b, err)
				}
			}
			ta.restart()
			closed(true, true)
			if _, err := ta.open("0", "", true); err != nil {
				t.Fatal(err)
			}
			closed(false, true)
			kept(file)
			ta.restart()
			closed(true, true)
			if _, err := ta.open("all", "", true); err != nil {
				t.Fatal(err)
			}
			closed(false, false)
			kept(file + ".unreadable")
			ta.restart()
			closed(false, false)
		})
	}
}
