package condor

import (
	"strings"
	"testing"
)

// FuzzSlotName: a slot's name in short is a slot's name, and stays one.
func FuzzSlotName(f *testing.F) {
	for _, s := range []string{"slot1_2@host", "slot1_2@gpu5a1e0c11@host", "slot+1_1", "vm1_2@host", "slot1_99999999999999999999", "slot1@gpu5a1e0c1", "@"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		short := SlotName(name)
		if !strings.HasPrefix(name, short) || SlotName(short) != short || StartdOf(short) != StartdOf(name) {
			t.Errorf("%q in short is %q", name, short)
		}
		if startd := StartdOf(name); startd != "" && !IsStartd(startd) {
			t.Errorf("%q is of %q", name, startd)
		}
		one, two, err := ParseSlot(name)
		if err == nil && (one < 1 || two < 1 || !strings.Contains(name, "_")) {
			t.Errorf("%q is %d_%d", name, one, two)
		}
		if again, other, errAgain := ParseSlot(short); again != one || other != two || (err == nil) != (errAgain == nil) {
			t.Errorf("%q is %d_%d, in short %d_%d", name, one, two, again, other)
		}
	})
}

// FuzzConfigOf: it is a value of the text, between its quotes.
func FuzzConfigOf(f *testing.F) {
	f.Add("X = 1\nGPUSlotConfig = \"0011\"\nY = \"z\"\n")
	f.Add("\nGPUSlotConfig = \"")
	f.Fuzz(func(t *testing.T, text string) {
		v := ConfigOf([]byte(text))
		if v != "" && (strings.Contains(v, "\"") || !strings.Contains(text, "\nGPUSlotConfig = \""+v+"\"")) {
			t.Errorf("%q from %q", v, text)
		}
	})
}
