package closures

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTableOutlivesAgents: what one agent closes is closed for the next.
func TestTableOutlivesAgents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holds.json")
	first := NewTable(path)
	since := time.Unix(1760000000, 0).UTC()
	if err := first.Close(Closure{GPU: gpuA, Owner: "node-health", Reason: "too hot", Since: since}); err != nil {
		t.Fatal(err)
	}
	if err := first.SetNode(Node{Phase: Quiesced, Reason: "driver 580", Since: since}); err != nil {
		t.Fatal(err)
	}
	next := NewTable(path)
	if err := next.Read(); err != nil {
		t.Fatal(err)
	}
	got, want := next.On(part, gpuA).Reason(), first.On(part, gpuA).Reason()
	if got != want || !strings.Contains(want, "too hot") || !strings.Contains(want, "the node is quiesced: driver 580") {
		t.Errorf("%q, want %q", got, want)
	}
	if !IsQuiet(path) || next.Node() != first.Node() {
		t.Errorf("the node is %+v, want %+v", next.Node(), first.Node())
	}
	if err := next.Serve([]Closure{{GPU: gpuB, Owner: OwnerNode, Reason: "failed"}}); err != nil {
		t.Fatal(err)
	}
	if IsQuiet(path) || next.Node().Phase != Serving || len(next.On(gpuB)) != 1 || len(next.On(gpuA)) != 1 {
		t.Errorf("it serves with %v and %v closed", next.On(gpuA), next.On(gpuB))
	}
	if err := next.Serve(nil); err != nil || len(next.On(gpuB)) != 0 {
		t.Errorf("a GPU that is well again: %v, %v", next.On(gpuB), err)
	}
}

// TestUnreadable: a file that cannot be read closes everything, until it is mended or an
// operator overrides.
func TestUnreadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "holds.json")
	for _, text := range []string{
		"{", `{"schema":"gpuslot-holds/9","holds":[]}`, `{"schema":"gpuslot-holds/1","holds":[],"more":1}`, "", "[]",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		table := NewTable(path)
		if err := table.Read(); err == nil || len(table.On(gpuA)) != 1 || IsQuiet(path) {
			t.Errorf("%q: %v, %v", text, err, table.On(gpuA))
		}
		if err := table.Close(Closure{GPU: gpuA, Owner: "operator"}); err == nil {
			t.Errorf("%q: it was overwritten by a closure", text)
		}
		if err := table.SetNode(Node{Phase: Quiescing}); err == nil {
			t.Errorf("%q: it was overwritten by the node", text)
		}
		if _, _, err := table.Open(gpuA, "operator", false); err == nil {
			t.Errorf("%q: opened without an override", text)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%q became %q, %v", text, got, err)
		}
		if err := table.ReadAgain(); err == nil {
			t.Errorf("%q: it is read now", text)
		}
		if _, _, err := table.Open(gpuA, "operator", true); err != nil || len(table.On(gpuA)) != 0 {
			t.Errorf("%q: an override: %v, %v", text, err, table.On(gpuA))
		}
	}
}

// TestNotKept: a GPU is closed also where the disk is full, and the error says so; it is
// not opened then.
func TestNotKept(t *testing.T) {
	table := NewTable("/proc/nowhere/holds.json")
	err := table.Close(Closure{GPU: gpuA, Owner: "operator"})
	if err == nil || !strings.Contains(err.Error(), "closed until gpuslotd ends") || len(table.On(gpuA)) != 1 {
		t.Errorf("%v, %v", err, table.On(gpuA))
	}
	if _, left, err := table.Open(gpuA, "operator", false); err == nil || len(left) != 1 || len(table.On(gpuA)) != 1 {
		t.Errorf("%v, %v", err, table.On(gpuA))
	}
	if err := table.SetNode(Node{Phase: Quiescing}); err == nil || table.Node().Phase != Serving {
		t.Errorf("%v, %+v", err, table.Node())
	}
}

// TestOwnersAreBounded: one GPU has so many owners, whose reasons go into each slot ad.
func TestOwnersAreBounded(t *testing.T) {
	table := NewTable(filepath.Join(t.TempDir(), "holds.json"))
	for i := range maxOwners {
		if err := table.Close(Closure{GPU: gpuA, Owner: fmt.Sprint("owner-", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Close(Closure{GPU: gpuA, Owner: "one-more"}); err == nil {
		t.Error("one more owner closes it")
	}
	if err := table.Close(Closure{GPU: gpuA, Owner: "owner-3", Reason: "another"}); err != nil {
		t.Error(err)
	}
}

// FuzzRead: what is accepted reads back as it was written.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"schema":"gpuslot-holds/1","holds":[{"gpu":"GPU-00000000-0000-4000-8000-000000000000",` +
		`"owner":"operator","reason":"x","since":"2026-11-21T09:42:50Z"}]}`))
	f.Add([]byte(`{"schema":"gpuslot-holds/1","holds":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "holds.json")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		file, err := read(path)
		if err != nil {
			return
		}
		if err := NewTable(path).write(file); err != nil {
			t.Fatal(err)
		}
		again, err := read(path)
		if err != nil || again.List.Reason() != file.List.Reason() || len(again.List) != len(file.List) {
			t.Fatalf("%v became %v, %v", file, again, err)
		}
	})
}
