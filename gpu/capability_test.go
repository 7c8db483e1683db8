package gpu

import (
	"strings"
	"testing"
)

func TestParseComputeCapability(t *testing.T) {
	for text, want := range map[string]ComputeCapability{"7.0": {7, 0}, "8.6": {8, 6}, "12.1": {12, 1}, "10.0": {10, 0}} {
		got, err := ParseComputeCapability(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("ParseComputeCapability(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", ".", "7", "7.", ".0", "0.0", "7.0.0", "7,0", "-7.0", "+7.0", "7.x", "sm_70", "7.0 ", "256.0", "7.256", strings.Repeat("7", 500)} {
		if got, err := ParseComputeCapability(text); err == nil || !strings.Contains(err.Error(), "of the form 7.0") {
			t.Errorf("ParseComputeCapability(%.40q) = %v, %v; want an error", text, got, err)
		}
	}
}

// 7.10 would be newer than 7.5, which comparing texts or floats gets wrong.
func TestComputeCapabilityBefore(t *testing.T) {
	order := []ComputeCapability{{5, 2}, {6, 1}, Volta, {7, 5}, {7, 10}, {8, 0}, {8, 9}, {9, 0}, {10, 0}, {12, 1}}
	for i, a := range order {
		for j, b := range order {
			if a.Before(b) != (i < j) {
				t.Errorf("%v before %v: %v", a, b, a.Before(b))
			}
		}
	}
}

func TestParseComputeMode(t *testing.T) {
	for _, m := range []ComputeMode{ComputeModeDefault, ComputeModeExclusiveProcess, ComputeModeProhibited} {
		if got, err := ParseComputeMode(string(m)); err != nil || got != m {
			t.Errorf("ParseComputeMode(%q) = %q, %v", m, got, err)
		}
	}
	for _, text := range []string{"", "Default", "exclusive_process", "exclusive-thread", "EXCLUSIVE_PROCESS", "3"} {
		if got, err := ParseComputeMode(text); err == nil || !strings.Contains(err.Error(), "default, exclusive-process, prohibited") {
			t.Errorf("ParseComputeMode(%q) = %q, %v; want an error that lists the modes", text, got, err)
		}
	}
}

// FuzzParseComputeCapability: what is accepted is a fixed point.
func FuzzParseComputeCapability(f *testing.F) {
	for _, s := range []string{"7.0", "12.1", "07.00", "0.1", "7", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseComputeCapability(text)
		if err != nil {
			return
		}
		if again, err := ParseComputeCapability(c.String()); err != nil || again != c || c.Major < 1 || c.Minor < 0 || c.Before(c) {
			t.Errorf("ParseComputeCapability(%q) = %v, which reads as %v, %v", text, c, again, err)
		}
	})
}
