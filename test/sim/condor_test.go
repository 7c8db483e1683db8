package sim

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/test/node"
)

// discovery runs HTCondor's condor_gpu_discovery out of the unpacked image of
// the test node, with the image's own loader and libraries; ours stand first.
func (n *Node) discovery(t *testing.T, args ...string) (string, int) {
	t.Helper()
	if err := node.Available(); err != nil {
		t.Skip("no real HTCondor:", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	image, err := node.Image(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	usr := filepath.Join(image, "usr/lib")
	cmd := exec.CommandContext(ctx, filepath.Join(image, "lib64/ld-linux-x86-64.so.2"),
		append([]string{"--library-path", n.Lib() + ":" + usr + ":" + usr + "/x86_64-linux-gnu:" + usr + "/condor",
			filepath.Join(image, "usr/libexec/condor/condor_gpu_discovery")}, args...)...)
	cmd.Env = append(clean(), "GPUSLOT_SIM_STATE="+n.State)
	out, _ := cmd.Output()
	return string(out), cmd.ProcessState.ExitCode()
}

// devicesOf picks the attributes of each device's ad, in the order of the output.
func devicesOf(out string, attributes ...string) []string {
	var devices []string
	for _, l := range strings.Split(out, "\n") {
		name, ad, ok := strings.Cut(l, "=[")
		if !ok || name == "Common" {
			continue
		}
		var picked []string
		for _, a := range strings.Split(strings.Trim(ad, " ];"), "; ") {
			for _, want := range attributes {
				if strings.HasPrefix(a, want+"=") {
					picked = append(picked, strings.TrimPrefix(a, want+"="))
				}
			}
		}
		devices = append(devices, strings.Join(picked, " "))
	}
	return devices
}

// Whole GPUs, then one with MIG: CUDA shows one device, HTCondor takes the rest
// from NVML. 40536 and 4861 MB are what a real A100-40 and its 1g.5gb say there
// (comments in condor_gpu_discovery.cpp).
func TestGPUDiscovery(t *testing.T) {
	needRoot(t)
	n := nodeWith(t, nil)
	n.make(t, threeGPUs)
	out, code := n.discovery(t, "-properties", "-extra", "-dynamic")
	if want := `DetectedGPUs="GPU-bbbb2222, GPU-aaaa1111, GPU-aaaa0000"`; code != 0 || !strings.HasPrefix(out, want+"\n") {
		t.Errorf("exit code %d, want %s:\n%s", code, want, out)
	}
	want := []string{
		`"GPU-aaaa0000" 7.5 40 "Tesla T4" "0000:03:00.0" 14967`,
		`"GPU-aaaa1111" 7.5 40 "Tesla T4" "0000:02:00.0" 14967`,
		`"GPU-bbbb2222" 8.0 108 "NVIDIA A100-SXM4-40GB" "0000:04:00.0" 40536`,
	}
	picked := []string{"id", "Capability", "ComputeUnits", "DeviceName", "DevicePciBusId", "GlobalMemoryMb"}
	if d := cmp.Diff(want, devicesOf(out, picked...)); d != "" {
		t.Errorf("-want +got:\n%s\n%s", d, out)
	}

	// What simgpu sets is what HTCondor reads next.
	n.simgpu(t, "set", "0", "temperature", "77")
	n.simgpu(t, "set", "0", "power", "61")
	n.simgpu(t, "ecc", "1", "uncorrected", "2")
	out, _ = n.discovery(t, "-dynamic", "-properties")
	want = []string{`"GPU-aaaa0000" 77 0 61000`, `"GPU-aaaa1111" 32 2 9000`, `"GPU-bbbb2222" 32 0 46000`}
	if d := cmp.Diff(want, devicesOf(out, "id", "DieTempC", "EccErrorsDoubleBit", "PowerUsage_mw")); d != "" {
		t.Errorf("-want +got:\n%s\n%s", d, out)
	}

	n.simgpu(t, "mig", "2", "on")
	n.simgpu(t, "mig", "2", "create", "3g.20gb@4", "1g.5gb@0")
	mig := n.shown(t).GPUs[2].Devices
	out, code = n.discovery(t, "-properties", "-extra")
	if want := `DetectedGPUs="` + mig[0].UUID + ", " + mig[1].UUID + `, GPU-aaaa0000, GPU-aaaa1111"`; code != 0 || !strings.HasPrefix(out, want+"\n") {
		t.Errorf("exit code %d, want %s:\n%s", code, want, out)
	}
	// HTCondor reads what is free, and a MIG device uses a little while it is empty.
	memory := map[string]string{"3g.20gb": "19943", "1g.5gb": "4855"}
	want = []string{`"GPU-aaaa0000" 7.5 "Tesla T4" "0000:03:00.0" 14967`, `"GPU-aaaa1111" 7.5 "Tesla T4" "0000:02:00.0" 14967`}
	for _, d := range []int{0, 1} {
		want = append(want, `"`+mig[d].UUID+`" 8.0 `+map[string]string{"3g.20gb": "42", "1g.5gb": "14"}[mig[d].Profile]+
			` "NVIDIA A100-SXM4-40GB MIG `+mig[d].Profile+`" "0000:04:00.0" `+memory[mig[d].Profile])
	}
	got := devicesOf(out, picked...)
	slices.Sort(want)
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s\n%s", d, out)
	}
}

// One lost GPU takes the node's others along: HTCondor stops at the first
// handle that fails (facts of the HTCondor sheet, run for real).
func TestGPUDiscoveryWithALostGPU(t *testing.T) {
	n := nodeWith(t, nil)
	n.make(t, `{"gpus": [{"model": "T4"}, {"model": "T4"}]}`)
	if out, code := n.discovery(t); code != 0 || strings.Count(out, "GPU-") != 2 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	n.simgpu(t, "lose", "1")
	out, code := n.discovery(t)
	if code != 1 || !strings.Contains(out, "condor_gpu_discovery_error") || strings.Contains(out, "GPU-") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
