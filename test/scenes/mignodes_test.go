package scenes

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
)

// capsMajor is that of nvidia-caps on these nodes. No driver of the host has it,
// so a node that may be opened says "No such device or address".
const capsMajor = 509

// driverFiles are what NVIDIA's driver shows in /proc of GPUs and of the device
// nodes of MIG devices: see nv-caps.c of open-gpu-kernel-modules.
func driverFiles(t *testing.T, inv gpu.Inventory) []node.Bind {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte(text), 0o644))
	}
	host, err := os.ReadFile("/proc/devices")
	must(t, err)
	if strings.Contains(string(host), fmt.Sprintf("\n%d ", capsMajor)) {
		t.Skipf("major number %d belongs to a driver of this host", capsMajor)
	}
	write("devices", strings.Replace(string(host), "Character devices:\n", fmt.Sprintf("Character devices:\n%d nvidia-caps\n", capsMajor), 1))
	var minors strings.Builder
	minors.WriteString("config 1\nmonitor 2\n")
	for i, g := range inv.GPUs {
		for gi := range 15 {
			fmt.Fprintf(&minors, "gpu%d/gi%d/access %d\n", i, gi, minorOf(i, gi))
			for ci := range 8 {
				fmt.Fprintf(&minors, "gpu%d/gi%d/ci%d/access %d\n", i, gi, ci, minorOf(i, gi)+1+ci)
			}
		}
		write(fmt.Sprintf("driver/nvidia/gpus/%s/information", g.PCI),
			fmt.Sprintf("Model: \t\t %s\nGPU UUID: \t %s\nBus Location: \t %s\nDevice Minor: \t %d\n", g.Name, g.UUID, g.PCI, i))
	}
	write("driver/nvidia-caps/mig-minors", minors.String())
	return []node.Bind{{Host: filepath.Join(dir, "devices"), Guest: "/proc/devices"}, {Host: filepath.Join(dir, "driver"), Guest: "/proc/driver"}}
}

func minorOf(gpu, gi int) int { return 3 + 135*gpu + 9*gi }

// makeNodes makes the device nodes as nvidia-modprobe does.
func (st *Stage) makeNodes(ctx context.Context) error {
	script := "mkdir -p /dev/nvidia-caps; " +
		fmt.Sprintf("for n in $(seq 0 %d); do mknod -m 666 /dev/nvidia-caps/nvidia-cap$n c %d $n; done", minorOf(len(st.Inventory.GPUs), 0), capsMajor)
	_, err := st.Run(ctx, "sh", "-ec", script)
	return err
}

// opens is a job that says what opening nodes gives, after the last of them has
// been closed to it.
var opens = program{"opens.sh", `#!/bin/sh
try() { LC_ALL=C head -c1 "$1" 2>&1 >/dev/null | sed 's/.*: //'; }
for last; do :; done
for i in $(seq 300); do [ "$(try "$last")" = "Operation not permitted" ] && break; sleep 0.1; done
for node; do echo "$node $(try "$node")"; done
`}

// opensOwnNodes runs a job on the device: it opens the nodes of its own instance
// and not the sibling's.
func (st *Stage) opensOwnNodes(ctx context.Context, t *testing.T, own, sibling api.StatusGPU) {
	t.Helper()
	caps := func(device string, and int) string {
		return fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minorOf(0, st.instanceOf(ctx, t, device))+and)
	}
	text, err := st.ran(ctx, job{Program: opens,
		Arguments: strings.Join([]string{caps(own.Device, 0), caps(own.Device, 1), "/dev/nvidia-caps/nvidia-cap1", caps(sibling.Device, 1), caps(sibling.Device, 0)}, " "),
		Lines:     vram(2048, fmt.Sprintf("require_gpus = MIGProfile == %q", profileOf(own)))})
	must(t, err)
	st.Say("what a job on the %s opens:\n%s", profileOf(own), text)
	const opened, closed = "No such device or address", "Operation not permitted"
	for _, w := range []struct{ node, want, what string }{
		{caps(own.Device, 0), opened, "its own GPU instance's node"},
		{caps(own.Device, 1), opened, "its own compute instance's node"},
		{"/dev/nvidia-caps/nvidia-cap1", closed, "the node that changes MIG layouts"},
		{caps(sibling.Device, 0), closed, "the GPU instance's node of a sibling"},
		{caps(sibling.Device, 1), closed, "the compute instance's node of a sibling"},
	} {
		st.Contains(text, w.node+" "+w.want+"\n", w.what)
	}
}

func profileOf(g api.StatusGPU) string {
	_, profile, _ := strings.Cut(g.Name, " MIG ")
	return profile
}

// instanceOf is the GPU instance of a MIG device.
func (st *Stage) instanceOf(ctx context.Context, t *testing.T, device string) int {
	t.Helper()
	out, err := st.Run(ctx, "gpuslot", "inventory", "--json")
	must(t, err)
	var inv gpu.Inventory
	must(t, json.Unmarshal([]byte(out.Stdout), &inv))
	for _, g := range inv.GPUs {
		for _, d := range g.MIGDevices {
			if string(d.UUID) == device {
				return d.GPUInstance
			}
		}
	}
	t.Fatalf("the inventory has no %s", device)
	return 0
}
