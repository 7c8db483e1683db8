//go:build cgo

package nvml

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// state reads everything of one GPU again.
func (c *migCaller) state() (gpu.MIGState, error) {
	s := gpu.MIGState{MIGGPU: gpu.MIGGPU{UUID: c.uuid}, Minor: -1}
	var err error
	if s.Capable, s.Enabled, s.Pending, err = c.mode(); err != nil {
		return s, err
	}
	if s.Index, err = call(c, "nvmlDeviceGetIndex", c.device.GetIndex); err != nil {
		return s, err
	}
	pci, err := call(c, "nvmlDeviceGetPciInfo", c.device.GetPciInfo)
	if err != nil {
		return s, err
	}
	s.Device = gpu.PCIDevice(pci.PciDeviceId)
	// The minor number may change with the mode: it is read each time.
	c.step("nvmlDeviceGetMinorNumber")
	if minor, ret := c.device.GetMinorNumber(); ret == nvml.SUCCESS {
		s.Minor = minor
	}
	if !s.Capable {
		return s, nil
	}
	if s.Chip, err = c.chip(); err != nil {
		return s, err
	}
	return s, c.contents(&s)
}

// contents are instances and holders.
func (c *migCaller) contents(s *gpu.MIGState) (err error) {
	if s.Enabled {
		if s.Instances, err = c.instances(s.Chip.Profiles); err != nil {
			return err
		}
		if err := c.devices(s.Instances); err != nil {
			return err
		}
	}
	s.Holders, err = c.holders(c.device, s.Enabled)
	return err
}

func (c *migCaller) mode() (capable, enabled, pending bool, err error) {
	c.step("nvmlDeviceGetMigMode of GPU " + c.uuid.String())
	current, next, ret := c.device.GetMigMode()
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return capable, enabled, pending, nil
	}
	if ret != nvml.SUCCESS {
		return capable, enabled, pending, migError(ret)
	}
	return true, current == nvml.DEVICE_MIG_ENABLE, next == nvml.DEVICE_MIG_ENABLE, nil
}

// chip is what the driver tells of the model.
func (c *migCaller) chip() (gpu.Chip, error) {
	var chip gpu.Chip
	var err error
	if chip.Model, err = call(c, "nvmlDeviceGetName", c.device.GetName); err != nil {
		return chip, err
	}
	chip.Capability, err = call(c, "nvmlDeviceGetCudaComputeCapability", func() (gpu.ComputeCapability, nvml.Return) {
		major, minor, ret := c.device.GetCudaComputeCapability()
		return gpu.ComputeCapability{Major: major, Minor: minor}, ret
	})
	if err != nil {
		return chip, err
	}
	memory, err := call(c, "nvmlDeviceGetMemoryInfo", c.device.GetMemoryInfo)
	if err != nil {
		return chip, err
	}
	chip.Memory = gpu.MiBFromBytes(memory.Total)
	if c.cores {
		c.step("nvmlDeviceGetNumGpuCores")
		if cores, ret := c.device.GetNumGpuCores(); ret == nvml.SUCCESS {
			chip.Multiprocessors = multiprocessors(chip.Capability, cores)
		}
	}
	if chip.Profiles, err = c.profiles(chip.Memory); err != nil {
		return chip, err
	}
	chip.Apart = c.apart(chip)
	return chip, nil
}

// apart: before R510 a GA100 refuses 4g beside 3g (MIG User Guide, Partitioning).
func (c *migCaller) apart(chip gpu.Chip) [][2]gpu.ProfileID {
	c.step("nvmlSystemGetDriverVersion")
	version, ret := c.lib.SystemGetDriverVersion()
	branch, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(branch)
	if ret != nvml.SUCCESS || err != nil || n >= 510 || chip.Capability != (gpu.ComputeCapability{Major: 8}) {
		return nil
	}
	var pairs [][2]gpu.ProfileID
	for _, four := range chip.Profiles {
		for _, three := range chip.Profiles {
			if four.Slices == 4 && three.Slices == 3 {
				pairs = append(pairs, [2]gpu.ProfileID{four.ID, three.ID})
			}
		}
	}
	return pairs
}

// profiles are asked for by NVML's enumerator, up to the number that the header
// of go-nvml knows; every later call wants the id of the answer (N5).
func (c *migCaller) profiles(memory gpu.MiB) ([]gpu.Profile, error) {
	var all []gpu.Profile
	for kind := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		c.step("nvmlDeviceGetGpuInstanceProfileInfo")
		info, ret := c.device.GetGpuInstanceProfileInfo(kind)
		if absent(ret) {
			continue
		}
		if ret != nvml.SUCCESS {
			return nil, migError(ret)
		}
		p, err := c.profile(kind, info, memory)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func (c *migCaller) profile(kind int, info nvml.GpuInstanceProfileInfo, memory gpu.MiB) (gpu.Profile, error) {
	p := gpu.Profile{
		ID: gpu.ProfileID(info.Id), Name: c.profileName(kind, info, memory), Slices: int(info.SliceCount),
		Max:             int(info.InstanceCount),
		Multiprocessors: int(info.MultiprocessorCount), Memory: gpu.MiB(info.MemorySizeMB), // NVML's MB is MiB
		Engines: gpu.Engines{Decoders: int(info.DecoderCount), Encoders: int(info.EncoderCount), JPEG: int(info.JpegCount),
			OFA: int(info.OfaCount)},
	}
	places, err := call(c, "nvmlDeviceGetGpuInstancePossiblePlacements",
		func() ([]nvml.GpuInstancePlacement, nvml.Return) {
			return c.device.GetGpuInstancePossiblePlacements(&info)
		})
	for _, at := range places {
		p.Starts, p.Size = append(p.Starts, int(at.Start)), int(at.Size)
	}
	return p, err
}

// profileName is the driver's own name, or before R525 the one that nvidia-smi makes.
func (c *migCaller) profileName(kind int, info nvml.GpuInstanceProfileInfo, memory gpu.MiB) string {
	if c.has.named {
		c.step("nvmlDeviceGetGpuInstanceProfileInfoV")
		if v, ret := c.device.GetGpuInstanceProfileInfoV(kind).V2(); ret == nvml.SUCCESS {
			if p, err := gpu.ParseProfileName(text(v.Name[:])); err == nil {
				return p.String()
			}
		}
	}
	return derivedName(kind, int(info.SliceCount), gpu.MiB(info.MemorySizeMB), memory)
}

// derivedName names a profile as mig-parted does where the driver does not
// (go-nvlib pkg/nvlib/device/mig_profile.go): its memory in eighths of the GPU's.
func derivedName(kind, slices int, memory, whole gpu.MiB) string {
	const eighths, perGB = 8, 1024
	whole = cmp.Or(whole, memory)
	part := (memory*eighths + whole - 1) / whole
	gb := (part*((whole+perGB-1)/perGB) + eighths/2) / eighths
	p := gpu.ProfileName{Slices: slices, GB: int(gb)}
	if kind == nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1 || kind == nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1 {
		p.Attributes = []string{"me"}
	}
	return p.String()
}

// text is a C string.
func text[T int8 | uint8](room []T) string {
	var b []byte
	for _, c := range room {
		if c == 0 {
			break
		}
		b = append(b, byte(c))
	}
	return string(b)
}
