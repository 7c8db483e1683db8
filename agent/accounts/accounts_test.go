package accounts

import (
	"errors"
	"maps"
	"os/user"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// TestUIDs: each name is looked up once, and none without one.
func TestUIDs(t *testing.T) {
	asked := map[string]int{}
	d := NewDatabase(func(name string) (*user.User, error) {
		asked[name]++
		if name == "mallory" {
			return nil, errors.New("no")
		}
		return &user.User{Uid: map[string]string{"alice": "1000", "root": "0", "windows": "S-1-5-18"}[name]}, nil
	})
	got := d.UIDs(t.Context(), "alice", "mallory", "", "root", "alice", "mallory", "windows", "windows")
	if want := map[string]uint32{"alice": 1000, "root": 0}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if want := map[string]int{"alice": 1, "mallory": 1, "root": 1, "windows": 1}; !maps.Equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
}
