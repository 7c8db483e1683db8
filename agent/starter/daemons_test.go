package starter

import (
	"slices"
	"testing"

	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestDaemonAccounts: HTCondor's account is what its masters act as, those of this node's own startds.
func TestDaemonAccounts(t *testing.T) {
	as := func(real, effective uint32) *process.UIDs {
		return &process.UIDs{Real: real, Effective: effective, FileSystem: effective}
	}
	for name, c := range map[string]struct {
		master proctree.Process
		want   []uint32
	}{
		"condor":            {proctree.Process{UIDs: as(0, 64)}, []uint32{64}},
		"as root":           {proctree.Process{UIDs: as(0, 0)}, nil},
		"a user's own":      {proctree.Process{UIDs: as(64, 64)}, nil},
		"no master":         {proctree.Process{UIDs: as(0, 64), Exe: "/usr/sbin/other"}, nil},
		"no master by name": {proctree.Process{UIDs: as(0, 64), Comm: "condor_master", Exe: "/usr/bin/python3"}, nil},
	} {
		f := newFakeProc(t)
		c.master.PID, c.master.Parent = 800, 1
		if c.master.Exe == "" {
			c.master.Exe = "/usr/sbin/condor_master"
		}
		f.Add(c.master)
		for pid := range 2 { // one account of two startds
			f.Add(proctree.Process{PID: 900 + pid, Parent: 800, Comm: "condor_startd", Exe: "/usr/sbin/condor_startd"})
		}
		f.Add(proctree.Process{PID: 700, Parent: 1, Exe: "/usr/sbin/condor_master", UIDs: as(0, 65)}) // without a startd
		if _, got, err := (Users{f.of(0)}).OfDaemons(); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v, %v", name, got, c.want, err)
		}
	}
}
