package starter

import (
	"errors"
	"os"
	"os/user"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestAccountDatabaseHangs: the lookups that hang are no more than a few.
func TestAccountDatabaseHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, under := make(chan struct{}), atomic.Int32{}
		d := NewDatabase(func(string) (*user.User, error) {
			under.Add(1)
			<-hangs
			return nil, errors.New("no")
		})
		for range 40 {
			if _, err := d.LookUp(t.Context(), "alice"); err == nil || !strings.Contains(err.Error(), "does not answer") {
				t.Fatal(err)
			}
		}
		if n := under.Load(); n != 4 {
			t.Errorf("%d lookups hang", n)
		}
		close(hangs)
		synctest.Wait()
		if _, err := d.LookUp(t.Context(), "alice"); err == nil || err.Error() != "no" {
			t.Errorf("when it answers again: %v", err)
		}
	})
}

// TestAccountsOfSlots: the kernel says whose a job is, and the owner's name where it has no process yet.
func TestAccountsOfSlots(t *testing.T) {
	f := newFakeProc(t)
	inCgroup, below, byName, nobody := f.starter(100, "slot1_1"), f.starter(101, "slot1_2"), f.starter(102, "slot1_3"), f.starter(103, "slot1_4")
	f.Add(proctree.Process{PID: 200, Parent: 1, Comm: "job", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})
	f.Add(proctree.Process{PID: 201, Parent: 101, Comm: "prepare", UID: 1001})
	f.Add(proctree.Process{PID: 202, Parent: 102, Comm: "condor_starter"}) // a root child says nothing
	me, err := user.Current()
	if err != nil {
		t.Skip("no account database")
	}
	find := f.fs().JobAccounts(t.Context(), []condor.Slot{{Name: "slot1_3@x", RemoteOwner: me.Username + "@x"}, {Name: "slot1_4@x", RemoteOwner: "no-such-account-anywhere@x"}})
	for _, tt := range []struct {
		s     Starter
		owner string
		want  Account
	}{
		{inCgroup, "", Account{1000, true}},
		{below, "", Account{1001, true}},
		{byName, me.Username, Account{uint32(os.Getuid()), true}},
		{nobody, "no-such-account-anywhere", Account{}},
	} {
		if got := find(tt.s, condor.Slot{RemoteOwner: tt.owner + "@x"}); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.s.Slot, got, tt.want)
		}
	}
}
