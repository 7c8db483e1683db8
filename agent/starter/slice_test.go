package starter

import (
	"strings"
	"testing"
)

// TestJobSlice: the names are those of 25.14.1 and 23.9.6.
func TestJobSlice(t *testing.T) {
	const slot = "/htcondor/_var_lib_condor_execute_slot1_1@wn1"
	for leaf, want := range map[string]string{
		slot + ".slice" + strings.TrimPrefix(slot, "/htcondor") + ".scope": slot + ".slice",
		"/htcondor/condor_var_lib_condor_execute_slot1_1@wn1":              "",
		"/system.slice/_x_slot1_1@wn1.scope":                               "",
	} {
		got, ok := JobSlice(leaf)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%s: %s %t, want %s", leaf, got, ok, want)
		}
	}
}
