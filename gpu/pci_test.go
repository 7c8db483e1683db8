package gpu

import (
	"slices"
	"strings"
	"testing"
)

func TestParsePCIBusID(t *testing.T) {
	for text, want := range map[string]PCIBusID{
		"0000:3b:00.0":     "0000:3b:00.0",
		"00000000:3B:00.0": "0000:3b:00.0", // NVML, nvidia-smi
		"0000:3B:00.0":     "0000:3b:00.0", // HTCondor's DevicePciBusId
		"3b:00.0":          "0000:3b:00.0", // lspci
		"3b:00":            "0000:3b:00.0",
		"00010000:01:1F.7": "10000:01:1f.7", // a domain of Intel's VMD
		"FFFFFFFF:ff:1f.7": "ffffffff:ff:1f.7",
	} {
		if got, err := ParsePCIBusID(text); err != nil || got != want {
			t.Errorf("ParsePCIBusID(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestParsePCIBusIDRefuses(t *testing.T) {
	for _, text := range []string{
		"", ":", "::", "::.", "3b", "3b.0", "0000:3b:00.", "0000:3b:00.8", "0000:3b:20.0", "0000:100:00.0", "100000000:3b:00.0",
		"0000:3b:00.0.0", "0:0:0:0", "0000:3g:00.0", "0000:-1:00.0", "0000:+b:00.0", "0000:0x1:0.0", " 0000:3b:00.0", "0000:3b:00.0\n",
		"0000:3b:000000000.0", strings.Repeat("0000:", 1000),
	} {
		got, err := ParsePCIBusID(text)
		if err == nil || !strings.Contains(err.Error(), "dddd:bb:dd.f") {
			t.Errorf("ParsePCIBusID(%.40q) = %q, %v; want an error that shows the form", text, got, err)
		}
	}
}

func TestPCIBusIDOrder(t *testing.T) {
	want := []PCIBusID{"0000:1a:00.0", "0000:1a:00.1", "0000:1a:01.0", "0000:b1:00.0", "f000:01:00.0", "10000:01:00.0"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, func(a, b PCIBusID) int {
		if a.Before(b) {
			return -1
		}
		return 1
	})
	if !slices.Equal(got, want) {
		t.Errorf("in the order of the bus: %v; want %v", got, want)
	}
	if want[0].Before(want[0]) {
		t.Error("an address comes before itself")
	}
}

// FuzzParsePCIBusID: what is accepted is a fixed point in the kernel's form.
func FuzzParsePCIBusID(f *testing.F) {
	for _, s := range []string{"0000:3b:00.0", "00000000:3B:00.0", "3b:00.0", "3b:00", "ffffffff:ff:1f.7", "0000:3b:20.0", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePCIBusID(text)
		if err != nil {
			return
		}
		if again, err := ParsePCIBusID(p.String()); err != nil || again != p {
			t.Errorf("ParsePCIBusID(%q) = %q, which reads as %q, %v", text, p, again, err)
		}
		s := string(p)
		if len(s) < len("0000:00:00.0") || s[len(s)-2] != '.' || strings.Count(s, ":") != 2 || strings.ToLower(s) != s {
			t.Errorf("ParsePCIBusID(%q) = %q", text, p)
		}
	})
}

// TestPCIDevice: an id has eight digits behind 0x, and is printed as it is read.
func TestPCIDevice(t *testing.T) {
	for text, want := range map[string]string{"0x20B010DE": "0x20B010DE", "0X20b010de": "0x20B010DE", "0x00000000": "0x00000000",
		"20B010DE": "", "0x20B010D": "", "0x20B010DE0": "", "0x20B010DG": "", "0x": "", "": ""} {
		var d PCIDevice
		err := d.UnmarshalText([]byte(text))
		if got, _ := d.MarshalText(); (err == nil) != (want != "") || err == nil && string(got) != want {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
}
