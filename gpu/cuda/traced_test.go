package cuda_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuslot/gpuslot/gpu/cuda"
)

// TestClientIsNotTraced: a job of the client's account and group can neither read nor trace the
// client, which runs in gpuslotd's cgroup. The client has the account's group all the same.
func TestClientIsNotTraced(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("other accounts need root: run this test as root")
	}
	const nobody = 65534
	c, err := cuda.Start(t.Context(), "/bin/sh", []string{"-c", "echo '{\"tried\":true}'; cat"},
		cuda.Order{Account: &cuda.Account{UID: nobody, GID: nobody}, Environment: []string{"SECRET=1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.End()
	<-c.Tried()
	reads := func(name string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "cat", fmt.Sprintf("/proc/%d/%s", c.PID(), name))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := reads("environ"); err == nil || !strings.Contains(out, "Permission denied") {
		t.Errorf("its environment, read by another process of its account: %q, %v", out, err)
	}
	if out, err := reads("status"); err != nil || !strings.Contains(out, "\nGroups:\t65534 \n") || !strings.Contains(out, "\nUid:\t65534\t") {
		t.Errorf("%v, its status:\n%s", err, out)
	}
}
