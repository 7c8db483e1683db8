package agent

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/test/lock"
)

// TestLockOfAnother: whoever has the lock is named.
func TestLockOfAnother(t *testing.T) {
	p := config.Paths{Run: t.TempDir()}
	by := lock.By(t, filepath.Join(p.Run, "agent.lock"))
	unlock, err := lockRun(p)
	if err == nil {
		unlock()
		t.Fatal("two hold the lock")
	}
	if want := fmt.Sprintf("process %d (\"flock\") runs (state", by); !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q in it", err, want)
	}
}
