package gpu

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

func TestParseMiB(t *testing.T) {
	for text, want := range map[string]MiB{"0": 0, "1": 1, "1536": 1536, "0512": 512, "999999999999": 999999999999} {
		if got, err := ParseMiB(text); err != nil || got != want {
			t.Errorf("ParseMiB(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
}

// The control daemons of 535, 550 and 555 read each of these, without a
// message, as an amount that nobody meant (measured).
func TestParseMiBRefuses(t *testing.T) {
	for _, text := range []string{
		"", " ", "-5", "+5", "1.5G", "1T", "1 G", "4G", "4GB", "512M", "512MiB", "0x10", "1e3", "1_000", "4000.0",
		"1000000000000", "18446744073709551616", "１２", "12\n", "unlimited", strings.Repeat("9", 1000),
	} {
		got, err := ParseMiB(text)
		if err == nil || !strings.Contains(err.Error(), "MiB") {
			t.Errorf("ParseMiB(%.40q) = %d, %v; want an error that names the unit", text, got, err)
		}
	}
}

func TestMiBRounds(t *testing.T) {
	for _, c := range []struct{ n, quantum, floor, ceil MiB }{
		{0, 512, 0, 0}, {1, 512, 0, 512}, {511, 512, 0, 512}, {512, 512, 512, 512}, {513, 512, 512, 1024}, {32256, 512, 32256, 32256}, {7, 1, 7, 7},
	} {
		if f, up := c.n.Floor(c.quantum), c.n.Ceil(c.quantum); f != c.floor || up != c.ceil {
			t.Errorf("%v by %v: floor %v, ceil %v; want %v, %v", c.n, c.quantum, f, up, c.floor, c.ceil)
		}
	}
}

func TestMiBFromBytes(t *testing.T) {
	for bytes, want := range map[uint64]MiB{0: 0, 1<<20 - 1: 0, 1 << 20: 1, 34359738368: 32768, 34359738367: 32767, math.MaxUint64: 1<<44 - 1} {
		if got := MiBFromBytes(bytes); got != want {
			t.Errorf("MiBFromBytes(%d) = %v; want %v", bytes, got, want)
		}
	}
	if got := MiB(32768).Bytes(); got != 34359738368 {
		t.Errorf("32768 MiB are %d bytes", got)
	}
	if got := MiB(32768).String(); got != "32768 MiB" {
		t.Errorf("32768 MiB print as %q", got)
	}
}

// FuzzParseMiB: what is accepted are digits, and their number.
func FuzzParseMiB(f *testing.F) {
	for _, s := range []string{"0", "1536", "4G", "1.5G", "-5", "999999999999", "1000000000000", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMiB(text)
		if err != nil {
			return
		}
		digits := strings.TrimLeft(text, "0")
		if digits == "" {
			digits = "0"
		}
		if strconv.FormatInt(int64(m), 10) != digits || m < 0 {
			t.Errorf("ParseMiB(%q) = %d", text, int64(m))
		}
		if MiBFromBytes(m.Bytes()) != m {
			t.Errorf("%d MiB do not survive bytes", int64(m))
		}
		if f, c := m.Floor(512), m.Ceil(512); f > m || c < m || c-f > 512 || f%512 != 0 || c%512 != 0 {
			t.Errorf("%d MiB lie between %d and %d", int64(m), int64(f), int64(c))
		}
	})
}
