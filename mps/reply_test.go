package mps

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

func TestSplitReplies(t *testing.T) {
	end := func(i string) string { return `Unknown command "eof-n-` + i + "\"\n" }
	tests := []struct {
		name, out string
		n         int
		want      []string
		ok        bool
	}{
		{"one", "100.0\n" + end("0"), 1, []string{"100.0"}, true},
		{"empty reply", end("0"), 1, []string{""}, true},
		{"several lines", "1\n2\n" + end("0"), 1, []string{"1\n2"}, true},
		{"two", "a\n" + end("0") + end("1"), 2, []string{"a", ""}, true},
		{"nothing executed", "", 1, nil, false},
		{"half executed", "a\n" + end("0"), 2, nil, false},
		{"refused", "Cannot send command to daemon process\n", 1, nil, false},
		{"another's marker", "Unknown command \"eof-m-0\"\n", 1, nil, false},
		{"marker inside a line", "x" + end("0"), 1, nil, false},
		{"cut marker", strings.TrimSuffix(end("0"), "\n"), 1, nil, false},
		{"something behind it", end("0") + "late\n", 1, []string{""}, true},
		{"wrong order", end("1") + end("0"), 2, nil, false},
	}
	for _, tt := range tests {
		got, ok := splitReplies(tt.out, "n", tt.n)
		if ok != tt.ok || ok && !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, %v; want %q, %v", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

// FuzzSplitReplies: replies of any form, markers between them, come back as
// they were; a reply cannot forge a marker without knowing the nonce.
func FuzzSplitReplies(f *testing.F) {
	f.Add("100.0", "")
	f.Add("Server 1 not found\nServer 1 not found", "1\n2\n3")
	f.Add("Unknown command \"eof-0000-0\"", "\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		const nonce = "6c1d0a2f9e"
		if strings.Contains(a+b, nonce) {
			return
		}
		var out strings.Builder
		for i, reply := range []string{a, b} {
			if reply != "" {
				out.WriteString(reply + "\n")
			}
			out.WriteString(`Unknown command "` + marker(nonce, i) + "\"\n")
		}
		got, ok := splitReplies(out.String(), nonce, 2)
		if !ok || !slices.Equal(got, []string{a, b}) {
			t.Fatalf("%q, %q came back as %q, %v", a, b, got, ok)
		}
		if _, ok := splitReplies(a+b, nonce, 1); ok {
			t.Fatalf("%q was taken for a whole reply", a+b)
		}
	})
}

// FuzzCompare: what is accepted is what was wanted, to the GiB and the decimal.
func FuzzCompare(f *testing.F) {
	f.Add(int64(1500), 33.3, "1G", "33.3", "")
	f.Add(int64(1500), 33.3, "1G", "33.4", "")
	f.Add(int64(500), 100.0, "500M", "100.0", "1234\n5678")
	f.Add(int64(1), 50.0, "", "NaN", "x")
	f.Add(int64(1048576), 50.0, "17179869183G", "1e1", "-1")
	f.Fuzz(func(t *testing.T, limit int64, percentage float64, backLimit, backPercentage, servers string) {
		pids, err := parsePIDs(servers)
		for _, pid := range pids {
			if err == nil && pid < 1 {
				t.Fatalf("%q gave the PID %d", servers, pid)
			}
		}
		w := Wanted{GPU: uuid0, Limit: gpu.MiB(limit), ThreadPercentage: percentage}
		if w.check() != nil || len(compare(w, backLimit, backPercentage)) > 0 {
			return
		}
		if backLimit != printedLimit(w.Limit) {
			t.Fatalf("%v read back as %q", w.Limit, backLimit)
		}
		if p, err := parsePercentage(backPercentage); err != nil || p < percentage-0.06 || p > percentage+0.06 {
			t.Fatalf("%v read back as %q", percentage, backPercentage)
		}
	})
}

// TestReadBack: what the daemon prints of a limit stands for every limit between the two, and
// for no other.
func TestReadBack(t *testing.T) {
	for _, limit := range []gpu.MiB{1, 1023, 1024, 1025, 3000, 4095, 4096} {
		least, most := Wanted{Limit: limit}.ReadBack()
		for other, same := range map[gpu.MiB]bool{least - 1: false, least: true, most: true, most + 1: false} {
			if (printedLimit(other) == printedLimit(limit)) != same {
				t.Errorf("%d MiB reads back as %d to %d MiB, but %d MiB prints %s", limit, least, most, other, printedLimit(other))
			}
		}
	}
}

// TestOutputIsBounded: a program that says too much is ended, and what probes say is cut short.
func TestOutputIsBounded(t *testing.T) {
	ended := false
	c := capped{tooMuch: func() { ended = true }}
	var b lockedBuffer
	for range 2 {
		half := make([]byte, maxReply/2)
		if n, err := c.Write(half); n != len(half) || err != nil || ended {
			t.Fatalf("%d, %v", n, err)
		}
		_, _ = b.Write(half)
	}
	if _, err := c.Write([]byte("x")); err == nil || !ended || c.kept.Len() != maxReply {
		t.Errorf("%v, ended %t, %d bytes", err, ended, c.kept.Len())
	}
	if n, err := b.Write([]byte("xy")); n != 2 || err != nil || len(b.String()) != maxReply {
		t.Errorf("%d, %v, %d bytes", n, err, len(b.String()))
	}
}

func TestParsePIDs(t *testing.T) {
	for in, want := range map[string][]int{"": nil, "12": {12}, "12\n345": {12, 345}, "12 \n 345": {12, 345}} {
		if got, err := parsePIDs(in); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"0", "-1", "x", "1\n\n2", "99999999999999999999", "Server 0 not found"} {
		if got, err := parsePIDs(in); err == nil {
			t.Errorf("%q: %v", in, got)
		}
	}
}

func TestIsRefusal(t *testing.T) {
	for reply, want := range map[string]bool{
		"": false, "50.0": false, "Server 1 not found": false,
		"Insufficient privileges for UID 1000": true,
		"Insufficient privileges for UID 1000. Control deamon settings can only be modified by the user started it or by the root user.": true,
		"Not enough privilege to execute quit command":                true,
		`Unknown command "set_default_device_pinned_mem_limit 0 10M"`: true,
	} {
		if isRefusal(reply) != want {
			t.Errorf("%q: want %v", reply, want)
		}
	}
}
