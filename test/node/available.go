package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Available returns nil when a node can be booted here, or one sentence that says what is missing. Tests begin
// with it:
//
//	if err := node.Available(); err != nil {
//		t.Skip(err.Error())
//	}
func Available() error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("a test node needs linux/amd64, and this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	if os.Geteuid() != 0 {
		return errors.New("a test node needs root: run the tests as root")
	}
	for _, tool := range []string{"unshare", "nsenter", "mount", "pivot_root", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("a test node needs the command %s: install util-linux and mount", tool)
		}
	}
	root, err := cgroupRoot()
	if err != nil {
		return err
	}
	if err := unix.Access(root, unix.W_OK); err != nil {
		return fmt.Errorf("a test node needs a writable cgroup v2 tree, and %s is not: %w", root, err)
	}
	if _, err := exec.LookPath("apt-get"); err != nil && !imageBuilt() {
		return errors.New("a test node needs its image, and there is no apt-get here to build it: set GPUSLOT_CACHE to a cache that holds it")
	}
	return nil
}
