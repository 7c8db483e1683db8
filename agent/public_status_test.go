package agent

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestPublicStatus: an account other than root gets its own jobs in full, the use of the
// others' slots, and no name of theirs, also where a reason has one.
func TestPublicStatus(t *testing.T) {
	ta := newTestAgent(t, 3, "[gpu.\""+string(uuid(1))+"\"]\ntenancy = \"common:nosuchuser\"\n")
	ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", uuid(0), 8192)
	ta.grant(ta.proc.starter(101, "slot1_2"), 1001, "bob", uuid(2), 4096)
	if err := ta.close("0", "node-health", "the job of mallory is too hot"); err != nil {
		t.Fatal(err)
	}
	say := func(uid uint32) string {
		text, err := json.Marshal(ta.answers.public.Status(uid))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	alices, everybodys := say(1000), say(1002)
	if !strings.Contains(alices, `"id":"1_1.0"`) {
		t.Errorf("alice does not see her job: %s", alices)
	}
	for _, secret := range []string{"1_2.0", "bob", "1001", "nosuchuser", "mallory"} {
		if strings.Contains(alices, secret) {
			t.Errorf("alice sees %q: %s", secret, alices)
		}
	}
	for _, secret := range []string{"1_1.0", "1_2.0", "alice", "1000", "bob", "mallory"} {
		if strings.Contains(everybodys, secret) {
			t.Errorf("everybody sees %q: %s", secret, everybodys)
		}
	}
	for _, want := range []string{`"partial":true`, `"slot":"slot1_2"`, `"budget_mib":4096`, "Closed by node-health.", `"vram_budgeted_mib":8192`} {
		if !strings.Contains(everybodys, want) {
			t.Errorf("%s is not in %s", want, everybodys)
		}
	}
	if whole, err := json.Marshal(ta.status()); err != nil || !strings.Contains(string(whole), "1_2.0") {
		t.Errorf("root does not see bob's job: %s, %v", whole, err)
	}
}
