package gpu

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// example is the recorded-style inventory that the documentation plans with.
const example = "../docs/examples/v100s-8.json"

// small is an inventory with nothing to spare; the tests break it.
const small = `{
  "schema": "gpuslot-inventory/1",
  "host": {"name": "wn.example.org", "cpus": 8, "memory_mib": 32768},
  "driver": "550.163.01",
  "gpus": [
    {"uuid": "GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001", "index": 0, "name": "Tesla V100S-PCIE-32GB",
     "pci_bus_id": "0000:3b:00.0", "memory_mib": 32768, "compute_capability": "7.0"},
    {"uuid": "GPU-8c24d7b2-19e5-47f0-8a6d-53b0c7e91002", "index": 1, "name": "Tesla V100S-PCIE-32GB",
     "pci_bus_id": "0000:1a:00.0", "memory_mib": 32768, "compute_capability": "7.0"}
  ]
}
`

func decode(t *testing.T, text string) Inventory {
	t.Helper()
	inv, err := DecodeInventory(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return inv
}

func TestExample(t *testing.T) {
	inv, err := ReadInventory(example)
	if err != nil {
		t.Fatal(err)
	}
	if len(inv.GPUs) != 8 || inv.Driver != "550.163.01" || inv.CUDA != "12.4" {
		t.Errorf("%d GPUs, driver %s, CUDA %s", len(inv.GPUs), inv.Driver, inv.CUDA)
	}
	short, reserved := map[string]bool{}, MiB(258)
	for i, g := range inv.GPUs {
		short[g.UUID.Bare()[:8]] = true
		g.UUID, g.PCI = "", ""
		want := GPU{Index: i, Name: "Tesla V100S-PCIE-32GB", Memory: 32768, Reserved: &reserved, Capability: Volta, Multiprocessors: 80, ComputeMode: ComputeModeDefault}
		if !reflect.DeepEqual(g, want) {
			t.Errorf("gpus[%d] is %+v; want %+v", i, g, want)
		}
	}
	if len(short) != 8 {
		t.Errorf("the first eight digits tell only %d of 8 GPUs apart", len(short))
	}
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := inv.Encode(); err != nil || !bytes.Equal(again, text) {
		t.Errorf("Encode does not print the file as it is (%v):\n%s", err, again)
	}
}

// A value without a source is an invention that nobody can check.
func TestExampleNamesItsSources(t *testing.T) {
	inv, err := ReadInventory(example)
	if err != nil {
		t.Fatal(err)
	}
	fields := []string{"gpus", "host", "driver, cuda"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[GPU]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !strings.HasPrefix(name, "mig_") && name != "mps_server_mib" && name != "unusual" { // the file has none of them
			fields = append(fields, "gpus."+name)
		}
	}
	for _, f := range fields {
		if len(inv.Sources[f]) < 20 {
			t.Errorf("sources[%q] = %q", f, inv.Sources[f])
		}
	}
	if len(inv.Sources) != len(fields) {
		t.Errorf("%d sources for %d fields", len(inv.Sources), len(fields))
	}
}

func TestDecodeInventorySorts(t *testing.T) {
	inv := decode(t, small)
	if got := []PCIBusID{inv.GPUs[0].PCI, inv.GPUs[1].PCI}; !slices.Equal(got, []PCIBusID{"0000:1a:00.0", "0000:3b:00.0"}) {
		t.Errorf("the GPUs come as %v", got)
	}
	if g, ok := inv.GPU("GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001"); !ok || g.PCI != "0000:3b:00.0" {
		t.Errorf("GPU finds %+v, %v", g, ok)
	}
	if g, ok := inv.GPU("GPU-00000000-0000-0000-0000-000000000000"); ok {
		t.Errorf("GPU finds %+v", g)
	}
}

func TestInventoryWithoutGPUs(t *testing.T) {
	inv := decode(t, `{"schema": "gpuslot-inventory/1", "host": {"name": "", "cpus": 8, "memory_mib": 32768}, "gpus": []}`)
	if inv.GPUs == nil || len(inv.GPUs) != 0 {
		t.Errorf("gpus are %v", inv.GPUs)
	}
	inv.GPUs = nil // as a node without a driver is read
	text, err := inv.Encode()
	if err != nil || !strings.Contains(string(text), `"gpus": []`) {
		t.Fatalf("Encode prints %s, %v", text, err)
	}
	decode(t, string(text))
}

func TestDecodeInventoryRefuses(t *testing.T) {
	replace := func(old, new string) string {
		if !strings.Contains(small, old) {
			t.Fatalf("the small inventory has no %q", old)
		}
		return strings.Replace(small, old, new, 1)
	}
	const again = "; record it again with: gpuslot inventory --json"
	const second = "8c24d7b2-19e5-47f0-8a6d-53b0c7e91002"
	for name, c := range map[string]struct{ text, want string }{
		"empty":     {"", "inventory ends too early, after 0 bytes" + again},
		"blank":     {" \n", "inventory ends too early, after 2 bytes" + again},
		"truncated": {small[:400], "inventory ends too early, after 400 bytes" + again},
		"one brace": {"{", "inventory ends too early, after 1 bytes" + again},
		"trailing":  {small + "x", "inventory: line 12: text after the closing brace"},
		"two":       {small + small, "inventory: line 12: text after the closing brace"},
		"binary":    {"\x7fELF\x02\x01\x01\x00\x00\x00", "inventory: line 1: not JSON: invalid character '\\x7f' looking for beginning of value" + again},
		"array":     {"[]", "inventory: line 1: the whole file cannot be a JSON array"},
		"comma":     {replace("550.163.01\",", "550.163.01\",,"), "inventory: line 4: not JSON: invalid character ',' looking for beginning of object key string" + again},
		"10 MB":     {strings.Repeat(" ", 10<<20), "inventory is larger than 4194304 bytes; is it the right file?"},

		"unknown field":  {replace(`"driver"`, `"drivers"`), `inventory: json: unknown field "drivers"`},
		"repeated field": {replace(`"driver"`, `"schema": "x", "driver"`), `inventory: line 4: the field "schema" stands twice in one object; keep one`},
		"repeated host":  {replace(`"driver"`, `"host": {}, "driver"`), `inventory: line 4: the field "host" stands twice in one object; keep one`},
		"case":           {replace(`"index": 0`, `"index": 0, "Index": 0`), `inventory: line 6: the field "index" stands twice in one object; keep one`},
		"text for GPUs":  {replace(`"memory_mib": 32768,`, `"memory_mib": "32 GB",`), "inventory: line 7: gpus.memory_mib cannot be a JSON string"},
		"fraction":       {replace(`"cpus": 8`, `"cpus": 8.5`), "inventory: line 3: host.cpus cannot be a JSON number 8.5"},
		"huge number":    {replace(`"cpus": 8`, `"cpus": 1e99`), "inventory: line 3: host.cpus cannot be a JSON number 1e99"},
		"no schema":      {replace(`"schema": "gpuslot-inventory/1",`, ""), `inventory: schema is ""; this gpuslot reads "gpuslot-inventory/1"`},
		"other schema":   {replace("inventory/1", "inventory/2"), `inventory: schema is "gpuslot-inventory/2"; this gpuslot reads "gpuslot-inventory/1"`},
		"no gpus":        {small[:strings.Index(small, ",\n  \"gpus\"")] + "}", `inventory has no list of gpus; a node without any has "gpus": []` + again},

		"no cpus":        {replace(`"cpus": 8`, `"cpus": 0`), "inventory: host.cpus is 0; a node has 1 to 65536"},
		"negative":       {replace(`"memory_mib": 32768}`, `"memory_mib": -1}`), "inventory: host.memory_mib is -1; a node has 1 to 1073741824"},
		"host name":      {replace("wn.example.org", "wn 1"), `inventory: host.name is "wn 1"; a host name has letters, digits, dots and hyphens`},
		"driver":         {replace("550.163.01", "550\\nSTART = true"), `inventory: driver is "550?START = true"; write a version such as 550.163.01`},
		"duplicate UUID": {replace(second, "5A1E0C11-7D02-4B6A-9C31-0E84A2D1F001"), "inventory: gpus[0] and gpus[1] have the same uuid GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001"},
		"duplicate PCI":  {replace("0000:1a:00.0", "00000000:3B:00.0"), "inventory: gpus[0] and gpus[1] have the same pci_bus_id 0000:3b:00.0"},
		"same index":     {replace(`"index": 1`, `"index": 0`), "inventory: gpus[0] and gpus[1] have the same index 0"},
		"short UUID":     {replace("GPU-"+second, "GPU-8c24d7b2"), `inventory: UUID "GPU-8c24d7b2" is not of the form GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`},
		"MIG device":     {replace("GPU-"+second, "MIG-"+second), "inventory: gpus[1]: MIG-" + second + " is a MIG device; list the GPU it is part of"},
		"no UUID":        {replace(`"uuid": "GPU-`+second+`", `, ""), "inventory: gpus[1] has no uuid"},
		"no name":        {replace(`"index": 1, "name": "Tesla V100S-PCIE-32GB"`, `"index": 1`), "inventory: gpus[1] (GPU-" + second + `): name is ""; write the product name as nvidia-smi -L prints it`},
		"PCI":            {replace("0000:1a:00.0", "1a"), `inventory: PCI bus id "1a" is not of the form dddd:bb:dd.f`},
		"no PCI":         {replace(`"pci_bus_id": "0000:1a:00.0", `, ""), "inventory: gpus[1] (GPU-" + second + ") has no pci_bus_id"},
		"no memory":      {replace(`1a:00.0", "memory_mib": 32768`, `1a:00.0", "memory_mib": 0`), "inventory: gpus[1] (GPU-" + second + "): memory_mib is 0; a GPU has 1 to 4194304"},
		"no capability":  {replace(`,`+"\n     "+`"pci_bus_id": "0000:1a:00.0", "memory_mib": 32768, "compute_capability": "7.0"`, `, "pci_bus_id": "0000:1a:00.0", "memory_mib": 32768`), "inventory: gpus[1] (GPU-" + second + ") has no compute_capability"},
		"capability":     {replace(`"7.0"`, `"sm_70"`), `inventory: compute capability "sm_70" is not of the form 7.0`},
		"MIG on V100":    {replace(`"index": 1`, `"index": 1, "mig_enabled": true`), "inventory: gpus[1] (GPU-" + second + ") has mig_enabled but not mig_capable"},
		"compute mode":   {replace(`"index": 1`, `"index": 1, "compute_mode": "exclusive"`), `inventory: compute mode "exclusive" is none of default, exclusive-process, prohibited`},
		"negative index": {replace(`"index": 1`, `"index": -1`), "inventory: gpus[1] (GPU-" + second + "): index is -1; NVML counts from 0"},
		"SMs":            {replace(`"index": 1`, `"index": 1, "multiprocessors": -80`), "inventory: gpus[1] (GPU-" + second + "): multiprocessors is -80; a GPU has 1 to 4096"},

		"several": {`{"schema": "gpuslot-inventory/1", "host": {"name": "", "cpus": 0, "memory_mib": 0}, "cuda": "new", "gpus": []}`,
			"inventory: host.cpus is 0; a node has 1 to 65536\ninventory: host.memory_mib is 0; a node has 1 to 1073741824\n" + `inventory: cuda is "new"; write a version such as 12.4`},
	} {
		inv, err := DecodeInventory(strings.NewReader(c.text))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: the error is\n\t%v\nwant\n\t%s", name, err, c.want)
		}
		if !reflect.DeepEqual(inv, Inventory{}) {
			t.Errorf("%s: a refused inventory is not empty: %+v", name, inv)
		}
	}
}

func TestTooManyGPUs(t *testing.T) {
	inv := decode(t, small)
	inv.GPUs = slices.Repeat(inv.GPUs, 200)
	if err := inv.Check(); err == nil || err.Error() != "inventory: 400 gpus; a node has at most 256" {
		t.Errorf("the error is %v", err)
	}
}

func TestReadInventoryNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.json")
	if _, err := ReadInventory(path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("the error is %v", err)
	}
	if err := os.WriteFile(path, []byte(small[:300]), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadInventory(path); err == nil || !strings.HasPrefix(err.Error(), path+": inventory ends too early") {
		t.Errorf("the error is %v", err)
	}
}

func TestDecodeInventoryPassesReadErrorsOn(t *testing.T) {
	broken := errors.New("disk on fire")
	if _, err := DecodeInventory(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
}

// FuzzDecodeInventory: what is accepted passes Check, is sorted, prints, and
// the print reads back as the same inventory.
func FuzzDecodeInventory(f *testing.F) {
	text, err := os.ReadFile(example)
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{string(text), small, small[:300], small + "x", "", "{}", "[]", "null",
		`{"schema":"gpuslot-inventory/1","host":{"name":"a","cpus":1,"memory_mib":1},"gpus":[]}`,
		strings.Repeat("[", 5000), `{"sources":{"a":"\ud800"}}`, "\x7fELF"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		inv, err := DecodeInventory(bytes.NewReader(text))
		if err != nil {
			return
		}
		if err := inv.Check(); err != nil {
			t.Errorf("accepted, but: %v", err)
		}
		printed, err := inv.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeInventory(bytes.NewReader(printed))
		if err != nil {
			t.Fatalf("%v in what Encode printed:\n%s", err, printed)
		}
		if len(inv.Sources) == 0 {
			inv.Sources = nil // an empty object is left out
		}
		if !reflect.DeepEqual(again, inv) {
			t.Errorf("reads back as %+v; want %+v", again, inv)
		}
		for i := range inv.GPUs[:max(len(inv.GPUs)-1, 0)] {
			if !inv.GPUs[i].PCI.Before(inv.GPUs[i+1].PCI) {
				t.Errorf("%s stands before %s", inv.GPUs[i].PCI, inv.GPUs[i+1].PCI)
			}
		}
	})
}

// TestMIGDevices: what is read of MIG devices survives the file, and "none" is
// not "not read".
func TestMIGDevices(t *testing.T) {
	device := MIGDevice{Start: new(int), UUID: "MIG-00000001-0000-5000-8000-000000000000", Profile: "3g.20gb", GPUInstance: 2, Memory: 19968, Multiprocessors: 42}
	other := device
	other.UUID, other.GPUInstance = "MIG-00000002-0000-5000-8000-000000000000", 1
	inventory := func(devices ...MIGDevice) Inventory {
		return Inventory{Schema: InventorySchema, Host: Host{CPUs: 1, Memory: 1}, GPUs: []GPU{{UUID: "GPU-00000000-0000-4000-8000-000000000000", Name: "NVIDIA A100-SXM4-40GB",
			PCI: "0000:1a:00.0", Memory: 40960, Capability: ComputeCapability{Major: 8}, MIGCapable: true, MIGEnabled: true, MIGDevices: devices}}}
	}
	for _, c := range []struct{ in, want []MIGDevice }{
		{nil, nil}, {[]MIGDevice{}, []MIGDevice{}}, {[]MIGDevice{device, other}, []MIGDevice{other, device}},
	} {
		in := inventory()
		in.GPUs[0].MIGDevices = c.in
		b, err := in.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeInventory(bytes.NewReader(b))
		if err != nil || !reflect.DeepEqual(got.GPUs[0].MIGDevices, c.want) {
			t.Errorf("%+v became %+v, %v", c.in, got.GPUs, err)
		}
	}
	for want, change := range map[string]func(*GPU, *MIGDevice){
		"has mig_devices but not mig_enabled": func(g *GPU, _ *MIGDevice) { g.MIGEnabled = false },
		"which starts with MIG-":              func(_ *GPU, d *MIGDevice) { d.UUID = "GPU-00000001-0000-4000-8000-000000000000" },
		"have the same uuid":                  func(_ *GPU, d *MIGDevice) { d.UUID = other.UUID },
		"such as 3g.20gb":                     func(_ *GPU, d *MIGDevice) { d.Profile = "MIG 3g.20gb" },
		"its GPU has 40960":                   func(_ *GPU, d *MIGDevice) { d.Memory = 40961 },
		"multiprocessors is -1":               func(_ *GPU, d *MIGDevice) { d.Multiprocessors = -1 },
		"gpu_instance is -1":                  func(_ *GPU, d *MIGDevice) { d.GPUInstance = -1 },
	} {
		inv := inventory(device, other)
		change(&inv.GPUs[0], &inv.GPUs[0].MIGDevices[0])
		if err := inv.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
