package access

import (
	"context"
	"runtime"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/test/together"
)

type noServers struct{}

func (noServers) Servers(context.Context, gpu.UUID) ([]mps.Server, error) { return nil, nil }

// TestTogether: all methods of the list may be called at one time.
func TestTogether(t *testing.T) {
	list := NewList(&fakeDirectories{in: map[Entry]bool{}}, noServers{})
	needs := func(gpu.UUID, uint32) bool { runtime.Gosched(); return false }
	together.Methods(t, list, uuid(0), uint32(1000), needs, mps.Checked{States: []mps.Server{{UID: 1001, Clients: []int{1}}}},
		func() { _ = list.Sweep(needs) },
		together.Call(func() {
			for uid := range uint32(3) {
				if err := list.Give(uuid(0), uid); err != nil {
					t.Error(err)
				}
			}
		}))
}
