package startd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gpuslot/gpuslot/agent/accounts"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestExecuteOfAnAccount: a directory for jobs is made when its owner is known. An
// account database that hangs is given up, and a later round makes the directory.
func TestExecuteOfAnAccount(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "execute", "gpu5a1e0c11")
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		d := accounts.NewDatabase(func(string) (*user.User, error) {
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

// TestExecuteOfEachStartd: each GPU's startd has a directory for its jobs; one that cannot be made is an error that
// says what to do.
func TestExecuteOfEachStartd(t *testing.T) {
	node := condor.Node{PerGPU: true, CPUs: 96, Memory: 385024, CPUOnly: condor.Share{CPUs: 8, Memory: 32768}, Execute: filepath.Join(t.TempDir(), "execute")}
	for i := range 3 {
		node.Devices = append(node.Devices, condor.Device{UUID: gpu.UUID(fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i+1)),
			Index: i, Name: "V100", Memory: 32768, Shared: true, Shares: 7, Pool: 32256, LargestRequest: gpu.MiB(32256 - i),
			DefaultRequest: 4608, Share: condor.Share{CPUs: 4, Memory: 16384}})
	}
	startds := condor.Startds(node)[1:]
	for range 2 { // what is there stays
		if err := (Files{}).makeExecute(t.Context(), node); err != nil {
			t.Error(err)
		}
	}
	if all, err := os.ReadDir(node.Execute); err != nil || len(all) != len(startds) || len(all) == 0 {
		t.Errorf("%d directories for %d startds, %v", len(all), len(startds), err)
	}
	node.Execute = filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("nowhere/at/all", node.Execute); err != nil {
		t.Fatal(err)
	}
	if err := (Files{}).makeExecute(t.Context(), node); err == nil {
		t.Error("a directory behind a link to nowhere was made")
	}
}
