package sim

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// Every function of nvml.h that the simulator lacks becomes a stub, so that the
// library has all names of the header; a driver variant exports fewer of them.

var (
	comment   = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`)
	prototype = regexp.MustCompile(`nvmlReturn_t\s+DECLDIR\s+(nvml\w+)\s*\(`)
)

// prototypes are the functions that the header declares, sorted.
func prototypes(header []byte) []string {
	seen := map[string]bool{}
	for _, m := range prototype.FindAllSubmatch(comment.ReplaceAll(header, nil), -1) {
		seen[string(m[1])] = true
	}
	return sorted(seen)
}

func sorted(set map[string]bool) []string {
	names := make([]string, 0, len(set))
	for n := range set {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// symbols are the nvml names that a library or object defines.
func symbols(ctx context.Context, args ...string) (map[string]bool, error) {
	out, err := exec.CommandContext(ctx, "nm", append([]string{"--defined-only", "--format=posix"}, args...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("nm %s: %w", strings.Join(args, " "), err)
	}
	names := map[string]bool{}
	for _, line := range strings.Split(string(out), "\n") {
		f := strings.Fields(line)
		if len(f) < 2 || f[1] != "T" || !strings.HasPrefix(f[0], "nvml") {
			continue
		}
		name, _, _ := strings.Cut(f[0], "@") // a version that the script gave
		names[name] = true
	}
	return names, nil
}

// stubSource is C for the wanted names that are not defined. Their arguments do
// not matter: nothing is read, NOT_SUPPORTED (3) is the answer, or
// UNINITIALIZED (1).
func stubSource(wanted []string, defined map[string]bool) []byte {
	var b bytes.Buffer
	b.WriteString("int sim_initialised(void);\n")
	for _, name := range wanted {
		if !defined[name] {
			fmt.Fprintf(&b, "int %s(void) { return sim_initialised() ? 3 : 1; }\n", name)
		}
	}
	return b.Bytes()
}

// versionScript exports these names and hides all others: the state's functions
// in libnvidia-ml must never be taken for those in libcuda.
func versionScript(names []string) []byte {
	var b bytes.Buffer
	b.WriteString("{ global:\n")
	for _, n := range names {
		fmt.Fprintf(&b, "\t%s;\n", n)
	}
	b.WriteString("local: *; };\n")
	return b.Bytes()
}

// nvmlParts writes the stubs and the version script of the full library and
// returns what its link needs of them.
func nvmlParts(ctx context.Context, dir, header string, objs, extra []string) ([]string, error) {
	h, err := os.ReadFile(filepath.Join(header, "nvml.h"))
	if err != nil {
		return nil, err
	}
	defined, err := symbols(ctx, objs...)
	if err != nil {
		return nil, err
	}
	wanted := prototypes(h)
	stub := filepath.Join(dir, "src", "stubs.c")
	script := filepath.Join(dir, "src", "all.map")
	if err := os.WriteFile(stub, stubSource(wanted, defined), 0o644); err != nil {
		return nil, err
	}
	if err := os.WriteFile(script, []byte("{ global: nvml*; local: *; };\n"), 0o644); err != nil {
		return nil, err
	}
	if err := cc(ctx, append(extra[:len(extra):len(extra)], "-c", stub, "-o", stub+".o")); err != nil {
		return nil, err
	}
	return []string{stub + ".o", "-Wl,--version-script=" + script}, nil
}
