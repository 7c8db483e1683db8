package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/gpuslot/gpuslot/gpu/nvml"
	"github.com/gpuslot/gpuslot/gpu/tool"
)

// driverVerb makes this program a fresh process that tries the driver. It is no
// command of the operator's.
const driverVerb = "try-driver"

// exitMismatch is how it ends where library and kernel module do not match.
const exitMismatch = 3

// tryDriver opens NVML as a new process of a job would; stdout says why it could not.
func tryDriver(stdout io.Writer) int {
	lib, err := nvml.Open()
	switch {
	case errors.Is(err, nvml.ErrMismatch):
		fmt.Fprint(stdout, err)
		return exitMismatch
	case err != nil:
		return 1 // the agent meets it, too
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = lib.Close(ctx) // the process ends anyway
	return 0
}

// driverMismatch asks a fresh process, since this one has the library that it
// started with.
func driverMismatch(ctx context.Context) (why string, err error) {
	out, err := tool.Run(ctx, false, "/proc/self/exe", driverVerb)
	var failed *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case errors.As(err, &failed) && failed.ExitCode() == exitMismatch:
		return strings.TrimSpace(string(out)), nil
	}
	return "", fmt.Errorf("try the driver: %w", err)
}
