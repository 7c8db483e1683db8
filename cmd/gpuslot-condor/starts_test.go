package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// linkTo makes the agent's word for supervisors, and returns the socket that it stands beside.
func linkTo(t *testing.T, word string) (socket string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "condor"), 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	switch word {
	case "":
	case "a file":
		err = os.WriteFile(filepath.Join(dir, "condor", "start"), nil, 0o600)
	default:
		err = os.Symlink(word, filepath.Join(dir, "condor", "start"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "agent.sock")
}

// TestStarts: where the agent must say the word, jobs do not start without it. Since is when that was first so.
func TestStarts(t *testing.T) {
	silent := errors.New("no answer")
	before := time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		word, noStart string
		err           error
		last          string // the reason an hour ago
		reason        string
		since         bool // for an hour
	}{
		"nothing to ask":             {err: silent, noStart: "closed", reason: "", since: true},
		"it may start without":       {word: "other", err: silent, noStart: "closed", reason: "", since: true},
		"the agent is silent":        {word: api.StartRequired, err: silent, noStart: "closed", reason: "no answer"},
		"it says no, without a link": {noStart: "closed", reason: "closed"},
		"it says no":                 {word: api.StartRequired, noStart: "closed", reason: "closed"},
		"it says no, as before":      {word: api.StartRequired, noStart: "closed", last: "closed", reason: "closed", since: true},
		"it says yes":                {word: api.StartRequired, last: "closed", reason: ""},
		"it says yes, as before":     {word: api.StartRequired, reason: "", since: true},
		"the word cannot be read":    {word: "a file", reason: "invalid argument"},
		"that and no answer as well": {word: "a file", err: silent, reason: "invalid argument"},
	} {
		socket := linkTo(t, c.word)
		got := starts(socket, c.noStart, c.err, &condor.StartsState{Reason: c.last, Since: before, Time: before})
		if (got.Reason == "") != (c.reason == "") || !strings.Contains(got.Reason, c.reason) || got.Since.Equal(before) != c.since || !got.Time.After(before) {
			t.Errorf("%s: %+v", name, got)
		}
		if first := starts(socket, c.noStart, c.err, nil); first.Reason != got.Reason || !first.Since.Equal(first.Time) {
			t.Errorf("%s: the first time %+v", name, first)
		}
	}
}

// TestStartUnasked: a job with a GPU is supervised where there is nothing to ask for.
func TestStartUnasked(t *testing.T) {
	for gpus, want := range map[string]bool{"": false, noGPUs: false, "GPU-5a1e0c11": true, "GPU-5a1e0c11,GPU-5a1e0c12": true} {
		p := program{getenv: func(name string) string { return map[string]string{assignedGPUs: gpus}[name] }, stderr: &bytes.Buffer{}}
		got, err := p.start(options{socket: linkTo(t, "")})
		if err != nil || got.Supervise != want {
			t.Errorf("%q: %+v, %v", gpus, got, err)
		}
	}
}

// TestLookOfElastic: elastic GPUs that the agent named before are closed while it does not answer.
func TestLookOfElastic(t *testing.T) {
	p := program{stderr: &bytes.Buffer{}}
	o := options{socket: filepath.Join(t.TempDir(), "agent.sock"), timeout: time.Millisecond}
	if s := p.look(o, nil, said{}); s.whole != nil || s.starts != nil {
		t.Errorf("there were none: %+v, %+v", s.whole, s.starts)
	}
	if s := p.look(o, nil, said{whole: &condor.ElasticState{Open: 2}}); s.whole == nil || s.whole.Open != 0 || s.whole.Reason == "" {
		t.Errorf("%+v", s.whole)
	}
}

// TestNewsOfWhole: the ad of the whole GPUs has all of them as soon as one changes, and is left out while none does.
func TestNewsOfWhole(t *testing.T) {
	const closedOne, closedTwo = "GPU-00000001-5be4-11f1-9c2d-0242ac120002", "GPU-00000002-5be4-11f1-9c2d-0242ac120002"
	state := func(u gpu.UUID, whole bool, reason string) condor.GPUState {
		return condor.GPUState{UUID: u, Whole: whole, Accept: reason == "", Reason: reason}
	}
	a, b, shared := state(closedOne, true, "lost"), state(closedTwo, true, ""), state("GPU-3", false, "")
	last := said{states: []condor.GPUState{a, b, shared}, printed: time.Now()}
	now := last
	now.states = []condor.GPUState{a, b, state("GPU-3", false, "hot")}
	if text := string(now.news(last)); strings.Contains(text, "GPUSlotWhole") || !strings.Contains(text, "hot") {
		t.Errorf("a shared one changed: %s", text)
	}
	now.states = []condor.GPUState{a, state(closedTwo, true, "hot"), shared}
	text := string(now.news(last))
	if !strings.Contains(text, closedOne[len("GPU-"):]) || !strings.Contains(text, closedTwo[len("GPU-"):]) || strings.Contains(text, "GPU-3") {
		t.Errorf("a whole one changed: %s", text)
	}
}

// TestReportsAreKept: what was printed is remembered until the next report is due.
func TestReportsAreKept(t *testing.T) {
	begin, peak := time.Now(), int64(800)
	told := reports{}
	for i, want := range []int{1, 0, 0, 0, 0, 0, 1, 0} { // a twentieth of the job's life of 100 s, and some
		var news []condor.Use
		told, news = told.next([]api.Use{{Slot: "slot1_2", Job: "7.0", Seconds: 100 + float64(i), PeakMiB: &peak}}, begin.Add(time.Duration(i)*time.Second))
		if len(news) != want {
			t.Errorf("after %d s: %d, want %d", i, len(news), want)
		}
	}
}
