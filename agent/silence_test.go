package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/server"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// A startd that does not ask is an error in status and metrics, wherever it should ask.
func TestSilence(t *testing.T) {
	long := 2 * time.Minute
	answering := func(t *testing.T, text string) *testAgent {
		ta := newTestAgent(t, 1, text)
		ta.startd.set([]condor.Slot{{Name: "slot1@x", Type: "Partitionable"}}, nil)
		ta.startds.Ask(t.Context())
		return ta
	}
	silent := func(ta *testAgent, after time.Duration) (time.Duration, bool) {
		s := ta.reader.Take(time.Now().Add(after))
		return s.Silent, s.SilentKnown
	}
	ta := answering(t, "")
	if d, known := silent(ta, 0); d != 0 || known {
		t.Errorf("a startd that has just answered is silent for %s, known %v", d, known)
	}
	if d, known := silent(ta, long); d < long-time.Second || !known {
		t.Errorf("it never asked: silent for %s, known %v", d, known)
	}
	ta.answers.feedback.Note(api.OpUsage, true, time.Now())
	if d, _ := silent(ta, long); d == 0 {
		t.Error("another question is taken for the one about GPUs")
	}
	ta.answers.feedback.Note(api.OpMonitor, true, time.Now())
	if d, known := silent(ta, 0); d != 0 || !known {
		t.Errorf("it asked: silent for %s, known %v", d, known)
	}
	if d, _ := silent(ta, long); d == 0 {
		t.Error("it asked once, and is not silent two minutes later")
	}
	for name, ta := range map[string]func(t *testing.T) *testAgent{
		"observed":     func(t *testing.T) *testAgent { return answering(t, observing) },
		"left to site": func(t *testing.T) *testAgent { return answering(t, "[htcondor]\nmanage = false\n") },
		"no answer": func(t *testing.T) *testAgent {
			ta := answering(t, "")
			ta.startd.set(nil, context.DeadlineExceeded)
			ta.startds.Ask(t.Context())
			return ta
		},
		"quiescing": func(t *testing.T) *testAgent {
			ta := answering(t, "")
			if _, err := ta.answers.askNode(api.Request{Verb: api.VerbQuiesce, Reason: "driver"}); err != nil {
				t.Fatal(err)
			}
			return ta
		},
	} {
		if d, known := silent(ta(t), long); d != 0 || known {
			t.Errorf("%s: silent for %s, known %v", name, d, known)
		}
	}
	ta.answers.feedback = server.Feedback{}
	ta.startds.Said().Answers = time.Now().Add(-long)
	s := ta.status()
	if len(s.Errors) != 1 || !strings.Contains(s.Errors[0], "has not asked for 2m") || s.GPUs[0].Accept || !strings.Contains(s.GPUs[0].Reason, "has not asked") {
		t.Errorf("status: %q, GPU %+v", s.Errors, s.GPUs[0])
	}
	asks, _ := value(scrapeOf(t, ta.Agent), "gpuslot_startd_asks")
	accepts, known := value(scrapeOf(t, ta.Agent), "gpuslot_gpu_accepting{")
	if asks != 0 || accepts != 0 || !known {
		t.Errorf("metrics: asks %v, accepts %v", asks, accepts)
	}
	if !ta.answers.acceptances()[0].Accept {
		t.Error("its next question would hear that the GPU is closed")
	}
}

// TestSettingsOfTheFirstRound: HTCondor's settings are read before the agent's file is
// there, and again after it was written, so that no error says that it is not read.
func TestSettingsOfTheFirstRound(t *testing.T) {
	ta := bareTestAgent(t, 1, "")
	ta.restart()
	file := ta.view.Load().config.Paths.CondorConfig()
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	ta.htcondor.settings = func(context.Context) (condor.Settings, error) { // as condor_config_val reads the file
		now := condor.Settings{}
		text, _ := os.ReadFile(file)
		for k := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(k), " = "); ok {
				now[strings.ToLower(name)] = condor.Setting{Name: name, Value: value, Place: file + ", line 1"}
			}
		}
		return now, nil
	}
	ta.apply(true)
	if errs := ta.status().Errors; len(errs) > 0 {
		t.Errorf("errors %q", errs)
	}
}

// What the site's settings do stands in status with file and line, where the advice to
// restart stood that changes nothing; and the plan keeps to what they leave.
func TestSiteSettings(t *testing.T) {
	ta := bareTestAgent(t, 1, "[htcondor]\nchanges = \"drain\"\n")
	const site = "/etc/condor/config.d/90-site.conf, line 3"
	settings := condor.Settings{}
	set := func(name, value, place string) {
		settings[strings.ToLower(name)] = condor.Setting{Name: name, Value: value, Place: place}
	}
	set("NUM_CPUS", "20", site)
	set("RESERVED_MEMORY", "1000", site)
	set("NUM_SLOTS_TYPE_1", "1", site)
	ta.restart()
	ta.htcondor.settings = func(context.Context) (condor.Settings, error) { return settings, nil }
	host := ta.view.Load().plan.Host
	v := ta.apply(true)
	if want := (gpu.Host{Name: host.Name, CPUs: 20, Memory: host.Memory - 1000}); v.plan.Host != want {
		t.Errorf("the plan's host is %+v, want %+v", v.plan.Host, want)
	}
	config := ta.read(v.config.Paths.CondorConfig())
	if !strings.Contains(config, "\nSTARTD.NUM_SLOTS_TYPE_1 = 0\n") {
		t.Error("the site's slot type still has slots")
	}
	for _, k := range strings.Split(config, "\n") { // as condor_config_val reads the file
		if name, value, ok := strings.Cut(k, " = "); ok {
			set(name, value, v.config.Paths.CondorConfig()+", line 1")
		}
	}
	set("SLOT_TYPE_101_START", "true", site)
	ta.apply(true)
	if s := ta.status(); len(s.Errors) != 1 || !strings.Contains(s.Errors[0], "SLOT_TYPE_101_START = true ("+site+")") {
		t.Errorf("errors %q", s.Errors)
	}
	if !strings.Contains(strings.Join(ta.status().Warnings, "\n"), "NUM_SLOTS_TYPE_1 = 1 ("+site+") counts no more") {
		t.Errorf("warnings %q", ta.status().Warnings)
	}
	set("MACHINE_RESOURCE_NAMES", "GPUs", site)
	ta.apply(true)
	ta.startd.set([]condor.Slot{{Name: "slot1@x", Type: "Partitionable", Plan: "old"}}, nil)
	ta.startds.Ask(t.Context())
	changes := ta.status().Changes
	if len(changes) != 1 || !strings.Contains(changes[0].Says, "a restart does not change that: MACHINE_RESOURCE_NAMES = GPUs ("+site+")") {
		t.Errorf("changes %+v", changes)
	}
	if len(ta.startd.orders) > 0 {
		t.Errorf("the startd was told %q, which changes nothing", ta.startd.orders)
	}
}
