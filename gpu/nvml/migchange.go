//go:build cgo

package nvml

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

func (c *migCaller) setMode(mode int) error {
	activation, err := call(c, "nvmlDeviceSetMigMode",
		func() (nvml.Return, nvml.Return) { return c.device.SetMigMode(mode) })
	if err != nil {
		return err
	}
	if activation != nvml.SUCCESS {
		return fmt.Errorf("nvmlDeviceSetMigMode: activation: %w", migError(activation))
	}
	c.step("nvmlDeviceGetMigMode of GPU " + c.uuid.String())
	current, pending, ret := c.device.GetMigMode()
	switch {
	case ret != nvml.SUCCESS:
		return fmt.Errorf("nvmlDeviceGetMigMode: %w", migError(ret))
	case pending != mode:
		return fmt.Errorf("nvmlDeviceSetMigMode succeeds, but mode %d is pending, not %d", pending, mode)
	case current != mode:
		return fmt.Errorf("nvmlDeviceSetMigMode succeeds, but mode %d is in force: %w", current, gpu.ErrResetRequired)
	}
	return nil
}

// find is the GPU instance at a place; nil is none.
func (c *migCaller) find(p gpu.Place) (nvml.GpuInstance, error) {
	gis, err := c.ofProfile(p.Profile)
	if err != nil {
		return nil, err
	}
	for _, gi := range gis {
		info, err := call(c, "nvmlGpuInstanceGetInfo", gi.GetInfo)
		if err != nil {
			return nil, err
		}
		if int(info.Placement.Start) == p.Start {
			return gi, nil
		}
	}
	return nil, nil
}

func (c *migCaller) create(p gpu.Place, size int) error {
	gi, err := c.find(p)
	if err != nil {
		return err
	}
	made := gi == nil
	if made {
		gi, err = call(c, "nvmlDeviceCreateGpuInstanceWithPlacement", func() (nvml.GpuInstance, nvml.Return) {
			return c.device.CreateGpuInstanceWithPlacement(&nvml.GpuInstanceProfileInfo{Id: uint32(p.Profile)},
				&nvml.GpuInstancePlacement{Start: uint32(p.Start), Size: uint32(size)})
		})
		if err != nil {
			return err
		}
	}
	err = c.complete(gi, p.Profile)
	if err != nil && made { // without a compute instance it is of no use, and hard to see
		return errors.Join(err, act(c, "nvmlGpuInstanceDestroy", gi.Destroy))
	}
	return err
}

// complete gives the GPU instance its compute instance: that of the profile
// with all its multiprocessors. The first one that fits may leave 10 of 26
// unusable (double-memory instance of Hopper).
func (c *migCaller) complete(gi nvml.GpuInstance, id gpu.ProfileID) error {
	whole, err := c.multiprocessorsOf(id)
	if err != nil {
		return err
	}
	now, err := c.instance(gi)
	if err != nil {
		return err
	}
	if len(now.Compute) == 1 && now.Compute[0].Multiprocessors == whole {
		return nil
	}
	if len(now.Compute) > 0 {
		return fmt.Errorf("somebody divided the GPU instance into %d compute instances; "+
			"destroy them with nvidia-smi mig -dci to have one", len(now.Compute))
	}
	for _, p := range c.computeProfiles(gi) {
		if int(p.MultiprocessorCount) == whole {
			return act(c, "nvmlGpuInstanceCreateComputeInstance", func() nvml.Return {
				_, ret := gi.CreateComputeInstance(&p)
				return ret
			})
		}
	}
	return fmt.Errorf("the driver offers no compute instance with all %d multiprocessors of the GPU instance", whole)
}

// multiprocessorsOf is the SM count of a GPU instance profile.
func (c *migCaller) multiprocessorsOf(id gpu.ProfileID) (int, error) {
	for kind := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		c.step("nvmlDeviceGetGpuInstanceProfileInfo")
		if info, ret := c.device.GetGpuInstanceProfileInfo(kind); ret == nvml.SUCCESS && int(info.Id) == int(id) {
			return int(info.MultiprocessorCount), nil
		}
	}
	return 0, fmt.Errorf("the driver has no GPU instance profile %d", id)
}

// destroy takes compute instances first. A success of the driver is not
// believed (go-nvml 146): the caller enumerates again, and so does the last line.
func (c *migCaller) destroy(p gpu.Place) error {
	gi, err := c.find(p)
	if gi == nil || err != nil {
		return err
	}
	for _, profile := range c.computeProfiles(gi) {
		cis, err := c.computeInstances(gi, profile.Id)
		if err != nil {
			return err
		}
		for _, ci := range cis {
			if err := act(c, "nvmlComputeInstanceDestroy", ci.Destroy); err != nil {
				return err
			}
		}
	}
	if err := act(c, "nvmlGpuInstanceDestroy", gi.Destroy); err != nil {
		return err
	}
	if gi, err = c.find(p); gi != nil && err == nil {
		return errors.New("nvmlGpuInstanceDestroy succeeds, but the instance is still there")
	}
	return err
}
