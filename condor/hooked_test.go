package condor

import (
	"fmt"
	"strings"
	"testing"
)

// TestHasHook: what a starter's local name says of the hook is what the generated
// configuration gives its slot type.
func TestHasHook(t *testing.T) {
	for name, node := range examples() {
		text, err := ExecutionPoint(node)
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range starterNumbers(node, slotTypes(node)) {
			typeName := fmt.Sprintf("slot_type_%d", st.number)
			want := strings.Contains(string(text), "\n"+typeName+".STARTER_JOB_HOOK_KEYWORD = ")
			if got := HasHook(typeName); got != want {
				t.Errorf("%s: %s has the hook: %t, and the text says %t", name, typeName, got, want)
			}
		}
	}
	for _, name := range []string{"", "slot_type_", "slot_type_0", "slot_type_-1", "slot_type_x", "gpu5a1e0c11", "slot_type_1.1"} {
		if HasHook(name) {
			t.Errorf("%q has the hook", name)
		}
	}
}
