package gpu

import (
	"fmt"
	"strings"
	"testing"
)

// bounded is the inventory of one GPU with one MIG device, in which nothing is wrong.
func bounded() Inventory {
	return Inventory{Schema: InventorySchema, Host: Host{Name: "wn-9.z", CPUs: 1, Memory: 1}, Driver: "550.163", CUDA: "12.4",
		GPUs: []GPU{{
			UUID: "GPU-00000000-0000-4000-8000-000000000000", Name: "NVIDIA A100-SXM4-40GB", PCI: "0000:1a:00.0",
			Memory: 40960, Capability: ComputeCapability{Major: 8}, MIGCapable: true, MIGEnabled: true,
			MIGDevices: []MIGDevice{{UUID: "MIG-00000001-0000-5000-8000-000000000000", Profile: "3g.20gb", Memory: 19968}},
		}}}
}

// TestCheckBounds: of each number the least and the most that a node may have pass, and those
// beside them do not.
func TestCheckBounds(t *testing.T) {
	for name, c := range map[string]struct {
		least, most int
		set         func(*Inventory, *GPU, *MIGDevice, int)
	}{
		"host.cpus":       {1, MaxCPUs, func(inv *Inventory, _ *GPU, _ *MIGDevice, n int) { inv.Host.CPUs = n }},
		"host.memory_mib": {1, int(MaxHostMemory), func(inv *Inventory, _ *GPU, _ *MIGDevice, n int) { inv.Host.Memory = MiB(n) }},
		"index":           {0, maxGPUs - 1, func(_ *Inventory, g *GPU, _ *MIGDevice, n int) { g.Index = n }},
		"): memory_mib":   {19968, int(MaxMemory), func(_ *Inventory, g *GPU, _ *MIGDevice, n int) { g.Memory = MiB(n) }},
		"memory_mib is": {1, int(MaxMemory), func(_ *Inventory, g *GPU, _ *MIGDevice, n int) {
			g.Memory, g.MIGEnabled, g.MIGDevices = MiB(n), false, nil
		}},
		"mps_server_mib":    {0, 40960, func(_ *Inventory, g *GPU, _ *MIGDevice, n int) { g.MPSServer = MiB(n) }},
		"]: mps_server_mib": {0, 19968, func(_ *Inventory, _ *GPU, d *MIGDevice, n int) { d.MPSServer = MiB(n) }},
		"reserved_mib":      {0, 40959, func(_ *Inventory, g *GPU, _ *MIGDevice, n int) { g.Reserved = new(MiB(n)) }},
		"multiprocessors":   {0, maxMultiprocessors, func(_ *Inventory, g *GPU, _ *MIGDevice, n int) { g.Multiprocessors = n }},
		"]: memory_mib":     {1, 40960, func(_ *Inventory, _ *GPU, d *MIGDevice, n int) { d.Memory = MiB(n) }},
		"]: reserved_mib":   {0, 19967, func(_ *Inventory, _ *GPU, d *MIGDevice, n int) { d.Reserved = new(MiB(n)) }},
		"]: multiproc":      {0, maxMultiprocessors, func(_ *Inventory, _ *GPU, d *MIGDevice, n int) { d.Multiprocessors = n }},
		"start":             {0, maxMIGDevices - 1, func(_ *Inventory, _ *GPU, d *MIGDevice, n int) { d.Start = &n }},
	} {
		check := func(n int) error {
			inv := bounded()
			c.set(&inv, &inv.GPUs[0], &inv.GPUs[0].MIGDevices[0], n)
			return inv.Check()
		}
		for _, n := range []int{c.least, c.most} {
			if err := check(n); err != nil {
				t.Errorf("%s of %d: %v", name, n, err)
			}
		}
		for _, n := range []int{c.least - 1, c.most + 1} {
			if err := check(n); err == nil || name != "): memory_mib" && !strings.Contains(err.Error(), strings.TrimSpace(name)) {
				t.Errorf("%s of %d: %v", name, n, err)
			}
		}
	}
}

// TestCheckMost: so many GPUs, and so many MIG devices of one, and no more.
func TestCheckMost(t *testing.T) {
	for more, good := range []bool{true, false} {
		inv := bounded()
		inv.GPUs[0].MIGDevices = nil
		for i := range maxMIGDevices + more {
			u := UUID(fmt.Sprintf("MIG-%08d-0000-5000-8000-000000000000", i))
			inv.GPUs[0].MIGDevices = append(inv.GPUs[0].MIGDevices, MIGDevice{UUID: u, Profile: "1g.5gb", Memory: 1})
		}
		if err := inv.Check(); (err == nil) != good {
			t.Errorf("%d more MIG devices: %v", more, err)
		}
		inv = bounded()
		inv.GPUs = nil
		for i := range maxGPUs + more {
			g := bounded().GPUs[0]
			g.UUID, g.Index = UUID(fmt.Sprintf("GPU-%08d-0000-4000-8000-000000000000", i)), i
			g.PCI, g.MIGEnabled, g.MIGDevices = PCIBusID(fmt.Sprintf("%04x:1a:00.0", i)), false, nil
			inv.GPUs = append(inv.GPUs, g)
		}
		if err := inv.Check(); (err == nil) != good {
			t.Errorf("%d more GPUs: %v", more, err)
		}
	}
	inv := bounded()
	inv.GPUs[0].MIGDevices[0].GPUInstance = -1
	if err := inv.Check(); err == nil {
		t.Error("a GPU instance of a negative number")
	}
}

// TestCheckNames: the characters and lengths of host names and versions.
func TestCheckNames(t *testing.T) {
	for host, good := range map[string]bool{
		"": true, "0": true, "9": true, "a": true, "z": true, "A": true, "Z": true, "a-b_c.d": true,
		"-a": false, "a-": false, ".a": false, "a b": false, "a/b": false, "a:b": false, "a@b": false, "a[b": false,
		"a`b": false, "a{b": false, strings.Repeat("a", 253): true, strings.Repeat("a", 254): false,
	} {
		inv := bounded()
		inv.Host.Name = host
		if err := inv.Check(); (err == nil) != good {
			t.Errorf("host %q: %v", host, err)
		}
	}
	for name, good := range map[string]bool{"": false, "a": true, " a": false, "a ": false, "a\tb": false,
		strings.Repeat("a", 95): true, strings.Repeat("a", 96): false} {
		inv := bounded()
		inv.GPUs[0].Name = name
		if err := inv.Check(); (err == nil) != good {
			t.Errorf("name %q: %v", name, err)
		}
	}
	for version, good := range map[string]bool{
		"12.4": true, "550.163.01": true, "1.2.3.4": true, "123456.0": true,
		"12": false, "1.2.3.4.5": false, "1..2": false, "1234567.0": false, "12.x": false, "12.": false,
	} {
		inv := bounded()
		inv.CUDA = version
		if err := inv.Check(); (err == nil) != good {
			t.Errorf("version %q: %v", version, err)
		}
	}
}
