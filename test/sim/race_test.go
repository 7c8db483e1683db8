package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const racers, rounds = 8, 500

// TestRace: eight processes create and destroy on one GPU; nothing overlaps,
// and nothing is left.
func TestRace(t *testing.T) {
	needRoot(t)
	n := New(t, "550.163.01", "A100-40")
	n.Poke(t, "set", "0", "mig", "1")
	// One that fails keeps its instances, and the others would wait for them.
	ctx, stop := context.WithTimeout(t.Context(), 10*commandLimit)
	defer stop()
	var wait sync.WaitGroup
	for i := range racers {
		cmd := n.worker(ctx, t, "race", strconv.Itoa(i), strconv.Itoa(rounds))
		wait.Go(func() {
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("racer %d: %v\n%s", i, err, out)
				stop()
			}
		})
	}
	for finished := done(&wait); !finished(); {
		n.Poke(t, "check") // while they run: no two instances share a unit
	}
	if out := n.Poke(t, "check"); !strings.Contains(out, "instances 0") {
		t.Errorf("left behind: %s", out)
	}
}

// done tells without waiting whether a group has finished.
func done(wait *sync.WaitGroup) func() bool {
	end := make(chan struct{})
	go func() { wait.Wait(); close(end) }()
	return func() bool {
		select {
		case <-end:
			return true
		default:
			return false
		}
	}
}

// raceInstances creates and destroys at random places; the neighbours' are
// refused to it, its own are its own until it destroys them.
func raceInstances(lib nvml.Interface, args []string) error {
	seed, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		return err
	}
	rounds, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	d, ret := lib.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		return ret
	}
	r := rand.New(rand.NewPCG(seed, 1))
	for made := 0; made < rounds; {
		id := []uint32{19, 14, 9, 5, 15}[r.IntN(5)]
		gi, ret := d.CreateGpuInstance(info(id))
		if ret == nvml.ERROR_INSUFFICIENT_RESOURCES {
			continue // the neighbours have it all
		}
		if err := errors.Join(ok("create", ret), useInstance(gi, id)); err != nil {
			return err
		}
		made++
	}
	return nil
}

func useInstance(gi nvml.GpuInstance, id uint32) error {
	ci, ret := gi.CreateComputeInstance(&nvml.ComputeInstanceProfileInfo{Id: nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE})
	i, retInfo := gi.GetInfo()
	if err := errors.Join(ok("create 1c", ret), ok("info", retInfo)); err != nil {
		return err
	}
	if i.ProfileId != id {
		return fmt.Errorf("made profile %d, it is %d now", id, i.ProfileId)
	}
	return errors.Join(must("destroy under 1c", gi.Destroy(), nvml.ERROR_IN_USE), ok("destroy 1c", ci.Destroy()), ok("destroy", gi.Destroy()))
}

// TestKillInTheMiddle: a process that is killed while it writes leaves the last
// whole state and no lock.
func TestKillInTheMiddle(t *testing.T) {
	n := New(t, "550.163.01", "A100-40", "H100-80")
	before := n.Poke(t, "check")
	for range 3 {
		cmd := exec.CommandContext(t.Context(), filepath.Join(n.Dir, "bin/simpoke"), "tear")
		cmd.Env = n.Env()
		ready(t, cmd)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		if after := n.Poke(t, "check"); after != before {
			t.Fatalf("after a kill in the middle of an update: %q, was %q", after, before)
		}
	}
}

// TestKillWhileRacing: the same at any moment.
func TestKillWhileRacing(t *testing.T) {
	needRoot(t)
	n := New(t, "550.163.01", "A100-40")
	for i := range 10 {
		n.Poke(t, "make", "550.163.01", "A100-40") // what the killed one left is gone
		n.Poke(t, "set", "0", "mig", "1")
		cmd := n.worker(t.Context(), t, "race", strconv.Itoa(i), "1000000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for range 20 + 7*i { // some moments later, whatever a moment is
			n.Poke(t, "check")
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		n.Poke(t, "check")
	}
}

// TestStateAfterFork: parent and children have a lock each.
func TestStateAfterFork(t *testing.T) {
	New(t, "550.163.01", "T4").Poke(t, "fork")
}

// TestProcessesEnd: a process that is gone is out of every list at the next
// look, however it went.
func TestProcessesEnd(t *testing.T) {
	n := New(t, "550.163.01", "V100S")
	release := n.hold(t, "0", "-", "-")
	if out := n.Poke(t, "processes"); !strings.Contains(out, "gpu 0 1024 MiB") {
		t.Errorf("processes: %q", out)
	}
	release()
	if out := n.Poke(t, "processes"); out != "" {
		t.Errorf("after its end: %q", out)
	}
}
