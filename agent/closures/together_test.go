package closures

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpuslot/gpuslot/test/together"
)

// TestTogether: all methods of the table may be called at one time, and no change is lost.
func TestTogether(t *testing.T) {
	table := NewTable(filepath.Join(t.TempDir(), "holds.json"))
	c := Closure{GPU: gpuA, Owner: "operator", Reason: "hot"}
	together.Methods(t, table, c, []Closure{c}, gpuA, "operator", true, Node{Phase: Quiesced})
	var each []func()
	for _, owner := range []string{"a", "b", "c", "d"} {
		each = append(each, func() {
			if err := table.Close(Closure{GPU: gpuB, Owner: owner}); err != nil {
				t.Error(err)
			}
			if _, _, err := table.Open(gpuB, owner, false); err != nil {
				t.Error(err)
			}
		})
	}
	each = append(each, func() {
		if err := table.SetNode(Node{Phase: Quiesced}); err != nil {
			t.Error(err)
		}
	})
	together.Calls(each...)
	if left := table.On(gpuB); len(left) > 1 { // the node may be closed by the methods before
		t.Errorf("left closed: %v", left)
	}
	if err := table.Close(Closure{GPU: gpuB, Owner: "kept"}); err != nil {
		t.Fatal(err)
	}
	again := NewTable(table.path)
	if err := again.Read(); err != nil || again.On(gpuB).Reason() != table.On(gpuB).Reason() {
		t.Errorf("the file says %v, the table %v (%v)", again.On(gpuB), table.On(gpuB), err)
	}
	if err := os.WriteFile(again.path, []byte("rubbish"), 0o644); err != nil {
		t.Fatal(err)
	}
	together.Methods(t, again, c, []Closure{c}, gpuA, "operator", false, Node{})
}
