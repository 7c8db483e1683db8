package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/condor"
)

// A job keeps its MIG device after a reload whose plan lacks its place, whether gpuslotd starts again once or more
// often. The job is idle: neither NVML nor /proc shows it. The device goes when the job has ended.
func TestDeviceOfAJobStaysAfterRestarts(t *testing.T) {
	for name, config := range map[string]string{
		"another layout": migConfig("7g.40gb", ""), "not divided": "", "MPS": migConfig("7g.40gb", "mig_mps = true\n"),
		"no layout": "[gpu.\"" + string(uuid(0)) + "\"]\nmode = \"mig\"\n",
	} {
		for _, reload := range []bool{true, false} {
			ta, f := migAgent(t, "1g.5gb*7", "")
			ta.restart()
			place := ta.place("1g.5gb@0")
			ta.grant(ta.proc.starter(100, "slot1_1"), 1000, "alice", place.UUID, 2048)
			ta.startd.set([]condor.Slot{slotAd("slot1_1", "5.0", "alice", 2048, place.UUID)}, nil)
			ta.startds.Ask(t.Context())
			has := func() bool {
				for _, i := range f.S.Instances {
					if u, _ := i.UUID(); u == place.Device {
						return true
					}
				}
				return false
			}
			ta.writeConfig(config)
			if reload {
				ta.apply(true)
			}
			for range 3 {
				ta.restart()
				if why := ta.status().UnknownJob; !strings.HasPrefix(why, "slot1_1 ") {
					t.Errorf("%s, reload %t: before the startd has answered: %q", name, reload, why)
				}
				ta.startds.Ask(t.Context())
				if v := ta.apply(false); !has() || len(ta.jobs.Running()) != 1 {
					t.Fatalf("%s, reload %t: the device of the running job is gone; problems %q", name, reload, v.problems)
				}
			}
			table := ta.status().JobTable
			if len(table) != 1 || table[0].Slot != "slot1_1" || table[0].GPU != string(place.UUID) {
				t.Errorf("%s, reload %t: the status has %+v", name, reload, table)
			}
			opens := ta.view.Load().instances
			if own := opens[place.UUID]; len(own) != 1 || !slices.Equal(own, opens[place.Device]) {
				t.Errorf("%s, reload %t: the job opens the nodes of %+v", name, reload, own)
			}
			ta.proc.End(100)
			ta.apply(false)
			if goes := name != "no layout"; has() == goes {
				t.Errorf("%s, reload %t: after the job the device is there: %t", name, reload, has())
			}
		}
	}
}
