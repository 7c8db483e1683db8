package capability

import (
	"slices"
	"testing"

	"github.com/gpuslot/gpuslot/mps"
)

// TestNames: what was not tried has no names, and what is not known is not there.
func TestNames(t *testing.T) {
	has, lacks := mps.Answer{Known: true, Has: true}, mps.Answer{Known: true}
	if names, tried := (Set{CgroupLimits: has}).Names(); tried || names != nil {
		t.Errorf("not tried: %q, %t", names, tried)
	}
	for name, c := range map[string]struct {
		set  Set
		want []string
	}{
		"nothing is known": {Set{Tried: true}, []string{}},
		"it is not there":  {Set{Tried: true, CgroupLimits: lacks, MPS: mps.Capabilities{MultiUser: lacks}}, []string{}},
		"it is there":      {Set{Tried: true, CgroupLimits: has}, []string{cgroupLimits}},
		"not really known": {Set{Tried: true, CgroupLimits: mps.Answer{Has: true}}, []string{}},
	} {
		names, tried := c.set.Names()
		if !tried || names == nil || !slices.Equal(names, c.want) {
			t.Errorf("%s: %q, %t", name, names, tried)
		}
		for _, s := range c.set.Status() {
			if has, known := c.set.Known()[s.Name]; known != (s.Has != nil) || known && has != *s.Has {
				t.Errorf("%s: %s: %v", name, s.Name, s.Has)
			}
		}
	}
	if all := (Set{CgroupLimits: has}).All(); len(all) != 1 || len((Set{Tried: true}).All()) < 2 {
		t.Errorf("%+v", all)
	}
}
