//go:build cgo

package nvml

import (
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// Inventory reads the whole node: the host, the driver, and every GPU that
// answers. Unreadable holds one error for each GPU that does not, or that has MIG
// devices which do not, in the order of NVML's indices; the inventory holds all the
// others, because one lost card must not lose the node.
func (l *Library) Inventory(ctx context.Context) (inv gpu.Inventory, unreadable []error, err error) {
	host, err := readHost(ctx, &l.names)
	if err != nil {
		return gpu.Inventory{}, nil, err
	}
	type reading struct {
		inv        gpu.Inventory
		unreadable []error
	}
	r, err := run(ctx, l.worker, readLimit, func() (reading, error) {
		inv, unreadable, err := readNode(l.lib, l.has, l.worker.step)
		return reading{inv, unreadable}, err
	})
	if err != nil {
		return gpu.Inventory{}, nil, fmt.Errorf("read inventory: %w", err)
	}
	r.inv.Host = host
	if err := r.inv.Check(); err != nil {
		return gpu.Inventory{}, nil, fmt.Errorf("the node reports what cannot be: %w", err)
	}
	return r.inv, r.unreadable, nil
}

// readNode reads everything but the host. A GPU that cannot be read becomes an
// error of its own; step is told of each call before it is made.
func readNode(lib nvml.Interface, has symbols, step func(string)) (inv gpu.Inventory, unreadable []error, err error) {
	inv = gpu.Inventory{Schema: gpu.InventorySchema, GPUs: []gpu.GPU{}}
	step("nvmlSystemGetDriverVersion")
	if v, ret := lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		inv.Driver = v
	}
	if has.cudaVersion {
		step("nvmlSystemGetCudaDriverVersion")
		if v, ret := lib.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
			inv.CUDA = cudaVersion(v)
		}
	}
	step("nvmlDeviceGetCount")
	count, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return inv, nil, fmt.Errorf("count GPUs: %w", callError(ret))
	}
	for i := range count {
		g, unread, err := readGPU(lib, i, has, step)
		if err == nil {
			err = alone(g).Check()
		}
		if err != nil {
			unreadable = append(unreadable, fmt.Errorf("GPU with NVML index %d: %w", i, err))
			continue
		}
		if unread != nil {
			unreadable = append(unreadable, unread)
		}
		inv.GPUs = append(inv.GPUs, g)
	}
	inv.Sort()
	return inv, unreadable, nil
}

// alone is a node with one GPU, to check what one GPU says of itself.
func alone(g gpu.GPU) gpu.Inventory {
	return gpu.Inventory{Schema: gpu.InventorySchema, Host: gpu.Host{CPUs: 1, Memory: 1}, GPUs: []gpu.GPU{g}}
}

// cudaVersion spells NVML's 1000*major + 10*minor.
func cudaVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }
