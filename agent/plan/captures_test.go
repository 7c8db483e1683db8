package plan_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// A capture is what a real GPU reported, in a file of testdata/captures.
type capture struct {
	Source     string                `json:"source"`
	Name       string                `json:"name"`
	Driver     string                `json:"driver"`
	CUDA       string                `json:"cuda"`
	Capability gpu.ComputeCapability `json:"compute_capability"`
	Memory     gpu.MiB               `json:"memory_mib"`
	Reserved   gpu.MiB               `json:"reserved_mib"`
	Idle       use                   `json:"idle"`
	// Desktop says that the idle use is that of a desktop.
	Desktop bool `json:"desktop"`
	// Load is the same GPU with processes.
	Load *struct {
		Processes []gpu.MiB `json:"processes_mib"`
		use
	} `json:"load"`
	Devices []struct {
		Profile         string  `json:"profile"`
		GPUInstance     int     `json:"gpu_instance"`
		Memory          gpu.MiB `json:"memory_mib"`
		Reserved        gpu.MiB `json:"reserved_mib"`
		Multiprocessors int     `json:"multiprocessors"`
		Idle            use     `json:"idle"`
	} `json:"mig_devices"`
}

type use struct {
	Used gpu.MiB `json:"used_mib"`
	Free gpu.MiB `json:"free_mib"`
}

// captures reads the facts of each.
func captures(t *testing.T) map[string]capture {
	t.Helper()
	files, err := filepath.Glob("testdata/captures/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	out := map[string]capture{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		var c capture
		if err := d.Decode(&c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if c.Source == "" || c.Name == "" || c.Memory == 0 {
			t.Fatalf("%s: no source, name or memory", file)
		}
		out[strings.TrimSuffix(filepath.Base(file), ".json")] = c
	}
	return out
}

// node is a node with this GPU, and how much of the GPU and of its MIG devices is free
// while nothing runs.
func (c capture) node() (inv gpu.Inventory, free map[gpu.UUID]gpu.MiB) {
	g := gpu.GPU{
		UUID: uuid(1), Name: c.Name, PCI: "0000:1a:00.0", Memory: c.Memory, Reserved: &c.Reserved, Capability: c.Capability,
		MIGCapable: len(c.Devices) > 0, MIGEnabled: len(c.Devices) > 0,
	}
	free = map[gpu.UUID]gpu.MiB{g.UUID: c.Idle.Free}
	for i, d := range c.Devices {
		if strings.Contains(d.Profile, "c.") {
			continue // a part of a GPU instance: NVML's reader leaves it out
		}
		u := gpu.UUID(fmt.Sprintf("MIG-%08x-0000-5000-8000-000000000000", i+1))
		g.MIGDevices = append(g.MIGDevices, gpu.MIGDevice{
			UUID: u, Profile: d.Profile, GPUInstance: d.GPUInstance, Memory: d.Memory, Reserved: &d.Reserved, Multiprocessors: d.Multiprocessors,
		})
		free[u] = d.Idle.Free
	}
	inv = gpu.Inventory{Schema: gpu.InventorySchema, Host: gpu.Host{Name: "wn-gpu1", CPUs: 64, Memory: 1 << 20}, Driver: c.Driver, CUDA: c.CUDA, GPUs: []gpu.GPU{g}}
	return inv, free
}

// TestCapturesAddUp holds the facts to each other: NVML rounds each to whole MiB.
func TestCapturesAddUp(t *testing.T) {
	for name, c := range captures(t) {
		near := func(what string, a, b gpu.MiB) {
			if d := a - b; d < -2 || d > 2 {
				t.Errorf("%s: %s: %d is not %d", name, what, a, b)
			}
		}
		near("idle", c.Reserved+c.Idle.Used+c.Idle.Free, c.Memory)
		if c.Load != nil {
			near("load", c.Reserved+c.Load.Used+c.Load.Free, c.Memory)
			listed := gpu.MiB(0)
			for _, p := range c.Load.Processes {
				listed += p
			}
			if unlisted := c.Load.Used - listed; unlisted < 16 || unlisted > 39 {
				t.Errorf("%s: %d MiB are used, %d listed", name, c.Load.Used, listed)
			}
		}
		for _, d := range c.Devices {
			near(d.Profile, d.Reserved+d.Idle.Used+d.Idle.Free, d.Memory)
		}
	}
}

// published are the models of test/sim: memory, what the driver reserves of it and
// compute capability, as listings of nvidia-smi print them. Of the others the reserve is
// inferred.
var published = map[string]struct {
	memory, reserved gpu.MiB
	major, minor     int
}{
	"Tesla T4":                {15360, 393, 7, 5},
	"Tesla V100S-PCIE-32GB":   {32768, 258, 7, 0},
	"NVIDIA A30":              {24576, 318, 8, 0},
	"NVIDIA A100-SXM4-40GB":   {40960, 424, 8, 0},
	"NVIDIA A100-SXM4-80GB":   {81920, 617, 8, 0},
	"NVIDIA H100 80GB HBM3":   {81559, 551, 9, 0},
	"NVIDIA H100 NVL":         {95830, 600, 9, 0},
	"NVIDIA GH200 480GB":      {97871, 600, 9, 0},
	"NVIDIA GH200 144G HBM3e": {146831, 600, 9, 0},
	"NVIDIA H200":             {143771, 700, 9, 0},
	"NVIDIA B200":             {183359, 600, 10, 0},
	"NVIDIA GB200":            {189471, 600, 10, 0},
	"NVIDIA B300 SXM6 AC":     {275040, 600, 10, 3},
	"NVIDIA GB300":            {284208, 600, 10, 3},
	"NVIDIA RTX PRO 6000":     {97887, 638, 12, 0},
	"NVIDIA RTX PRO 5000":     {48935, 600, 12, 0},
}

// listedServer is the largest figure of an MPS server that was seen (66 MiB on an H200 with driver
// 580.159.04: docs/hardware), unlisted what a GPU with processes uses beyond those listed, migIdle the most that an
// empty MIG device uses.
const (
	listedServer gpu.MiB = 66
	unlisted     gpu.MiB = 20
	migIdle      gpu.MiB = 26
)

// TestSeenServersChangeNoPlan: the first MPS server of a node is no reason for another plan,
// which changes HTCondor's slots. What a server uses counts in steps of 32 MiB (agent/sampling).
func TestSeenServersChangeNoPlan(t *testing.T) {
	const step = 32
	for name, c := range cards(t) {
		seen := map[gpu.UUID]gpu.MiB{}
		for u := range c.free {
			seen[u] = (listedServer + step - 1) / step * step
		}
		fresh, err := plan.Build(config.Default(), c.inv)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		with, err := plan.Build(config.Default(), plan.WithServers(c.inv, seen))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, g := range fresh.GPUs {
			if g.Kept != with.GPUs[i].Kept || g.Pool != with.GPUs[i].Pool {
				t.Errorf("%s: %v is kept without a server, and %v with one", name, g.Kept, with.GPUs[i].Kept)
			}
		}
	}
}

// card is a GPU, alone in its node, and how much of it and of its MIG devices is free while
// nothing runs.
type card struct {
	inv  gpu.Inventory
	free map[gpu.UUID]gpu.MiB
	kept gpu.MiB // by a desktop
}

// cards are those that were captured, and every model, whether NVML tells its reserve or not: whole,
// and with a MIG device of each published profile.
func cards(t *testing.T) map[string]card {
	t.Helper()
	out := map[string]card{}
	for name, c := range captures(t) {
		one := card{}
		one.inv, one.free = c.node()
		if c.Desktop {
			one.kept = c.Idle.Used
		}
		out["capture "+name] = one
	}
	alone := func(g gpu.GPU) gpu.Inventory {
		return gpu.Inventory{Schema: gpu.InventorySchema, Host: gpu.Host{Name: "wn-gpu1", CPUs: 64, Memory: 1 << 20}, Driver: "590.48.01", CUDA: "13.1", GPUs: []gpu.GPU{g}}
	}
	for name, m := range published {
		g := gpu.GPU{UUID: uuid(1), Name: name, PCI: "0000:1a:00.0", Memory: m.memory, Capability: gpu.ComputeCapability{Major: m.major, Minor: m.minor}}
		free := map[gpu.UUID]gpu.MiB{g.UUID: m.memory - m.reserved}
		out[name+", not told"] = card{inv: alone(g), free: free}
		g.Reserved = &m.reserved
		out[name] = card{inv: alone(g), free: free}
		chip, err := mig.ModelOf(g, 590)
		if err != nil {
			continue
		}
		for _, p := range chip.Profiles {
			if p.Memory == 0 {
				continue
			}
			none := gpu.MiB(0)
			d := gpu.MIGDevice{UUID: "MIG-00000001-0000-5000-8000-000000000000", Profile: p.Name, GPUInstance: 1, Memory: p.Memory, Reserved: &none}
			g.MIGCapable, g.MIGEnabled, g.MIGDevices = true, true, []gpu.MIGDevice{d}
			out[name+" "+p.Name] = card{inv: alone(g), free: map[gpu.UUID]gpu.MiB{d.UUID: p.Memory - migIdle}}
		}
	}
	return out
}

// TestPoolFitsTheCard: whatever the configuration, budgets and the MPS server fit into what is
// free while nothing runs, on each card. By the default margin what NVML does not list fits, too.
func TestPoolFitsTheCard(t *testing.T) {
	cards := cards(t)
	names := slices.Sorted(maps.Keys(cards))
	met := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		quantum := rapid.Int64Range(1, 2048).Draw(t, "quantum")
		margin := rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(0, 4096), rapid.Int64Range(0, 1<<20)).Draw(t, "margin")
		shares := rapid.SampledFrom([]string{`"auto"`, "1", "2", "5"}).Draw(t, "shares")
		mode := rapid.SampledFrom([]string{"choose", "mps", "time-slice"}).Draw(t, "mode")
		for range 16 {
			name := rapid.SampledFrom(names).Draw(t, "card")
			c := cards[name]
			text := fmt.Sprintf("[request_vram]\nquantum = %d\nminimum = %d\n[sharing]\nmode = %q\nshares = %s\nreserved_vram = %d\nmig_mps = true\n",
				quantum, quantum, mode, shares, margin+int64(c.kept))
			if c.inv.GPUs[0].MIGEnabled && mode == "mps" {
				text = strings.Replace(text, `"mps"`, `"mig"`, 1)
			}
			cfg, err := config.Parse("gpuslot.toml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			inv := c.inv
			if mode == "time-slice" {
				inv.Driver = "615.71.09"
			}
			seen := gpu.MiB(0)
			if rapid.Bool().Draw(t, "a server was seen") {
				seen = gpu.MiB(rapid.Int64Range(1, 2000).Draw(t, "MPS server"))
				servers := map[gpu.UUID]gpu.MiB{}
				for u := range c.free {
					servers[u] = seen
				}
				inv = plan.WithServers(inv, servers)
			}
			p, err := plan.Build(cfg, inv)
			if err != nil {
				continue // more than this card holds
			}
			for _, g := range p.GPUs {
				if !g.Shared() {
					continue
				}
				sum := g.Pool
				if g.MPS() {
					sum += max(listedServer, min(seen, 1024, g.Memory-1))
				}
				if margin >= 64 { // the default
					sum += unlisted
				}
				if sum > c.free[g.UUID] {
					t.Fatalf("%s, %s: budgets of %d, the server and what is not listed are %d of %d MiB that are free", name, g.Profile, g.Pool, sum, c.free[g.UUID])
				}
				if g.Kept.Driver+g.Kept.Server+g.Kept.Margin+g.Pool > g.Memory {
					t.Fatalf("%s: %+v and a pool of %d are more than %d MiB", name, g.Kept, g.Pool, g.Memory)
				}
				met[fmt.Sprintf("%s, MIG %v, a server of its own %v", map[bool]string{true: "MPS", false: "time slices"}[g.MPS()], g.UUID.IsMIG(), seen > 96)]++
				met[fmt.Sprintf("margin 0 %v", margin == 0)]++
			}
		}
	})
	if len(met) != 8 {
		t.Errorf("not all kinds were met: %v", met)
	}
}

// TestPoolOfTheDefaults are figures that a reviewer can check by hand.
func TestPoolOfTheDefaults(t *testing.T) {
	for name, want := range map[string]gpu.MiB{
		"h200":           142848, // 143771 - 614 - 96 - 64 = 142997, in steps of 512
		"h100":           80896,  // 81559 - 479 - 128 = 80952
		"l40s":           45056,  // 46068 - 609 - 128 = 45331
		"rtx-2080-super": 7168,   // 8192 - 400 - 128 = 7664
	} {
		inv, _ := captures(t)[name].node()
		p, err := plan.Build(config.Default(), inv)
		if err != nil || p.GPUs[0].Pool != want {
			t.Errorf("%s: a pool of %d, want %d; %v", name, p.GPUs[0].Pool, want, err)
		}
	}
}
