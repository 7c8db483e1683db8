package scenes

// The tests of this file take longest. go test starts parallel tests from the last to the first (only the very first
// comes before them), so the longest are the last of the last file.

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/site"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := site.Unstage(); err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		code = max(code, 1)
	}
	os.Exit(code)
}

func playScenes(t *testing.T, leg site.Leg, path string, scenes []Scene) {
	t.Parallel()
	inv := inventory(t, path)
	s := startSite(t, site.Options{Leg: leg, Inventory: &inv, Race: leg == site.Sim})
	must(t, s.WaitAccept(t.Context(), len(inv.GPUs)))
	for _, scene := range scenes {
		if scene.Leg != leg {
			continue
		}
		t.Run(scene.Name, func(t *testing.T) {
			begin := time.Now()
			st := stageOn(t, s, inv)
			must(t, scene.Play(t.Context(), st))
			done(t, st)
			t.Logf("leg %s, %s: %s", leg, scene.Name, time.Since(begin).Round(time.Second))
		})
	}
	if leg != site.Sim {
		return
	}
	races, err := s.Races(t.Context())
	must(t, err)
	if races != "" {
		t.Error(races)
	}
}

// TestDemo plays what "make demo" shows, with fewer jobs.
func TestDemo(t *testing.T) { playScenes(t, site.Sim, exampleNode, Demo(40)) }

// TestScenes plays what the demo shows with real control daemons, on one node,
// one after the other: a scene begins and ends with a node without jobs.
func TestScenes(t *testing.T) { playScenes(t, site.Real, exampleNode, All()) }

// endings are the scenes in which jobs, servers or GPUs end badly.
var endings = []string{"KilledBusy", "OverBudget", "RemovedBusy", "ServerFault", "ServerSuspended"}

func ends(s Scene) bool { return slices.Contains(endings, s.Name) }

// TestSimulatedEndings plays them with simulated daemons and servers, on one node of two kinds of GPU. The agent has
// the race detector.
func TestSimulatedEndings(t *testing.T) {
	playScenes(t, site.Sim, mixedNode, slices.DeleteFunc(All(), func(s Scene) bool { return !ends(s) }))
}

// TestSimulatedJobs plays the others on another such node.
func TestSimulatedJobs(t *testing.T) {
	playScenes(t, site.Sim, mixedNode, slices.DeleteFunc(All(), ends))
}
