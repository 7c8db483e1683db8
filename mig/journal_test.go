package mig

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpuslot/gpuslot/gpu"
)

func fullBook() Journal {
	step := Step{Verb: Create, GPU: testGPU, Place: four0, Size: 4, Name: "4g.20gb"}
	applied := on(two0, two2)
	return Journal{Schema: journalSchema, GPU: testGPU, Boot: "first", Generation: 7, Owned: []Owned{{two0, 6}, {two2, 7}}, Applied: &applied,
		Change: &Change{Former: on(two0, two2), Wanted: on(four0), Step: &step}, Degraded: "why"}
}

func TestBook(t *testing.T) {
	dir := t.TempDir()
	if b, err := ReadJournal(dir, testGPU); err != nil || b.Change != nil || b.GPU != testGPU {
		t.Errorf("without a file: %+v, %v", b, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "mig"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := fullBook().write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := ReadJournal(dir, testGPU)
	if d := cmp.Diff(fullBook(), got); d != "" || err != nil {
		t.Errorf("%v (-written +read):\n%s", err, d)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "mig", "*")); len(left) != 1 {
		t.Errorf("files: %v", left)
	}
	for text, says := range map[string]string{
		"":                            "EOF",
		`{"schema": "gpuslot-mig/2"}`: `schema is "gpuslot-mig/2", this gpuslot reads "gpuslot-mig/1"`,
		`{"schema": "gpuslot-mig/1", "gpu": "GPU-0000000b-0000-4000-8000-000000000000"}`: "it is of GPU-0000000b",
		`{"schema": "gpuslot-mig/1", "owner": 1}`:                                        "unknown field",
		`{"schema": "gpuslot-mig/1"} {}`:                                                 "more than one journal",
		`{"schema": "gpuslot-mig/1"}]`:                                                   "text after its end",
		"\x00\xff":                                                                       "invalid character",
		"null":                                                                           `schema is ""`,
		`{"schema": "gpuslot-mig/1", "gpu": "GPU-`:                                       "unexpected EOF",
	} {
		if err := os.WriteFile(JournalFile(dir, testGPU), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadJournal(dir, testGPU); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "left alone until the file is mended") {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

// TestSettle: what a killed process made is ours by its intent, and nothing else is.
func TestSettle(t *testing.T) {
	f := newFake(t)
	f.put(two2, 2)
	f.put(four0, 4) // the law has no part in this
	f.put(three4, 4)
	b := fullBook()
	s := b.settle(f.s, "first")
	if d := cmp.Diff([]Owned{{four0, 8}, {two2, 7}}, b.Owned); d != "" {
		t.Errorf("two0 is gone and four0 was under way (-want +got):\n%s", d)
	}
	for _, i := range s.Instances {
		if _, ours := b.Owns(i.Place); ours != (i.Owner == gpu.Ours) || ours == (i.Place == three4) {
			t.Errorf("%+v", i)
		}
	}
	if f.s.Instances[0].Owner != gpu.Foreign {
		t.Error("settle writes into the state that it was given")
	}
	b = fullBook()
	if b.settle(f.s, "second"); len(b.Owned) > 0 || b.Boot != "second" || b.Change == nil {
		t.Errorf("of another boot: %+v", b)
	}
}

// layoutsOf are all layouts that a journal names.
func layoutsOf(b Journal) (all []gpu.Layout) {
	var owned gpu.Layout
	for _, o := range b.Owned {
		owned = append(owned, o.Place)
	}
	all = append(all, owned)
	if b.Applied != nil {
		all = append(all, b.Applied.Layout)
	}
	if b.Change != nil {
		all = append(all, b.Change.Former.Layout, b.Change.Wanted.Layout)
	}
	return all
}

// FuzzBook: what is read is written as the same, and layouts are in order.
func FuzzBook(f *testing.F) {
	text, err := json.Marshal(fullBook())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(strings.ReplaceAll(`{"schema": "gpuslot-mig/1", "gpu": "GPU-0000000a-0000-4000-8000-000000000000", "owned": L, "applied": {"layout": L},
		"change": {"former": {"layout": L}, "wanted": {"layout": L}}}`, "L", `[{"profile": 9, "start": 4}, {"profile": 9, "start": 0}]`)))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := parseJournal(text)
		if err != nil {
			return
		}
		again, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		c, err := parseJournal(again)
		if err != nil {
			t.Fatalf("%v in %s", err, again)
		}
		if d := cmp.Diff(b, c, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("(-read +again):\n%s", d)
		}
		for _, l := range layoutsOf(b) {
			if !slices.IsSortedFunc(l, gpu.Place.Compare) {
				t.Fatalf("%v is not in order", l)
			}
		}
		for _, o := range b.Owned {
			if _, ours := b.Owns(o.Place); !ours {
				t.Fatalf("%v is not found again", o)
			}
		}
	})
}
