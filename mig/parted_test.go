package mig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpuslot/gpuslot/gpu"
)

// defaults are the forms of mig-parted's own configuration file
// (deployments/systemd/config-default.yaml).
const defaults = `version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false

  all-enabled:
    - devices: all
      mig-enabled: true
      mig-devices: {}

  # A100-40GB, A800-40GB
  all-1g.5gb.me:
    - devices: all
      mig-enabled: true
      mig-devices:
        "1g.5gb+me": 1

  all-balanced:
    # A100-40GB
    - device-filter: ["0x20B010DE", "0x20B110DE"]
      devices: all
      mig-enabled: true
      mig-devices:
        "1g.5gb": 2
        "2g.10gb": 1
        "3g.20gb": 1
    # A30-24GB
    - device-filter: "0x20B710DE"
      devices: [0, 3]
      mig-enabled: true
      mig-devices:
        1g.6gb: 2
        2g.12gb: 1
        4g.24gb: 0
`

func parsed(t *testing.T, text string) Parted {
	t.Helper()
	p, err := ParseParted([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParseParted(t *testing.T) {
	want := Parted{Configs: map[string][]PartedEntry{
		"all-disabled":  {{Line: 4}},
		"all-enabled":   {{Line: 8, Enabled: true, Instances: map[string]int{}}},
		"all-1g.5gb.me": {{Line: 14, Enabled: true, Instances: map[string]int{"1g.5gb+me": 1}}},
		"all-balanced": {
			{Line: 21, Filter: []gpu.PCIDevice{0x20B010DE, 0x20B110DE}, Enabled: true, Instances: map[string]int{"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}},
			{Line: 29, Filter: []gpu.PCIDevice{0x20B710DE}, Devices: []int{0, 3}, Enabled: true, Instances: map[string]int{"1g.6gb": 2, "2g.12gb": 1}},
		},
	}}
	if d := cmp.Diff(want, parsed(t, defaults)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestEncodeParted: what is written reads as the same, and is the same again.
func TestEncodeParted(t *testing.T) {
	p := parsed(t, defaults)
	p.Configs["no"] = p.Configs["all-disabled"] // a word that YAML takes for a boolean
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again := parsed(t, string(b))
	if d := cmp.Diff(p, again, cmpopts.IgnoreFields(PartedEntry{}, "Line"), cmpopts.EquateEmpty()); d != "" {
		t.Errorf("(-written +read):\n%s\n%s", d, b)
	}
	for _, part := range []string{"version: v1\nmig-configs:\n  all-1g.5gb.me:\n    - devices: all\n", `device-filter: ["0x20B010DE", "0x20B110DE"]`, "devices: [0, 3]", "\"no\":"} {
		if !strings.Contains(string(b), part) {
			t.Errorf("%q is not in\n%s", part, b)
		}
	}
}

// TestEncodePartedName: a name that YAML has no plain form for is quoted.
func TestEncodePartedName(t *testing.T) {
	b, err := Parted{Configs: map[string][]PartedEntry{"\t\n": {{}}}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"\t\n"`) || len(parsed(t, string(b)).Configs["\t\n"]) != 1 {
		t.Errorf("%s", b)
	}
}

func TestParsePartedErrors(t *testing.T) {
	const head = "version: v1\nmig-configs:\n  c:\n"
	for text, want := range map[string]string{
		"":                                     "line 1: the file is empty; write version and mig-configs",
		"# nothing\n":                          "line 1: the file is empty",
		"a: [":                                 "line 1: did not find expected node content",
		"- a":                                  "line 1: the file is a table of keys",
		"version: v1":                          "line 1: the file needs version and mig-configs",
		"version: v2\nmig-configs: {}":         `line 1: version is "v2"; gpuslot reads "v1"`,
		"version: 1\nmig-configs: {}":          "line 1: version is a word; gpuslot reads v1",
		"version: v1\nmig-config: {}":          `line 2: unknown key "mig-config"`,
		"version: v1\nversion: v1":             `line 2: the file has "version" twice`,
		"version: v1\nmig-configs: {}\n---\na": "a second document; one file holds one",
		"version: v1\nmig-configs: &a {}":      "line 2: mig-configs is a table of keys, without anchors",
		head + "    a: b":                      "line 4: a configuration is a list of entries",
		head + "    - devices: all":            "line 4: an entry needs devices and mig-enabled",
		head + "    - {devices: all, mig-enabled: yes}":                                               "line 4: mig-enabled is true or false",
		head + "    - {devices: some, mig-enabled: true}":                                             `line 4: devices is all, or a list of NVML indices, not "some"`,
		head + "    - {devices: [0, 0], mig-enabled: true}":                                           "line 4: devices names 0 twice",
		head + "    - {devices: [-1], mig-enabled: true}":                                             `line 4: a device is an NVML index from 0 to 255, not "-1"`,
		head + "    - {devices: [1.5], mig-enabled: true}":                                            "line 4: a device is an NVML index: a number",
		head + "    - {devices: all, mig-enabled: true, device-filter: 20B010DE}":                     `line 4: device-filter is a PCI id such as 0x20B010DE, not "20B010DE"`,
		head + "    - {devices: all, mig-enabled: true, device-filter: []}":                           "line 4: device-filter is empty",
		head + "    - {devices: all, mig-enabled: true, device-filter: [0x20B010DE, 0x20b010de]}":     "line 4: device-filter names 0x20b010de twice",
		head + "    - {devices: all, mig-enabled: true, mig-devices: {1g: 1}}":                        `line 4: MIG profile "1g" is not of the form`,
		head + "    - {devices: all, mig-enabled: true, mig-devices: {c.3g.20gb: 1}}":                 `line 4: MIG profile "c.3g.20gb" is not of the form`,
		head + "    - {devices: all, mig-enabled: true, mig-devices: {xc.3g.20gb: 1}}":                `line 4: MIG profile "xc.3g.20gb" is not of the form`,
		head + "    - {devices: all, mig-enabled: true, mig-devices: {\"1\": 1}}":                     `line 4: MIG profile "1" is not of the form`,
		head + "    - {devices: all, mig-enabled: true, mig-devices: {1c.3g.20gb: 1}}":                `line 4: "1c.3g.20gb" splits a GPU instance`,
		head + "    - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 65}}":                   `line 4: a count of instances is a number from 0 to 64, not "65"`,
		head + "    - {devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1, \"MIG 1g.5gb\": 1}}": "line 4: mig-devices has 1g.5gb twice",
		head + "    - {devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}}":                   "line 4: mig-devices with mig-enabled: false",
		head + "    - {devices: all, mig-enabled: true, *a : 1}":                                      "line 1: unknown anchor 'a' referenced",
	} {
		_, err := ParseParted([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestParsePartedNamesEachOnce: what is no device is named as that, and not as a device that is there twice.
func TestParsePartedNamesEachOnce(t *testing.T) {
	for devices, want := range map[string]string{
		"[a, b]":     "line 4: a device is an NVML index: a number",
		"[256, 256]": `line 4: a device is an NVML index from 0 to 255, not "256"`,
	} {
		_, err := ParseParted([]byte("version: v1\nmig-configs:\n  c:\n    - {devices: " + devices + ", mig-enabled: true}"))
		if err == nil || err.Error() != want+"\n"+want {
			t.Errorf("%s: %v", devices, err)
		}
	}
}

func TestReadPartedNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("version: v2\nmig: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadParted(filepath.Dir(path)); err == nil {
		t.Error("a directory is read")
	}
	_, err := ReadParted(path)
	if err == nil || strings.Count(err.Error(), path+": line ") != 3 {
		t.Errorf("%v", err)
	}
}

func TestEntryFor(t *testing.T) {
	p := parsed(t, defaults)
	balanced, err := p.Config("all-balanced")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		index  int
		device gpu.PCIDevice
		line   int
	}{{0, 0x20B110DE, 21}, {3, 0x20B710DE, 29}, {1, 0x20B710DE, 0}, {0, 0x233010DE, 0}} {
		e, ok, err := EntryFor(balanced, c.index, c.device)
		if err != nil || ok != (c.line > 0) || e.Line != c.line {
			t.Errorf("GPU %d %s: %+v, %t, %v", c.index, c.device, e, ok, err)
		}
	}
	if _, _, err := EntryFor(append(balanced, PartedEntry{Line: 40}), 0, 0x20B110DE); err == nil || !strings.Contains(err.Error(), "in line 21 and line 40") {
		t.Errorf("%v", err)
	}
	if _, err := p.Config("none"); err == nil || !strings.Contains(err.Error(), "all-1g.5gb.me, all-balanced, all-disabled") {
		t.Errorf("%v", err)
	}
	if got := balanced[0].Text(); got != "1g.5gb*2,2g.10gb*1,3g.20gb*1" {
		t.Error(got)
	}
	if got := (PartedEntry{}).Text(); got != "none" {
		t.Error(got)
	}
}

// FuzzParseParted: what is accepted is printed, and reads as the same again.
func FuzzParseParted(f *testing.F) {
	f.Add([]byte(defaults))
	f.Add([]byte("version: v1\nmig-configs: {\"\\u2028\": [{devices: [], mig-enabled: true}]}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParseParted(b)
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				if !strings.HasPrefix(line, "line ") {
					t.Fatalf("an error without a line: %q", line)
				}
			}
			return
		}
		text, err := p.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseParted(text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if d := cmp.Diff(p, again, cmpopts.IgnoreFields(PartedEntry{}, "Line"), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("(-read +again):\n%s", d)
		}
	})
}
