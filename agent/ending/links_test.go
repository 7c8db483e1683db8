package ending

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
)

// TestHolding: the link is there while HTCondor is to hold any job, whoever writes it last.
func TestHolding(t *testing.T) {
	asked := 0 // the race detector looks
	holds := []api.Hold{{Slot: "slot1_1"}}
	l := &Links{Directory: t.TempDir(), Holds: func() []api.Hold { asked++; return holds }}
	if err := os.Mkdir(filepath.Join(l.Directory, "condor"), 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(l.Directory, "condor", "holds")
	for range 2 {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := l.Holding(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if word, err := os.Readlink(link); (err == nil) != (len(holds) > 0) || err == nil && word != "some" {
			t.Errorf("%q, %v", word, err)
		}
		holds = nil
	}
	if asked != 8 {
		t.Errorf("asked %d times", asked)
	}
}
