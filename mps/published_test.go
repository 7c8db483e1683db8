package mps

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPublishedLogs: of what others published of drivers that cannot be fetched here, the lines
// that mean something are read, and all others are ignored.
func TestPublishedLogs(t *testing.T) {
	want := map[string][]EventKind{
		"580-k8s-device-plugin-1614.txt": {ClientWaits, ServerStarting},
		"580-bottlerocket-415.txt":       {ClientWaits, ServerLimited},
		"580-dra-1153.txt":               {ClientWaits, ClientWaits, ServerStarting, ServerReady},
		"610-dra-1153.txt":               {ClientWaits, ServerStarting, ServerReady, ClientWaits},
		"615-dynamo.txt":                 nil,
		"dra-1143.txt":                   nil,
	}
	files, err := filepath.Glob("testdata/published/*.txt")
	if err != nil || len(files) != len(want) {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "# ") {
			t.Errorf("%s names no source", file)
		}
		var got []EventKind
		for line := range strings.Lines(string(text)) {
			if e, ok := ParseEvent(line); ok {
				got = append(got, e.Kind)
			}
		}
		if !slices.Equal(got, want[filepath.Base(file)]) {
			t.Errorf("%s: %q, want %q", file, got, want[filepath.Base(file)])
		}
	}
}

// TestUnknownRepliesClose: a reply in a form that no driver was seen to print is no answer.
func TestUnknownRepliesClose(t *testing.T) {
	for _, reply := range []string{"PID 337", "337 (ACTIVE)", "no servers", "337,338", "337\nPID 338"} {
		if pids, err := parsePIDs(reply); err == nil {
			t.Errorf("%q is the servers %d", reply, pids)
		}
	}
	for _, limit := range []string{"", "31.5G", "32256 MiB", "0x7e0000000", "31G (exact)", "31G\n32G"} {
		if len(compare(Wanted{Limit: 32256, ThreadPercentage: 100}, limit, "100.0")) != 1 {
			t.Errorf("%q is the limit", limit)
		}
	}
	for _, status := range []string{"READY", "", "ACTIVE 2", "active", "ACTIVE\nFAULT"} {
		s, ok := parseServer(337, []string{status, "100.0", "31G", ""})
		if !ok || s.Status != Unreadable {
			t.Errorf("the status %q is %q", status, s.Status)
		}
	}
}

// conversation is a whole output for one server, by the words of 535 to 555, and the lines of it
// without which the GPU takes no jobs.
func conversation() (lines []string, needed map[int]bool) {
	needed = map[int]bool{}
	for i, reply := range []string{"31G", "100.0", "337", "ACTIVE", "100.0", "31G", "4267\n4281"} {
		for line := range strings.SplitSeq(reply, "\n") {
			needed[len(lines)] = i != 2 && i != 6 // nothing says that a list is whole
			lines = append(lines, line)
		}
		needed[len(lines)] = true
		lines = append(lines, `Unknown command "`+marker("n", i)+`"`)
	}
	return lines, needed
}

// readConversation is what the program takes from an output; empty if the GPU takes no jobs.
func readConversation(lines []string) string {
	replies, ok := splitReplies(strings.Join(lines, "\n")+"\n", "n", 7)
	if !ok {
		return ""
	}
	w := Wanted{Limit: 32256, ThreadPercentage: 100}
	listed, err := parsePIDs(replies[2])
	if err != nil || len(compare(w, only(replies[0], limitLine), only(replies[1], percentageLine))) > 0 {
		return ""
	}
	s, ok := parseServer(337, replies[3:])
	if !ok || s.Status == Unreadable || !s.Answers() || len(s.Differs(w)) > 0 {
		return ""
	}
	return fmt.Sprintln(listed, s.Status, s.Limit, s.ThreadPercentage, s.Clients)
}

// TestRepliesOfNewerDrivers: lines that no driver was seen to print change no reading, wherever
// they stand, or close the GPU where they may hold a PID. A line that is missing closes it.
func TestRepliesOfNewerDrivers(t *testing.T) {
	whole, needed := conversation()
	want := readConversation(whole)
	if want != "[337] ACTIVE 31G 100.0 [4267 4281]\n" {
		t.Fatalf("%q", want)
	}
	unknown := []string{"", "warning: this command is deprecated", "note: see the manual of R615", "Server shared: Ready"}
	files, _ := filepath.Glob("testdata/published/*.txt")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		unknown = append(unknown, strings.Split(strings.TrimSpace(string(text)), "\n")...)
	}
	ignored := 0
	for at := range len(whole) + 1 {
		for _, line := range unknown {
			switch got := readConversation(slices.Insert(slices.Clone(whole), at, line)); {
			case got == want:
				ignored++
			case got != "" || line != "" && !strings.ContainsAny(line, "0123456789"):
				t.Errorf("%q in line %d: %q, want %q", line, at, got, want)
			}
		}
	}
	if ignored < len(whole)*len(unknown)/2 {
		t.Errorf("%d of %d lines are ignored", ignored, len(whole)*len(unknown))
	}
	for at := range whole {
		got := readConversation(slices.Delete(slices.Clone(whole), at, at+1))
		if needed[at] && got != "" {
			t.Errorf("without line %d, %q, it reads %q", at, whole[at], got)
		}
	}
}

// TestTerminateOfNewerDrivers: only a number alone on its line is the result.
func TestTerminateOfNewerDrivers(t *testing.T) {
	for reply, want := range map[string]int{"0": 0, "Server 1 not found!\n1": 1, "0\nclient left": 0, "note\n0\n": 0} {
		if n, err := parseResult(reply); err != nil || n != want {
			t.Errorf("%q: %d, %v", reply, n, err)
		}
	}
	for _, reply := range []string{"", "-1", "1\n0", "result: 0", "0x0"} {
		if n, err := parseResult(reply); err == nil {
			t.Errorf("%q: %d", reply, n)
		}
	}
}
