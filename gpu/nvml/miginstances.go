//go:build cgo

package nvml

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// Room for the answers of list calls. They are not told how much there is, and
// profiles' own counts are not right on every chip (N13).
const (
	roomGPUInstances     = 32
	roomComputeInstances = 16
)

// wholeGPU is the id of processes outside any instance.
const wholeGPU = 0xFFFFFFFF

// instances lists GPU instances by profile: a list by MIG device misses those
// without a compute instance (DRA driver 1452).
func (c *migCaller) instances(profiles []gpu.Profile) ([]gpu.Instance, error) {
	var all []gpu.Instance
	for _, p := range profiles {
		gis, err := c.ofProfile(p.ID)
		if err != nil {
			return nil, err
		}
		for _, gi := range gis {
			i, err := c.instance(gi)
			if err != nil {
				return nil, err
			}
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b gpu.Instance) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Profile, b.Profile))
	})
	return all, nil
}

func (c *migCaller) ofProfile(id gpu.ProfileID) ([]nvml.GpuInstance, error) {
	return call(c, "nvmlDeviceGetGpuInstances", func() ([]nvml.GpuInstance, nvml.Return) {
		gis, ret := c.device.GetGpuInstances(&nvml.GpuInstanceProfileInfo{Id: uint32(id), InstanceCount: roomGPUInstances})
		if ret == nvml.ERROR_NOT_FOUND {
			return nil, nvml.SUCCESS // nvidia-smi prints "No GPU instances found: Not Found"
		}
		return gis, ret
	})
}

func (c *migCaller) instance(gi nvml.GpuInstance) (gpu.Instance, error) {
	info, err := call(c, "nvmlGpuInstanceGetInfo", gi.GetInfo)
	if err != nil {
		return gpu.Instance{}, err
	}
	i := gpu.Instance{
		Place: gpu.Place{Profile: gpu.ProfileID(info.ProfileId), Start: int(info.Placement.Start)},
		Size:  int(info.Placement.Size),
		ID:    int(info.Id), Owner: gpu.Foreign,
	}
	for _, p := range c.computeProfiles(gi) {
		cis, err := c.computeInstances(gi, p.Id)
		if err != nil {
			return i, err
		}
		for _, ci := range cis {
			info, err := call(c, "nvmlComputeInstanceGetInfo", ci.GetInfo)
			if err != nil {
				return i, err
			}
			i.Compute = append(i.Compute, gpu.ComputeInstance{ID: int(info.Id), Multiprocessors: int(p.MultiprocessorCount)})
		}
	}
	return i, nil
}

func (c *migCaller) computeInstances(gi nvml.GpuInstance, profile uint32) ([]nvml.ComputeInstance, error) {
	return call(c, "nvmlGpuInstanceGetComputeInstances", func() ([]nvml.ComputeInstance, nvml.Return) {
		cis, ret := gi.GetComputeInstances(&nvml.ComputeInstanceProfileInfo{Id: profile, InstanceCount: roomComputeInstances})
		if ret == nvml.ERROR_NOT_FOUND {
			return nil, nvml.SUCCESS
		}
		return cis, ret
	})
}

// computeProfiles are those that a GPU instance offers.
func (c *migCaller) computeProfiles(gi nvml.GpuInstance) []nvml.ComputeInstanceProfileInfo {
	var all []nvml.ComputeInstanceProfileInfo
	for kind := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		c.step("nvmlGpuInstanceGetComputeInstanceProfileInfo")
		info, ret := gi.GetComputeInstanceProfileInfo(kind, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret == nvml.SUCCESS {
			all = append(all, info)
		}
	}
	return all
}

// devices adds what only MIG devices tell: UUIDs and processes. Their indices
// move and have holes (N11).
func (c *migCaller) devices(instances []gpu.Instance) error {
	most, err := call(c, "nvmlDeviceGetMaxMigDeviceCount", c.device.GetMaxMigDeviceCount)
	if err != nil {
		return err
	}
	for index := range most {
		c.step("nvmlDeviceGetMigDeviceHandleByIndex")
		d, ret := c.device.GetMigDeviceHandleByIndex(index)
		if isHole(ret) {
			continue
		}
		if ret != nvml.SUCCESS {
			return fmt.Errorf("MIG device %d: %w", index, migError(ret))
		}
		if err := c.fill(instances, d); err != nil {
			return fmt.Errorf("MIG device %d: %w", index, err)
		}
	}
	return nil
}

// fill writes one MIG device into the instance that it belongs to.
func (c *migCaller) fill(instances []gpu.Instance, d nvml.Device) error {
	gi, err := call(c, "nvmlDeviceGetGpuInstanceId", d.GetGpuInstanceId)
	if err != nil {
		return err
	}
	ci, err := call(c, "nvmlDeviceGetComputeInstanceId", d.GetComputeInstanceId)
	if err != nil {
		return err
	}
	name, err := call(c, "nvmlDeviceGetUUID", d.GetUUID)
	if err != nil {
		return err
	}
	holders, err := c.holders(d, false)
	if err != nil {
		return err
	}
	// Before R470 a MIG UUID has another form: then there is none.
	uuid, _ := gpu.ParseUUID(name)
	for i := range instances {
		for k := range instances[i].Compute {
			if instances[i].ID == gi && instances[i].Compute[k].ID == ci {
				instances[i].Compute[k].UUID = uuid
				instances[i].Holders = append(instances[i].Holders, holders...)
			}
		}
	}
	return nil
}

// holders are the processes of a GPU or MIG device, from all of NVML's lists;
// outside: only those that are in no instance.
func (c *migCaller) holders(d nvml.Device, outside bool) ([]gpu.Holder, error) {
	lists := map[string]func() ([]nvml.ProcessInfo, nvml.Return){
		"nvmlDeviceGetComputeRunningProcesses":  d.GetComputeRunningProcesses,
		"nvmlDeviceGetGraphicsRunningProcesses": d.GetGraphicsRunningProcesses,
	}
	if c.has.mps {
		lists["nvmlDeviceGetMPSComputeRunningProcesses"] = d.GetMPSComputeRunningProcesses
	}
	pids := map[int]bool{}
	for name, list := range lists {
		found, err := call(c, name, func() ([]nvml.ProcessInfo, nvml.Return) {
			found, ret := list()
			if ret == nvml.ERROR_NOT_SUPPORTED {
				return nil, nvml.SUCCESS
			}
			return found, ret
		})
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			if !outside || p.GpuInstanceId == wholeGPU {
				pids[int(p.Pid)] = true // a PID that cannot be still says that somebody is there
			}
		}
	}
	var all []gpu.Holder
	for pid := range pids {
		all = append(all, gpu.Holder{PID: pid})
	}
	slices.SortFunc(all, func(a, b gpu.Holder) int { return cmp.Compare(a.PID, b.PID) })
	return all, nil
}
