//go:build cgo

package nvml

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/gpu"
)

// stuck is a library in which one call does not return.
type stuck struct {
	symbolLibrary
	call  string
	until chan struct{}
}

func (l stuck) Extensions() nvml.ExtendedInterface { return l }
func (l stuck) SystemGetDriverVersion() (string, nvml.Return) {
	if l.call == "nvmlSystemGetDriverVersion" {
		<-l.until
	}
	return l.symbolLibrary.SystemGetDriverVersion()
}
func (l stuck) DeviceGetCount() (int, nvml.Return) {
	if l.call == "nvmlDeviceGetCount" {
		<-l.until
	}
	return 0, nvml.SUCCESS
}

// TestUsageNamesTheCall: a call for all GPUs that does not return is named.
func TestUsageNamesTheCall(t *testing.T) {
	for _, call := range []string{"nvmlSystemGetDriverVersion", "nvmlDeviceGetCount"} {
		synctest.Test(t, func(t *testing.T) {
			lib := stuck{call: call, until: make(chan struct{})}
			u := &Usage{lib: lib, count: newWorker()}
			if _, err := u.Read(t.Context()); err == nil || !strings.Contains(err.Error(), call+" has not returned") {
				t.Errorf("%s: %v", call, err)
			}
			close(lib.until)
			if err := u.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
}

// boards counts how often a GPU is asked for its board.
type boards struct {
	busyDevice
	asked *int
}

func (d boards) GetTemperature(nvml.TemperatureSensors) (uint32, nvml.Return) {
	*d.asked++
	return 40, nvml.SUCCESS
}
func (boards) GetEnforcedPowerLimit() (uint32, nvml.Return)           { return 1, nvml.SUCCESS }
func (boards) GetClockInfo(nvml.ClockType) (uint32, nvml.Return)      { return 2, nvml.SUCCESS }
func (boards) GetCurrentClocksThrottleReasons() (uint64, nvml.Return) { return 3, nvml.SUCCESS }
func (boards) GetTotalEccErrors(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
	return 4, nvml.SUCCESS
}

// TestBoardIsAskedSeldom: what changes slowly is asked again after boardEvery, and not of a GPU that breaks.
func TestBoardIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := boards{busyDevice{fakeDevice: v100s(uuidA, 0x1a)}, new(int)}
		m := meter{lib: oneDevice{device: d}, step: func(string) {}, has: &usageSymbols{board: true}}
		for i, want := range []int{1, 1, 2} {
			r := m.read(0)
			if r.Err != nil || r.Board.Temperature != gpu.Known[uint32](40) || !r.Board.Uncorrected.Known || *d.asked != want {
				t.Errorf("reading %d: %+v, %v, asked %d times", i, r.Board, r.Err, *d.asked)
			}
			time.Sleep(boardEvery / 2)
		}
		time.Sleep(boardEvery)
		d.memory = nvml.ERROR_UNKNOWN
		m.lib = oneDevice{device: d}
		if r := m.read(0); r.Err == nil || *d.asked != 2 {
			t.Errorf("of a GPU that breaks: %v, asked %d times", r.Err, *d.asked)
		}
	})
}

// dividedDevice is a GPU whose GPU instances have counters.
type dividedDevice struct{ busyDevice }

func (d dividedDevice) GpmMigSampleGet(_ int, s nvml.GpmSample) nvml.Return { return d.GpmSampleGet(s) }

// TestInstanceActivity: a GPU instance with one MIG device has a number, and begins anew for another device.
func TestInstanceActivity(t *testing.T) {
	d := busyDevice{fakeDevice: v100s(uuidA, 0x1a)}
	m, live := busyMeter(&d, usageSymbols{gpm: true, gpmMIG: true})
	r := deviceReader{device: dividedDevice{d}, step: func(string) {}}
	g := &gpuMeter{}
	read := func(list ...gpu.InstanceReading) (known []bool) {
		*d.clock++
		*d.sm += 50
		m.instanceActivity(&r, g, list)
		for _, i := range list {
			known = append(known, i.SMActivity.Known)
		}
		return known
	}
	own := gpu.InstanceReading{UUID: "MIG-1", GPUInstance: 1}
	other := gpu.InstanceReading{UUID: "MIG-2", GPUInstance: 1}
	twins := []gpu.InstanceReading{{UUID: "MIG-3", GPUInstance: 2}, {UUID: "MIG-4", GPUInstance: 2}}
	for i, c := range []struct {
		list []gpu.InstanceReading
		want bool
		live int
	}{
		{[]gpu.InstanceReading{own, twins[0], twins[1]}, false, 2},
		{[]gpu.InstanceReading{own, twins[0], twins[1]}, true, 2},
		{[]gpu.InstanceReading{other}, false, 2},
		{[]gpu.InstanceReading{other}, true, 2},
		{twins, false, 0},
	} {
		known := read(c.list...)
		if known[0] != c.want || len(known) > 1 && known[1] || r.err != nil || *live != c.live {
			t.Errorf("reading %d: %v, %d samples, %v", i, known, *live, r.err)
		}
	}
}
