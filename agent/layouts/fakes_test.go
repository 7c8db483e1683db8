package layouts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
	"github.com/gpuslot/gpuslot/test/instances"
)

const testGPU gpu.UUID = "GPU-00000000-0000-4000-8000-000000000000"

// node is a node with one GPU that can be divided. It is its jobs, control daemons, pool,
// metrics and events.
type node struct {
	*Layouts
	t    *testing.T
	gpu  *instances.GPU
	text string
	// planned is the last plan, and what it was made of.
	planned struct {
		text string
		inv  gpu.Inventory
		plan plan.Plan
	}
	// plan and out are those of the last round.
	plan plan.Plan
	out  Outcome

	running  []jobs.Job
	unknown  string
	reserved []gpu.UUID
	// owned is the PID of the control daemon of every MIG device, stopped those that were.
	owned   int
	stopped []gpu.UUID
	// evicted are the GPUs whose layout somebody kept from being changed.
	evicted []gpu.UUID
	probes  int
	beats   int
	demand  condor.Demand
	err     error
	// followed counts the layouts that followed the work.
	followed int
	noted    []string
	log      bytes.Buffer
}

// newNode is a node with a layout, after two rounds: the second finds it made.
func newNode(t *testing.T, layout, more string) *node {
	t.Helper()
	chip, err := mig.Model("A100-40GB", 550)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, gpu: instances.New(testGPU, chip)}
	n.divide(layout, more)
	dir := t.TempDir()
	n.Layouts = New(Options{
		Executor: mig.Executor{Hardware: n.gpu, Boot: "test"},
		Paths:    config.Paths{State: filepath.Join(dir, "s"), Run: filepath.Join(dir, "r")},
		Jobs:     n, Daemons: n, Metrics: n, Events: n,
		Log: slog.New(slog.NewTextHandler(&n.log, nil)), Beat: func() { n.beats++ },
		Evict: func(u gpu.UUID) { n.evicted = append(n.evicted, u) },
	})
	n.round()
	n.round()
	return n
}

// divide writes another configuration; without a layout the GPU is not to be divided.
func (n *node) divide(layout, more string) {
	n.text = ""
	if layout != "" {
		n.text = fmt.Sprintf("[gpu.%q]\nmode = \"mig\"\nmig_layout = %s\n%s", testGPU, layout, more)
	}
}

// round is what the agent's loop does: plan, make the layouts, plan again.
func (n *node) round() Outcome {
	n.t.Helper()
	n.out = n.Round(n.t.Context(), n.now())
	n.plan = n.now().Plan
	return n.out
}

func (n *node) now() Node {
	n.t.Helper()
	path := filepath.Join(n.t.TempDir(), "gpuslot.toml")
	if err := os.WriteFile(path, []byte(n.text), 0o644); err != nil {
		n.t.Fatal(err)
	}
	cfg, err := config.Load(path)
	if err != nil {
		n.t.Fatal(err)
	}
	s, _ := n.gpu.State(n.t.Context(), testGPU)
	inv := gpu.Inventory{
		Schema: gpu.InventorySchema, Driver: "550.163.01", CUDA: "12.4",
		Host: gpu.Host{Name: "wn1.example.org", CPUs: 64, Memory: 524288},
		GPUs: []gpu.GPU{{
			UUID: testGPU, Name: "NVIDIA A100-SXM4-40GB", PCI: "0000:10:00.0", Memory: 40960,
			Capability: s.Chip.Capability, Multiprocessors: 108, ComputeMode: gpu.ComputeModeDefault,
			MIGCapable: true, MIGEnabled: s.Enabled, MIGDevices: n.gpu.Devices(),
		}},
	}
	if owned := n.Owned(inv); n.text != n.planned.text || !reflect.DeepEqual(owned, n.planned.inv) { // else it is the same
		p, err := plan.Build(cfg, owned)
		if err != nil {
			n.t.Fatal(err)
		}
		n.planned.text, n.planned.inv, n.planned.plan = n.text, owned, p
	}
	return Node{Config: cfg, Plan: n.planned.plan, Inventory: inv}
}

// has are the places of the instances there are, in their order on the GPU.
func (n *node) has() string {
	s, _ := n.gpu.State(n.t.Context(), testGPU)
	slices.SortFunc(s.Instances, func(a, b gpu.Instance) int { return a.Start - b.Start })
	var all []string
	for _, i := range s.Instances {
		all = append(all, s.Chip.FormatPlace(i.Place))
	}
	return strings.Join(all, " ")
}

// place is the slot of a place.
func (n *node) place(name string) plan.GPU {
	n.t.Helper()
	for _, g := range n.plan.GPUs {
		if g.Place == name {
			return g
		}
	}
	n.t.Fatalf("there is no slot for %s", name)
	return plan.GPU{}
}

// job runs at a place.
func (n *node) job(slot, place string) {
	n.t.Helper()
	g := n.place(place)
	n.running = append(n.running, jobs.Job{Starter: starter.Starter{Slot: slot}, GPU: g.UUID, Device: g.Device})
}

// ask lets the pool say what waits, and decides.
func (n *node) ask(waiting ...condor.Waiting) Outcome {
	n.t.Helper()
	n.demand = condor.Demand{At: time.Now(), Nodes: 1, Waiting: waiting}
	n.Answered(n.demand, n.err)
	return n.round()
}

func (n *node) Running() []jobs.Job { return n.running }
func (n *node) Unknown() string     { return n.unknown }

func (n *node) Reserve(devices []gpu.UUID) string {
	for _, j := range n.running {
		if slices.Contains(devices, j.GPU) || slices.Contains(devices, j.Device) {
			return j.Starter.Slot
		}
	}
	n.reserved = append(n.reserved, devices...)
	return ""
}

func (n *node) Stop(_ context.Context, u gpu.UUID) error {
	if n.err != nil {
		return n.err
	}
	n.stopped = append(n.stopped, u)
	return nil
}

func (n *node) Owns(_ gpu.UUID, pid int) bool { return pid == n.owned }

func (n *node) Probe(_ context.Context, but gpu.UUID) {
	if but == testGPU {
		n.probes++
	}
}

func (n *node) LayoutFollowed(gpu.UUID) { n.followed++ }
func (n *node) Event(e history.Event)   { n.noted = append(n.noted, e.Text) }

var errNo = errors.New("no")
