package sim

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/test/driver"
)

//go:embed fetch470.sh
var fetch470 []byte

// Branches are the driver branches that there are variants of, oldest first.
func Branches() []string { return append([]string{"470"}, driver.Branches()...) }

// Newer are the branches whose libraries cannot be fetched here. Their names
// are inferred: all of the header that go-nvml ships (CUDA 13.4), for 590
// (CUDA 13.1) without those that came later. Nothing of them was measured.
func Newer() []string { return []string{"590", "615"} }

// after590 are names of CUDA 13.2 to 13.4, by the headers they first stand in.
var after590 = []string{"nvmlDeviceGetRemappedRows_v2", "nvmlDeviceGetAccountingStats_v2", "nvmlDeviceSetMemoryLimits_v1",
	"nvmlDeviceGetMemoryLimits_v1", "nvmlEventSetWait_v3"}

// inferredSymbols are the names of a branch of Newer.
func inferredSymbols(ctx context.Context, branch string) ([]string, error) {
	dir, err := headerDir(ctx)
	if err != nil {
		return nil, err
	}
	header, err := os.ReadFile(filepath.Join(dir, "nvml.h"))
	if err != nil {
		return nil, err
	}
	names := append(prototypes(header), "nvmlInternalGetExportTable") // nvidia-smi asks for it
	if branch == "590" {
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(after590, name) })
	}
	slices.Sort(names)
	return names, nil
}

// Variant builds the libnvidia-ml.so.1 of a driver branch and returns the
// directory that it lies in: it exports exactly the names that the real library
// exports, so that a client that calls a newer function dies as it would there.
// The names are read from the real library, fetched as test/driver does, but
// for the branches of Newer; its error is one sentence.
func Variant(ctx context.Context, branch string) (string, error) {
	dir, err := Build(ctx)
	if err != nil {
		return "", err
	}
	exported, err := realSymbols(ctx, branch)
	if err != nil {
		return "", err
	}
	return once(filepath.Base(dir)+"-"+branch, func(tmp string) error { return linkVariant(ctx, tmp, dir, exported) })
}

// realSymbols are the nvml names of the real library of a branch, sorted; of a
// branch of Newer the inferred ones.
func realSymbols(ctx context.Context, branch string) ([]string, error) {
	if slices.Contains(Newer(), branch) {
		return inferredSymbols(ctx, branch)
	}
	lib, err := realLibrary(ctx, branch)
	if err != nil {
		return nil, err
	}
	names, err := symbols(ctx, "-D", lib)
	return sorted(names), err
}

func realLibrary(ctx context.Context, branch string) (string, error) {
	if branch == "470" {
		return library470(ctx)
	}
	dir, err := driver.Fetch(ctx, branch)
	return filepath.Join(driver.Libraries(dir), "libnvidia-ml.so.1"), err
}

func library470(ctx context.Context) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	release, err := lock(filepath.Join(cache, "nvml-470.lock"))
	defer release()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "sh", "-s", filepath.Join(cache, "nvml-470"))
	cmd.Stdin = strings.NewReader(string(fetch470))
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		lines := strings.Split(strings.TrimSpace(string(exit.Stderr)), "\n")
		return "", errors.New(lines[len(lines)-1])
	}
	return strings.TrimSpace(string(out)), err
}

// linkVariant links the objects of dir again. Names that even the newest header
// has lost become stubs too.
func linkVariant(ctx context.Context, tmp, dir string, exported []string) error {
	objs, err := filepath.Glob(filepath.Join(dir, "src", "[sn][tv]*", "*.c.o")) // state/, nvml/
	if err != nil {
		return err
	}
	defined, err := symbols(ctx, objs...)
	if err != nil {
		return err
	}
	stub, script := filepath.Join(tmp, "stubs.c"), filepath.Join(tmp, "driver.map")
	if err := os.WriteFile(stub, stubSource(exported, defined), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(script, versionScript(exported), 0o644); err != nil {
		return err
	}
	args := append(append(extraFlags(), objs...), stub, "-o", filepath.Join(tmp, "libnvidia-ml.so.1"), "-Wl,--version-script="+script)
	return cc(ctx, append(append(args, targets[0].link...), "-ldl"))
}

// Versions of the drivers whose libraries the variants copy.
var versions = map[string]string{"470": "470.256.02", "535": "535.261.03", "550": "550.163.01", "555": "555.58.02",
	"590": "590.48.01", "615": "615.71.09"}

// NewVariant is New on a driver branch, with that driver's library. It skips
// the test, by name, where the real library cannot be had.
func NewVariant(tb testing.TB, branch string, models ...string) *Node {
	tb.Helper()
	n := New(tb, versions[branch], models...)
	lib, err := Variant(tb.Context(), branch)
	if err != nil {
		tb.Skip(err)
	}
	n.lib = lib + ":" + n.lib // libcuda is the same for all
	return n
}

// Exports are the nvml names that the node's libnvidia-ml.so.1 exports, sorted.
func (n *Node) Exports(ctx context.Context) ([]string, error) {
	first, _, _ := strings.Cut(n.lib, ":")
	names, err := symbols(ctx, "-D", filepath.Join(first, "libnvidia-ml.so.1"))
	if err != nil {
		return nil, fmt.Errorf("read the exports: %w", err)
	}
	return sorted(names), nil
}
