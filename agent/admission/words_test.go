package admission

import (
	"strings"
	"testing"
)

// TestForeignWords: what a job calls itself reaches logs, status and history as
// printable text that does not fill them.
func TestForeignWords(t *testing.T) {
	n := newNode(t)
	s := n.starter(100, "slot1_1")
	job := jobOn(s, "alice\x1b[2J", uuid(0), 4096)
	job.ID, job.Group, job.VO = "1.0\r\x1b[A", strings.Repeat("g", 200000), "\x1b]0;owned\x07"
	if reply := n.prepare(hookOf(s, 1000), job); reply.Grant == nil {
		t.Fatalf("%+v", reply)
	}
	r := n.entry("slot1_1")
	for _, word := range []string{r.Owner, r.ID, r.Group, r.VO} {
		if strings.ContainsAny(word, "\x1b\x07\r") || len(word) > 300 {
			t.Errorf("%.40q has %d bytes", word, len(word))
		}
	}
	job.AssignedGPUs = make([]string, 6000)
	if reply := n.prepare(hookOf(s, 1000), job); reply.Refusal == nil {
		t.Errorf("%+v", reply)
	}
}
