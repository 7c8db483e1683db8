package bench

import (
	"errors"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// readings are made of one GPU's, half a second apart.
func metered(t *testing.T, all ...gpu.Reading) Run {
	t.Helper()
	m := NewMeter("GPU-1", func(pid int) (int, bool) { return pid / 100, pid < 300 })
	at := time.Unix(1000, 0)
	for i, r := range all {
		r.GPU, r.At = "GPU-1", at.Add(time.Duration(i)*500*time.Millisecond)
		m.Add([]gpu.Reading{{GPU: "GPU-2", Energy: gpu.Known(uint64(1e9))}, r})
	}
	r := Run{Jobs: make([]Job, 3)}
	m.Into(&r)
	return r
}

func used(mib uint64, processes ...gpu.DeviceProcess) gpu.Use {
	u := gpu.Use{Memory: gpu.Known(gpu.MemoryUse{Used: gpu.Bytes(mib << 20)})}
	if processes != nil {
		u.Processes = gpu.Known(processes)
	}
	return u
}

func held(pid int, mib uint64) gpu.DeviceProcess {
	return gpu.DeviceProcess{PID: pid, Memory: gpu.Known(gpu.Bytes(mib << 20))}
}

func TestMeterMemory(t *testing.T) {
	r := metered(t,
		gpu.Reading{Use: used(500, held(1, 9000))}, // before the run: nobody's
		gpu.Reading{Use: used(1500, held(0, 400), held(1, 300), held(100, 100), held(900, 700))},
		gpu.Reading{Use: used(1200, held(0, 650), gpu.DeviceProcess{PID: 100})},
		gpu.Reading{Err: errors.New("it does not answer"), Use: used(9999)},
	)
	if *r.IdleVRAM != 500 || *r.PeakVRAM != 1500 || *r.Jobs[0].PeakVRAM != 700 || *r.Jobs[1].PeakVRAM != 100 {
		t.Errorf("%v %v %v %v", *r.IdleVRAM, *r.PeakVRAM, *r.Jobs[0].PeakVRAM, *r.Jobs[1].PeakVRAM)
	}
	if r.Jobs[2].PeakVRAM != nil || r.Energy != nil || r.SMActivity != nil {
		t.Errorf("what was not told is known: %+v", r)
	}
}

func TestMeterOfMIGDevices(t *testing.T) {
	reading := func(a, b uint64) gpu.Reading {
		return gpu.Reading{MIGEnabled: true, Instances: []gpu.InstanceReading{{Use: used(a, held(0, a))}, {Use: used(b, held(100, b))}}}
	}
	r := metered(t, reading(10, 20), reading(100, 200))
	if *r.IdleVRAM != 30 || *r.PeakVRAM != 300 || *r.Jobs[0].PeakVRAM != 100 || *r.Jobs[1].PeakVRAM != 200 {
		t.Errorf("%+v", r)
	}
}

func TestMeterEnergy(t *testing.T) {
	power := func(mw, mj uint64) gpu.Reading {
		return gpu.Reading{Power: gpu.Known(mw), Energy: gpu.Measured[uint64]{Value: mj, Known: mj > 0}}
	}
	tests := map[string]struct {
		readings []gpu.Reading
		want     float64
		from     EnergySource
	}{
		"the counter":                   {[]gpu.Reading{power(1, 5000), power(1, 9000)}, 4, EnergyCounter},
		"power, half a second each":     {[]gpu.Reading{power(100_000, 0), power(200_000, 0), power(200_000, 0)}, 75 + 100, EnergyPower},
		"a driver loaded again":         {[]gpu.Reading{power(100_000, 9000), power(100_000, 10)}, 50, EnergyPower},
		"a counter that stands still":   {[]gpu.Reading{power(100_000, 5000), power(100_000, 5000)}, 50, EnergyPower},
		"it alone":                      {[]gpu.Reading{{Energy: gpu.Known(uint64(0))}, {Energy: gpu.Known(uint64(0))}}, 0, ""},
		"neither":                       {[]gpu.Reading{{}, power(100_000, 0)}, 0, ""},
		"one reading is no time at all": {[]gpu.Reading{power(100_000, 5000)}, 0, ""},
	}
	for name, tt := range tests {
		r := metered(t, tt.readings...)
		if (r.Energy == nil) != (tt.from == "") || r.EnergyFrom != tt.from || r.Energy != nil && *r.Energy != tt.want {
			t.Errorf("%s: %v %q", name, r.Energy, r.EnergyFrom)
		}
	}
}

// TestMeterActivity: each mean counts as long as it lasted, and that of the time
// before the run does not.
func TestMeterActivity(t *testing.T) {
	active := func(ratio float64, d time.Duration) gpu.Reading {
		a := gpu.Known(gpu.Activity{Ratio: ratio, From: time.Unix(0, 0), To: time.Unix(0, 0).Add(d)})
		return gpu.Reading{Use: gpu.Use{SMActivity: a}, DRAMActivity: a}
	}
	r := metered(t, active(1, time.Hour), active(0.2, 3*time.Second), active(0.6, time.Second), gpu.Reading{})
	if got := *r.SMActivity; got < 0.2999 || got > 0.3001 {
		t.Errorf("%v", got)
	}
	if r.KernelTime != nil {
		t.Error("kernel time is known")
	}
}
