package sim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

// TestProfiles: NVML answers with the published numbers, in every version of
// the query, and with capacity that creation then finds.
func TestProfiles(t *testing.T) {
	needRoot(t)
	all, err := models()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		t.Run(m.Model, func(t *testing.T) {
			t.Parallel()
			New(t, "580.82.07", m.Model).do(t, "profiles", m.Model)
		})
	}
}

func compareProfiles(lib nvml.Interface, args []string) error {
	m, err := modelNamed(args[0])
	if err != nil {
		return err
	}
	d, err := oneGPU(lib)
	if err != nil {
		return err
	}
	var got []profile
	for enum := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		p, err := readProfile(d, enum)
		if err != nil {
			return err
		}
		if p != nil {
			got = append(got, *p)
		}
	}
	want := slices.Clone(m.Profiles)
	slices.SortFunc(want, func(a, b profile) int { return a.Enum - b.Enum })
	for i, w := range want {
		if i < len(got) && w.SM == 0 {
			want[i].SM = got[i].SM
		}
		if i < len(got) && w.MiB == 0 {
			want[i].MiB = got[i].MiB
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("profiles (-table +NVML):\n%s", diff)
	}
	return nil
}

// readProfile asks one profile in all ways; nil: not on this GPU.
func readProfile(d nvml.Device, enum int) (*profile, error) {
	v1, ret := d.GetGpuInstanceProfileInfo(enum)
	if ret == nvml.ERROR_NOT_SUPPORTED {
		return nil, nil
	}
	v2, ret2 := d.GetGpuInstanceProfileInfoV(enum).V2()
	v3, ret3 := d.GetGpuInstanceProfileInfoV(enum).V3()
	at, ret4 := d.GetGpuInstancePossiblePlacements(&v1)
	free, ret5 := d.GetGpuInstanceRemainingCapacity(&v1)
	if err := errors.Join(ok("v1", ret), ok("v2", ret2), ok("v3", ret3), ok("placements", ret4), ok("capacity", ret5)); err != nil {
		return nil, fmt.Errorf("profile %d: %w", enum, err)
	}
	p := profile{ID: int(v1.Id), Enum: enum, Slices: int(v1.SliceCount), Max: int(v1.InstanceCount), SM: int(v1.MultiprocessorCount),
		MiB: int(v1.MemorySizeMB), Engines: [4]int{int(v1.DecoderCount), int(v1.EncoderCount), int(v1.JpegCount), int(v1.OfaCount)}}
	for _, a := range at {
		p.Starts, p.Size = append(p.Starts, int(a.Start)), int(a.Size)
	}
	p.Name = strings.TrimPrefix(text(v2.Name[:]), "MIG ")
	if name3 := text(v3.Name[:]); name3 != "MIG "+p.Name || v2.Id != v1.Id || v3.Id != v1.Id || v3.MemorySizeMB != v1.MemorySizeMB || v2.SliceCount != v1.SliceCount || v3.SliceCount != v1.SliceCount {
		return nil, fmt.Errorf("profile %d: v1 %+v, v2 %+v, v3 %+v differ", enum, v1, v2, v3)
	}
	if free != p.Max {
		return nil, fmt.Errorf("profile %s: %d free on an empty GPU, want %d", p.Name, free, p.Max)
	}
	return &p, nil
}

func text(s []int8) string {
	var b strings.Builder
	for _, c := range s {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

// TestComputeInstanceProfiles: ids, names, counts and multiprocessors inside a
// GPU instance (MIG User Guide, -lcip listings). The double-memory instance of
// Hopper has a profile of its own with all multiprocessors (public GH200
// listing): a caller that takes profile 0 wastes ten of 26.
func TestComputeInstanceProfiles(t *testing.T) {
	needRoot(t)
	for _, c := range []struct{ model, id, want string }{
		{"A100-40", "9", "0 1c.3g.20gb x3 14, 1 2c.3g.20gb x1 28, 2 3g.20gb x1 42"},
		{"A100-40", "5", "0 1c.4g.20gb x4 14, 1 2c.4g.20gb x2 28, 3 4g.20gb x1 56"},
		{"A100-40", "0", "0 1c.7g.40gb x7 14, 1 2c.7g.40gb x3 28, 2 3c.7g.40gb x2 42, 3 4c.7g.40gb x1 56, 4 7g.40gb x1 98"},
		{"A100-40", "15", "0 1g.10gb x1 14"},
		{"H100-80", "15", "0 1c.1g.20gb x1 16, 7 1g.20gb x1 26"},
		{"H100-80", "9", "0 1c.3g.40gb x3 16, 1 2c.3g.40gb x1 32, 2 3g.40gb x1 60"},
		{"A30", "5", "0 1c.2g.12gb x2 14, 1 2g.12gb x1 28"},
	} {
		t.Run(c.model+"/"+c.id, func(t *testing.T) {
			if got := strings.TrimSpace(New(t, "550.163.01", c.model).do(t, "compute", c.id)); got != c.want {
				t.Errorf("compute instance profiles:\n%s, want\n%s", got, c.want)
			}
		})
	}
}

func listComputeProfiles(lib nvml.Interface, args []string) error {
	id, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return err
	}
	d, err := oneGPU(lib)
	if err != nil {
		return err
	}
	gi, ret := d.CreateGpuInstance(info(uint32(id)))
	if ret != nvml.SUCCESS {
		return ret
	}
	var lines []string
	for p := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		v1, ret := gi.GetComputeInstanceProfileInfo(p, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret == nvml.ERROR_NOT_SUPPORTED {
			continue
		}
		v2, ret2 := gi.GetComputeInstanceProfileInfoV(p, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED).V2()
		free, retFree := gi.GetComputeInstanceRemainingCapacity(&v1)
		places, retPlaces := gi.GetComputeInstancePossiblePlacements(&v1)
		err = errors.Join(err, ok("v1", ret), ok("v2", ret2), ok("capacity", retFree), ok("placements", retPlaces))
		if v2.Id != v1.Id || free != int(v1.InstanceCount) || len(places) != free {
			err = errors.Join(err, fmt.Errorf("profile %d: %+v, %+v, %d free, places %v", p, v1, v2, free, places))
		}
		lines = append(lines, fmt.Sprintf("%d %s x%d %d", v1.Id, strings.TrimPrefix(text(v2.Name[:]), "MIG "), v1.InstanceCount, v1.MultiprocessorCount))
	}
	return errors.Join(err, say(strings.Join(lines, ", ")))
}
