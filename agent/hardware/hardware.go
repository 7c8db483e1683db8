// Package hardware reads which GPUs this node has, and says why it may not use them now: the driver
// shows none, or a new driver was installed while the old one is loaded.
//
// Start at Reader. A hanging driver delays none of its methods for longer than their deadlines say.
package hardware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// Source is NVML, or a recorded file.
type Source interface {
	// Inventory reads the node. Unreadable says which GPUs and MIG devices are there but do
	// not answer; the inventory holds all the others.
	Inventory(ctx context.Context) (inv gpu.Inventory, unreadable []error, err error)
	// SetComputeMode returns ErrRecorded where there is no hardware to set.
	SetComputeMode(ctx context.Context, u gpu.UUID, mode gpu.ComputeMode) error
}

// ErrRecorded says that a recorded inventory has no GPU whose compute mode could be set.
var ErrRecorded = errors.New("the inventory is a recorded file, not the hardware")

// Recorded is the Source that a file describes; it is read again each time.
type Recorded struct{ Path string }

// Inventory reads the file that "gpuslot inventory --json" wrote.
func (r Recorded) Inventory(context.Context) (gpu.Inventory, []error, error) {
	inv, err := gpu.ReadInventory(r.Path)
	return inv, nil, err
}

// SetComputeMode always returns ErrRecorded.
func (Recorded) SetComputeMode(context.Context, gpu.UUID, gpu.ComputeMode) error { return ErrRecorded }

// ExpectedGPUs counts NVIDIA display and compute devices on the PCI bus (class
// 03xx, vendor 10de), whether or not a driver serves them. Sys is "/sys".
func ExpectedGPUs(sys string) int {
	devices, _ := filepath.Glob(filepath.Join(sys, "bus/pci/devices/*")) // fails on a bad pattern only
	n := 0
	for _, d := range devices {
		vendor, errV := os.ReadFile(filepath.Join(d, "vendor"))
		class, errC := os.ReadFile(filepath.Join(d, "class"))
		if errV != nil || errC != nil {
			continue // unplugged while we look
		}
		if strings.TrimSpace(string(vendor)) == "0x10de" && strings.HasPrefix(string(class), "0x03") {
			n++
		}
	}
	return n
}

// Options are what a Reader works with.
type Options struct {
	Source
	// Expected is how many GPUs the node should have, as far as the PCI bus shows.
	Expected int
	// Mismatch asks a fresh process whether it could use the driver, and returns why not: the
	// library was replaced under the loaded module. Nil asks no process.
	Mismatch func(ctx context.Context) (why string, err error)
	Log      *slog.Logger
}

// Reader reads the hardware. Inventory may be called by several goroutines at a time; all else
// belongs to the agent's loop.
type Reader struct {
	Options
	// mismatch is why a fresh process could not use the driver, healed that one can again.
	mismatch string
	healed   bool
	// asked gives the answer of a fresh process that is asked now.
	asked chan answer
}

// New returns a Reader that has read nothing.
func New(o Options) *Reader { return &Reader{Options: o} }

// readTimeout bounds one reading. Without persistence mode the driver initialises every GPU
// first, which takes seconds each.
const readTimeout = 30 * time.Second

// Inventory reads the node: see Source.
func (r *Reader) Inventory(ctx context.Context) (gpu.Inventory, []error, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return r.Source.Inventory(ctx)
}

// Missing says why a node that should have GPUs has none yet, by the result of Inventory; empty if it
// has some, or should have none.
func (r *Reader) Missing(inv gpu.Inventory, err error) string {
	switch {
	case err != nil:
		return fmt.Sprintf("the inventory cannot be read: %v: gpuslotd tries again", err)
	case len(inv.GPUs) == 0 && r.Expected > 0:
		return fmt.Sprintf("%d NVIDIA devices are on the PCI bus, but the driver shows none: see whether nvidia-smi "+
			"lists them", r.Expected)
	}
	return ""
}

// Await gives a driver that is still loading time, at most so much. Waits is called with each new
// reason why the GPUs are not there.
func (r *Reader) Await(ctx context.Context, most time.Duration, waits func(why string)) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	logged := ""
	for {
		inv, _, err := r.Inventory(ctx)
		why := r.Missing(inv, err)
		if why == "" || ctx.Err() != nil {
			return
		}
		if why != logged {
			r.Log.Warn("waiting for the GPUs", "err", why)
			waits(why)
			logged = why
		}
		_ = backoff.Wait(ctx, time.Second) // the next Inventory looks at the context
	}
}
