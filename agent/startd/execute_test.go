package startd

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gpuslot/gpuslot/agent/starter"
)

// TestExecuteOfAnAccount: a directory for jobs is made when its owner is known. An
// account database that hangs is given up, and a later round makes the directory.
func TestExecuteOfAnAccount(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "execute", "gpu5a1e0c11")
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		d := starter.NewDatabase(func(string) (*user.User, error) {
			<-answers
			return &user.User{Uid: strconv.Itoa(os.Getuid()), Gid: strconv.Itoa(os.Getgid())}, nil
		})
		if err := makeFor(t.Context(), d.LookUp, dir, "condor", true); err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Fatalf("while the database hangs: %v", err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a directory of nobody's was left: %v", err)
		}
		close(answers)
		synctest.Wait()
		if err := makeFor(t.Context(), d.LookUp, dir, "condor", true); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			t.Errorf("%v, %v", st, err)
		}
	})
}
