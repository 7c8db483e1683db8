package nvml

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestCountCPUs(t *testing.T) {
	// Forms from the kernel's Documentation/admin-guide/cputopology.rst and kernel-parameters.rst.
	for list, want := range map[string]int{"0\n": 1, "0-31\n": 32, "0-15,32-47\n": 32, "2,4-31,32-63": 61, "0,2,4,6": 4} {
		if got, err := countCPUs(list); got != want || err != nil {
			t.Errorf("%q: %d, %v, want %d", list, got, err, want)
		}
	}
	for _, list := range []string{"", "\n", "a", "3-1", "0-", "-3", "0,,1", "0-99999", strings.Repeat("0-65535,", 2) + "0"} {
		if got, err := countCPUs(list); err == nil {
			t.Errorf("%q: %d, want an error", list, got)
		}
	}
}

func FuzzCountCPUs(f *testing.F) {
	for _, s := range []string{"0\n", "0-15,32-47\n", "2,4-31,32-63", "0-", ",", "65535"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := countCPUs(s)
		if err != nil {
			return
		}
		if n < 1 || n > maxListedCPUs {
			t.Fatalf("%q counts %d", s, n)
		}
		// One more single CPU counts one more, whatever the list was.
		if more, err := countCPUs("7," + s); err == nil && more != n+1 {
			t.Fatalf("7,%q counts %d, want %d", s, more, n+1)
		}
	})
}

func TestMainMemory(t *testing.T) {
	proc := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(proc, "meminfo"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("MemTotal:       394892420 kB\nMemFree:        1 kB\n")
	if got, err := mainMemory(proc); got != 385637 || err != nil { // 394892420 / 1024 = 385637.1
		t.Errorf("%v, %v", got, err)
	}
	write("MemFree:        1 kB\n")
	if got, err := mainMemory(proc); err == nil {
		t.Errorf("without MemTotal: %v", got)
	}
	if _, err := mainMemory(filepath.Join(proc, "absent")); err == nil {
		t.Error("without /proc: no error")
	}
}

func TestReadHost(t *testing.T) {
	h, err := readHost(t.Context(), &fullNames{})
	if err != nil {
		t.Fatal(err)
	}
	// This process may be bound to fewer CPUs than the machine has.
	if h.Name == "" || h.CPUs < runtime.NumCPU() || h.Memory < 1 {
		t.Error(fmt.Sprintf("%+v", h), "on a machine with at least", runtime.NumCPU(), "CPUs")
	}
}

func TestFullNameIsKept(t *testing.T) {
	var asked int
	answer, err := "", errors.New("no resolver yet")
	lookUp := func(context.Context, string) (string, error) { asked++; return answer, err }
	var names fullNames
	for _, step := range []struct {
		answer string
		err    error
		want   string
		asked  int
	}{
		{"", errors.New("no resolver yet"), "wn-gpu1", 1},
		{"localhost.", nil, "wn-gpu1", 2}, // a name, but not of this host
		{"wn-gpu1.example.org.", nil, "wn-gpu1.example.org", 3},
		{"", errors.New("gone again"), "wn-gpu1.example.org", 3},
		{"wn-gpu1.other.org.", nil, "wn-gpu1.example.org", 3},
	} {
		answer, err = step.answer, step.err
		if got := names.of(t.Context(), "wn-gpu1", lookUp); got != step.want || asked != step.asked {
			t.Errorf("after %q, %v: %q with %d questions, want %q with %d", answer, err, got, asked, step.want, step.asked)
		}
	}
	if got := names.of(t.Context(), "wn-gpu2.example.org", lookUp); got != "wn-gpu2.example.org" || asked != 3 {
		t.Errorf("a full name is looked up: %q", got)
	}
}
