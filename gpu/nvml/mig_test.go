//go:build cgo

package nvml

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/sim"
)

// inside names the node of a test that runs in a process of its own: a process
// loads one NVML.
const inside = "GPUSLOT_NVML_TEST_NODE"

// onNode runs the rest of the test in a child that lives on the node; it
// returns the library there, and nil in the parent.
func onNode(t *testing.T, node func() *sim.Node) *Library {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: MIG and modes are root's")
	}
	if os.Getenv(inside) == "" {
		n := node()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v", "-test.count=1")
		cmd.Env = append(n.Env(), inside+"="+n.Dir)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return nil
	}
	l, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.WithoutCancel(t.Context())) })
	return l
}

func simgpu(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(os.Getenv(inside), "bin/simgpu"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("simgpu %v: %v: %s", args, err, out)
	}
}

func onlyGPU(t *testing.T, l *Library) (MIG, gpu.UUID) {
	t.Helper()
	inv, _, err := l.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l.MIG(), inv.GPUs[0].UUID
}

func state(t *testing.T, m MIG, u gpu.UUID) gpu.MIGState {
	t.Helper()
	s, err := m.State(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// published is what test/sim/testdata/profiles.json says of one model.
type published struct {
	Model    string
	Profiles []struct {
		Name               string
		ID, Slices         int
		Starts             []int
		Size, Max, SM, MiB int
	}
}

func publishedOf(t *testing.T, model string) published {
	t.Helper()
	b, err := os.ReadFile("../../test/sim/testdata/profiles.json")
	var all []published
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(p published) bool { return p.Model == model })
	return all[i]
}

// TestMIGProfiles reads every profile as the public listings print it, on each
// driver that the simulated node can be: none of them may be asked for a call
// that it lacks, which would end the process.
func TestMIGProfiles(t *testing.T) {
	for _, branch := range sim.Branches() {
		for _, model := range []string{"A30", "A100-40", "H100-80", "V100S"} {
			t.Run(branch+"-"+model, func(t *testing.T) {
				l := onNode(t, func() *sim.Node { return sim.NewVariant(t, branch, model) })
				if l == nil {
					return
				}
				m, u := onlyGPU(t, l)
				s := state(t, m, u)
				if s.Capable != (model != "V100S") || s.Enabled {
					t.Fatalf("%+v", s)
				}
				if s.Capable {
					compareProfiles(t, publishedOf(t, model), s.Chip)
				}
			})
		}
	}
}

func compareProfiles(t *testing.T, want published, chip gpu.Chip) {
	t.Helper()
	found := 0
	for _, w := range want.Profiles {
		p, ok := chip.Profile(gpu.ProfileID(w.ID))
		if !ok && strings.HasSuffix(w.Name, "+me") || !ok && strings.HasPrefix(w.Name, "1g.") {
			continue // media and double-memory profiles came with later drivers
		}
		found++
		if p.Name != w.Name || p.Slices != w.Slices || !slices.Equal(p.Starts, w.Starts) || p.Size != w.Size || p.Max != w.Max ||
			p.Multiprocessors != w.SM || p.Memory != gpu.MiB(w.MiB) {
			t.Errorf("%+v, want %+v", p, w)
		}
	}
	if found < 3 || len(chip.Profiles) != found {
		t.Errorf("%d profiles, %d of them published", len(chip.Profiles), found)
	}
}

// TestMIGInstances goes through the life of instances on every driver.
func TestMIGInstances(t *testing.T) {
	for _, branch := range sim.Branches() {
		t.Run(branch, func(t *testing.T) {
			l := onNode(t, func() *sim.Node { return sim.NewVariant(t, branch, "H100-80") })
			if l == nil {
				return
			}
			m, u := onlyGPU(t, l)
			lifeOfInstances(t, m, u)
		})
	}
}

var (
	double = gpu.Place{Profile: 15, Start: 6}
	three  = gpu.Place{Profile: 9, Start: 0}
)

func lifeOfInstances(t *testing.T, m MIG, u gpu.UUID) {
	t.Helper()
	ctx := t.Context()
	if err := m.Create(ctx, u, three, 4); err == nil {
		t.Error("an instance without MIG mode")
	}
	for range 2 { // twice: it is on already
		if err := m.SetMode(ctx, u, true); err != nil {
			t.Fatal(err)
		}
	}
	wanted := gpu.NewLayout(three)
	_, hasDouble := state(t, m, u).Chip.Profile(double.Profile)
	if hasDouble { // H100: 26 multiprocessors, of which the first compute profile has 16
		wanted = gpu.NewLayout(three, double)
	}
	for _, p := range append(slices.Clone(wanted), wanted...) {
		if err := m.Create(ctx, u, p, map[gpu.ProfileID]int{9: 4, 15: 2}[p.Profile]); err != nil {
			t.Fatal(err)
		}
	}
	s := state(t, m, u)
	if !s.Enabled || !s.Pending || !s.Layout().Equal(wanted) {
		t.Fatalf("%+v", s)
	}
	for _, i := range s.Instances {
		uuid, ok := i.UUID()
		p, _ := s.Chip.Profile(i.Profile)
		if !ok || !uuid.IsMIG() || i.Owner != gpu.Foreign || i.Size != p.Size || i.Compute[0].Multiprocessors != p.Multiprocessors {
			t.Errorf("%+v of %+v", i, p)
		}
	}
	if err := m.Create(ctx, u, gpu.Place{Profile: 5}, 4); !errors.Is(err, gpu.ErrNoRoom) {
		t.Errorf("4g over 3g: %v", err)
	}
	for range 2 { // twice: it is gone already
		if err := m.Destroy(ctx, u, three); err != nil {
			t.Error(err)
		}
		if s := state(t, m, u); !s.Layout().Equal(wanted.Without(gpu.NewLayout(three))) {
			t.Errorf("%+v", s.Instances)
		}
	}
}

// TestMIGRefusals: what the driver refuses, and what stays behind.
func TestMIGRefusals(t *testing.T) {
	l := onNode(t, func() *sim.Node { return sim.New(t, "550.163.01", "A100-40") })
	if l == nil {
		return
	}
	m, u := onlyGPU(t, l)
	ctx := t.Context()
	simgpu(t, "set", "0", "reset-blocked", "yes")
	if err := m.SetMode(ctx, u, true); !errors.Is(err, gpu.ErrResetRequired) {
		t.Errorf("MIG mode without a reset: %v", err)
	}
	if s := state(t, m, u); s.Enabled || !s.Pending {
		t.Errorf("%+v", s)
	}
	simgpu(t, "set", "0", "reset-blocked", "no")
	if err := m.SetMode(ctx, u, true); err != nil {
		t.Fatal(err)
	}
	simgpu(t, "fail", "0", "nvmlGpuInstanceCreateComputeInstance", "19", "1") // IN_USE
	if err := m.Create(ctx, u, three, 4); !errors.Is(err, gpu.ErrInUse) {
		t.Errorf("create: %v", err)
	}
	if s := state(t, m, u); len(s.Instances) > 0 {
		t.Errorf("a GPU instance without a compute instance stays: %+v", s.Instances)
	}
	if err := m.Create(ctx, u, three, 4); err != nil {
		t.Fatal(err)
	}
	holder := exec.CommandContext(ctx, "sleep", "60")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
	busy := state(t, m, u).Instances[0]
	simgpu(t, "process", "add", itoa(holder.Process.Pid), "0", "100", "10", itoa(busy.ID), itoa(busy.Compute[0].ID))
	if err := m.Destroy(ctx, u, three); !errors.Is(err, gpu.ErrInUse) {
		t.Errorf("destroy under a process: %v", err)
	}
	after := state(t, m, u).Instances[0]
	if d := cmp.Diff([]gpu.Holder{{PID: holder.Process.Pid}}, after.Holders); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if err := m.SetMode(ctx, u, false); !errors.Is(err, gpu.ErrInUse) {
		t.Errorf("MIG mode off under a process: %v", err)
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

// TestMIGClients: the clients of a control daemon inside an instance stand in a
// list of their own.
func TestMIGClients(t *testing.T) {
	l := onNode(t, func() *sim.Node { return sim.New(t, "550.163.01", "A100-40") })
	if l == nil {
		return
	}
	m, u := onlyGPU(t, l)
	ctx := t.Context()
	if err := errors.Join(m.SetMode(ctx, u, true), m.Create(ctx, u, three, 4)); err != nil {
		t.Fatal(err)
	}
	uuid, _ := state(t, m, u).Instances[0].UUID()
	dir := t.TempDir()
	t.Setenv("CUDA_VISIBLE_DEVICES", uuid.String())
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", dir)
	t.Setenv("CUDA_MPS_LOG_DIRECTORY", dir)
	t.Setenv("PATH", filepath.Join(os.Getenv(inside), "bin")+":"+os.Getenv("PATH")) // the daemon starts the server
	simgpu(t, "lists", "mps")
	control := filepath.Join(os.Getenv(inside), "bin/nvidia-cuda-mps-control")
	if out, err := exec.CommandContext(ctx, control, "-d").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer func() {
		quit := exec.CommandContext(context.WithoutCancel(ctx), control)
		quit.Stdin = strings.NewReader("quit\n")
		_ = quit.Run()
	}()
	client := exec.CommandContext(ctx, filepath.Join(os.Getenv(inside), "bin/simjob"), "alloc", "64", "until", "eof")
	in, err1 := client.StdinPipe()
	out, err2 := client.StdoutPipe()
	if err := errors.Join(err1, err2, client.Start()); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan() && !strings.HasPrefix(lines.Text(), "alloc 64 MiB: ok"); {
		t.Log(lines.Text())
	}
	holders := state(t, m, u).Instances[0].Holders
	if len(holders) != 2 || !slices.Contains(holders, gpu.Holder{PID: client.Process.Pid}) {
		t.Errorf("%+v, want the server and the client %d", holders, client.Process.Pid)
	}
	_ = in.Close()
	if err := client.Wait(); err != nil {
		t.Error(err)
	}
}

// TestMIGHalfMade: a GPU instance without compute instance is seen and completed.
func TestMIGHalfMade(t *testing.T) {
	l := onNode(t, func() *sim.Node { return sim.New(t, "550.163.01", "A100-40") })
	if l == nil {
		return
	}
	m, u := onlyGPU(t, l)
	ctx := t.Context()
	if err := m.SetMode(ctx, u, true); err != nil {
		t.Fatal(err)
	}
	// The compute instance fails, and so does taking the GPU instance back.
	simgpu(t, "fail", "0", "nvmlGpuInstanceCreateComputeInstance", "999", "1")
	simgpu(t, "fail", "0", "nvmlGpuInstanceDestroy", "999", "1")
	if err := m.Create(ctx, u, three, 4); err == nil {
		t.Fatal("created")
	}
	if s := state(t, m, u); len(s.Instances) != 1 || len(s.Instances[0].Compute) != 0 {
		t.Fatalf("%+v", s.Instances)
	}
	if err := m.Create(ctx, u, three, 4); err != nil {
		t.Fatal(err)
	}
	if s := state(t, m, u); len(s.Instances) != 1 || len(s.Instances[0].Compute) != 1 {
		t.Errorf("%+v", s.Instances)
	}
}

// TestInventoryOfMIGDevices: the inventory has the devices that own their GPU
// instance, and says "none" where MIG mode is on without one.
func TestInventoryOfMIGDevices(t *testing.T) {
	l := onNode(t, func() *sim.Node { return sim.New(t, "550.163.01", "A100-40") })
	if l == nil {
		return
	}
	read := func() []gpu.MIGDevice {
		t.Helper()
		inv, unreadable, err := l.Inventory(t.Context())
		if err != nil || len(unreadable) > 0 {
			t.Fatal(err, unreadable)
		}
		return inv.GPUs[0].MIGDevices
	}
	if got := read(); got != nil {
		t.Errorf("without MIG mode there is %+v", got)
	}
	simgpu(t, "mig", "0", "on")
	if got := read(); got == nil || len(got) != 0 {
		t.Errorf("without an instance there is %+v", got)
	}
	simgpu(t, "mig", "0", "create", "3g.20gb@4", "1g.5gb@0")
	m, u := onlyGPU(t, l)
	s := state(t, m, u)
	got := read()
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	for _, d := range got {
		i := slices.IndexFunc(s.Instances, func(i gpu.Instance) bool { return i.ID == d.GPUInstance })
		p, _ := s.Chip.Profile(s.Instances[i].Profile)
		same, ok := s.Instances[i].UUID()
		if !ok || d.UUID != same || d.Start == nil || *d.Start != s.Instances[i].Start || d.Profile != p.Name || d.Multiprocessors != p.Multiprocessors || d.Memory < p.Memory-64 || d.Memory > p.Memory || d.Reserved == nil || *d.Reserved != 0 {
			t.Errorf("%+v of profile %+v, UUID %s", d, p, same)
		}
	}
}
