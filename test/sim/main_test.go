package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/test/alone"
)

// A process loads one NVML: what a test does through it runs in a process of
// its own, this binary again with the name of a worker in simWorker.
const simWorker = "SIM_TEST_WORKER"

// workers do something on a node through NVML and say what as text.
var workers = map[string]func(lib nvml.Interface, args []string) error{
	"layouts":  walkLayouts,
	"profiles": compareProfiles,
	"compute":  listComputeProfiles,
	"race":     raceInstances,
	"manage":   manageMIG,
	"mode":     changeMode,
	"watch":    watch,
	"limits":   memoryLimits,
}

func TestMain(m *testing.M) {
	name := os.Getenv(simWorker)
	if name == "" {
		alone.Enter()
		os.Exit(m.Run())
	}
	if err := work(name, os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func work(name string, args []string) error {
	// An absolute path: the search path was read before this process could set it.
	lib := nvml.New(nvml.WithLibraryPath(filepath.Join(os.Getenv("SIM_TEST_LIB"), "libnvidia-ml.so.1")))
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return fmt.Errorf("nvmlInit: %w", ret)
	}
	return errors.Join(workers[name](lib, args), ok("nvmlShutdown", lib.Shutdown()))
}

// say is how a worker answers.
func say(words ...any) error {
	_, err := fmt.Fprintln(os.Stdout, words...)
	return err
}

// ok makes an error of everything but success.
func ok(call string, ret nvml.Return) error {
	if ret == nvml.SUCCESS {
		return nil
	}
	return fmt.Errorf("%s: %w", call, ret)
}

// worker is the command of a worker on the node.
func (n *Node) worker(ctx context.Context, tb testing.TB, name string, args ...string) *exec.Cmd {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	first, _, _ := strings.Cut(n.lib, ":")
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(n.Env(), simWorker+"="+name, "SIM_TEST_LIB="+first)
	return cmd
}

// do runs a worker to its end.
func (n *Node) do(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	out, err := n.worker(tb.Context(), tb, name, args...).CombinedOutput()
	if err != nil {
		tb.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// needRoot skips what only root may do: MIG and modes.
func needRoot(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("needs root: MIG and modes are root's")
	}
}

// oneGPU is GPU 0 with MIG on.
func oneGPU(lib nvml.Interface) (nvml.Device, error) {
	d, ret := lib.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		return nil, ok("nvmlDeviceGetHandleByIndex", ret)
	}
	activation, ret := d.SetMigMode(nvml.DEVICE_MIG_ENABLE)
	return d, errors.Join(ok("nvmlDeviceSetMigMode", ret), ok("activation of MIG", activation))
}
