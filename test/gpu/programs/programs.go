// Package programs compiles the C programs that a GPU is tried with: gpujob, a
// CUDA client made of words, and gpusee, which shows NVML's lists as they are.
// They load the driver's libraries when they run, so that they compile anywhere.
package programs

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

//go:embed src/*.[ch]
var sources embed.FS

// Names of the programs, and what each is made of.
var targets = map[string][]string{
	"gpujob": {"gpujob.c", "driver.c", "kernels.c"},
	"gpusee": {"gpusee.c"},
}

// Build compiles them with gcc into a directory.
func Build(ctx context.Context, into string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	src, err := os.MkdirTemp("", "gpujob-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(src) }()
	if err := os.CopyFS(src, sources); err != nil {
		return err
	}
	for name, files := range targets {
		args := []string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-o", filepath.Join(into, name)}
		for _, f := range files {
			args = append(args, filepath.Join(src, "src", f))
		}
		if out, err := exec.CommandContext(ctx, "gcc", append(args, "-ldl")...).CombinedOutput(); err != nil {
			return fmt.Errorf("compile %s: %w\n%s", name, err, out)
		}
	}
	return nil
}
