package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Hardware is what the node has: NVML's word, or a recorded file.
type Hardware interface {
	// Inventory reads the node. Unreadable says which GPUs are there but do not
	// answer; the inventory holds all the others.
	Inventory(ctx context.Context) (inv gpu.Inventory, unreadable []error, err error)
	// SetComputeMode returns ErrRecorded where there is no hardware to set.
	SetComputeMode(ctx context.Context, u gpu.UUID, mode gpu.ComputeMode) error
}

// ErrRecorded says that a recorded inventory has no GPU whose compute mode could be set.
var ErrRecorded = errors.New("the inventory is a recorded file, not the hardware")

// Recorded is the Hardware that a file describes; it is read anew each time.
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

// hardwareMissing says why a node that should have GPUs has none yet; empty if
// it has some, or should have none.
func hardwareMissing(inv gpu.Inventory, err error, expected int) string {
	switch {
	case err != nil:
		return fmt.Sprintf("the inventory cannot be read: %v: gpuslotd tries again", err)
	case len(inv.GPUs) == 0 && expected > 0:
		return fmt.Sprintf("%d NVIDIA devices are on the PCI bus, but the driver shows none: see whether nvidia-smi lists them", expected)
	}
	return ""
}

// inventoryTimeout bounds one reading of the inventory. Without persistence
// mode the driver initialises every GPU anew, which takes seconds each.
const inventoryTimeout = 30 * time.Second

func (a *Agent) inventory(ctx context.Context) (gpu.Inventory, []error, error) {
	ctx, cancel := context.WithTimeout(ctx, inventoryTimeout)
	defer cancel()
	return a.hardware.Inventory(ctx)
}
