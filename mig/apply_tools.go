package mig

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/gpu/tool"
)

// Longest waits for NVIDIA's tools.
const (
	resetLimit    = 3 * time.Minute
	modprobeLimit = time.Minute
)

// ResetWith resets one GPU with nvidia-smi, the only way there is: NVML has
// none. It refuses by itself while anybody has the GPU open.
func ResetWith(nvidiaSMI string) func(context.Context, gpu.UUID) error {
	return func(ctx context.Context, u gpu.UUID) error {
		return runTool(ctx, resetLimit, nvidiaSMI, "--gpu-reset", "-i", u.String())
	}
}

// PublishWith makes the device nodes of a new instance with nvidia-modprobe.
// The kernel makes none, and without them no user's process can open the
// instance. Where the driver lists no capabilities there is nothing to do.
func PublishWith(nvidiaModprobe string) func(context.Context, gpu.MIGState, gpu.Instance) error {
	return func(ctx context.Context, s gpu.MIGState, i gpu.Instance) error {
		gi := fmt.Sprintf("/proc/driver/nvidia/capabilities/gpu%d/mig/gi%d", s.Minor, i.ID)
		paths := []string{filepath.Join(gi, "access")}
		for _, ci := range i.Compute {
			paths = append(paths, filepath.Join(gi, fmt.Sprintf("ci%d", ci.ID), "access"))
		}
		for _, path := range paths {
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err := runTool(ctx, modprobeLimit, nvidiaModprobe, "-f", path); err != nil {
				return err
			}
		}
		return nil
	}
}

// runTool runs a command and puts what it says into its error.
func runTool(ctx context.Context, limit time.Duration, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := tool.Run(ctx, true, name, args...)
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err,
			foreign.Clip(strings.Join(strings.Fields(string(out)), " ")))
	}
	return nil
}

// BootID is the kernel's id of this boot.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}
