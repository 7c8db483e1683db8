package accounts

import (
	"errors"
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
