// Package sim builds a simulated GPU node for tests and for the demo: C
// libraries and programs that stand where NVIDIA's stand, over one mapped state
// file (state/state.h). It owns the building and the making of nodes; what the
// libraries do is in nvml/, cuda/ and mps/. Nothing of it is in the packages or
// linked by the three binaries. Start at Build, or at New in a test.
package sim

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// The sources travel in the binary: a test binary may run far from them.
//
//go:embed state/*.[ch] nvml/*.[ch] tool/*.c check/*.[ch] cuda/*.[ch] cuda/job/*.c ctl/*.[ch] mps/*.[ch] mps/control/*.[ch] mps/server/*.[ch] mps/guest/*.c
var sources embed.FS

// target is one thing to build: the C files of some folders in one link.
type target struct {
	out     string   // below the directory of Build
	files   []string // patterns below test/sim
	exports string   // of a library: a pattern of symbols; the rest is hidden
	link    []string // arguments of the link
}

// targets in the order of building. Libraries reach each other by dlopen only.
var targets = []target{
	{out: "lib/libnvidia-ml.so.1", files: []string{"state/*.c", "nvml/*.c"}, link: []string{"-shared", "-Wl,-soname,libnvidia-ml.so.1", "-Wl,-Bsymbolic", "-lm"}},
	{out: "bin/simpoke", files: []string{"state/*.c", "nvml/models.c", "nvml/make.c", "tool/simpoke.c"}},
	{out: "bin/simcheck", files: []string{"state/*.c", "nvml/*.c", "check/*.c"}, link: []string{"-lm"}},
	{out: "lib/libcuda.so.1", files: []string{"state/*.c", "nvml/models.c", "mps/*.c", "cuda/*.c"}, exports: "cu*", link: []string{"-shared", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-Wl,-z,defs"}},
	{out: "bin/simjob", files: []string{"state/*.c", "cuda/job/simjob.c"}},
	{out: "bin/nvidia-cuda-mps-control", files: []string{"state/*.c", "nvml/models.c", "cuda/visible.c", "ctl/json.c", "ctl/toml.c", "mps/*.c", "mps/control/*.c"}, link: []string{"-lm"}},
	{out: "bin/nvidia-cuda-mps-server", files: []string{"state/*.c", "nvml/models.c", "cuda/visible.c", "mps/*.c", "mps/server/*.c"}, link: []string{"-lm"}},
	{out: "bin/simguest", files: []string{"state/*.c", "mps/*.c", "mps/guest/*.c"}, link: []string{"-lm"}},
	{out: "bin/simgpu", files: []string{"state/*.c", "nvml/*.c", "ctl/*.c"}, link: []string{"-lm"}},
}

// flags are those of every compile: the sources must be clean.
var flags = []string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-fPIC", "-pthread"}

// sanitizers are what a build with them adds.
var sanitizers = []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"}

// buildLimit bounds one build: 10 s on two cores is usual.
const buildLimit = 15 * time.Minute

// Build compiles the simulated node with gcc and returns its directory:
// lib/libnvidia-ml.so.1 and libcuda.so.1, bin/ with the programs. It lies in a
// cache outside the repository, under a name made of the sources, so that only
// the first call builds. Its error is for a person to read.
//
// With GPUSLOT_SIM_SANITIZE=1 it is all built under AddressSanitizer and
// UndefinedBehaviorSanitizer; a client that loads a library of it then needs
// what Vars says.
func Build(ctx context.Context) (string, error) { return build(ctx, extraFlags()) }

// BuildSanitized is Build under AddressSanitizer and UndefinedBehaviorSanitizer,
// whatever the environment says.
func BuildSanitized(ctx context.Context) (string, error) { return build(ctx, sanitizers) }

// sanitized tells whether this run is one with the sanitizers.
func sanitized() bool { return os.Getenv("GPUSLOT_SIM_SANITIZE") == "1" }

func extraFlags() []string {
	if sanitized() {
		return sanitizers
	}
	return nil
}

func build(ctx context.Context, extra []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	header, err := headerDir(ctx)
	if err != nil {
		return "", err
	}
	key, err := sourceKey(header, extra)
	if err != nil {
		return "", err
	}
	return once("sim-"+key, func(dir string) error { return compile(ctx, dir, header, extra) })
}

// once gives the cache's directory of that name. The first caller fills it:
// aside, so that a build that was killed is never taken for a whole one.
func once(name string, fill func(dir string) error) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dest := filepath.Join(cache, name)
	if now := time.Now(); os.Chtimes(dest, now, now) == nil { // there, and in use
		return dest, nil
	}
	prune(cache, time.Now().Add(-keep))
	release, err := lock(dest + ".lock")
	if err != nil || exists(dest) { // another one built it meanwhile
		release()
		return dest, err
	}
	defer release()
	tmp, err := os.MkdirTemp(cache, ".sim-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := fill(tmp); err != nil {
		return "", err
	}
	// Every account of the node reads it: jobs load these libraries.
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	return dest, os.Rename(tmp, dest)
}

// keep is how long a build stays that is not used.
const keep = 24 * time.Hour

// prune removes builds, and what killed builds left, that were not used since
// then. What cannot be removed stays.
func prune(cache string, since time.Time) {
	for _, pattern := range []string{"sim-*", ".sim-*"} {
		old, _ := filepath.Glob(filepath.Join(cache, pattern)) // the pattern is right
		for _, path := range old {
			if st, err := os.Stat(path); err == nil && st.ModTime().Before(since) {
				_ = os.RemoveAll(path)
			}
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lock waits for path's lock; release gives it back and may always be called.
func lock(path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return func() {}, err
	}
	return func() { _ = f.Close() }, syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
}

// cacheDir is where test/driver keeps its own.
func cacheDir() (string, error) {
	dir := os.Getenv("GPUSLOT_CACHE")
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache directory for the simulated node: %w; set GPUSLOT_CACHE", err)
		}
		dir = filepath.Join(user, "gpuslot")
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// headerDir is where nvml.h lies: in the go-nvml module, nothing is copied.
func headerDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		return "", fmt.Errorf("find nvml.h: go list -m github.com/NVIDIA/go-nvml: %w; run it in the repository", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "gen", "nvml"), nil
}

// sourceKey changes with the sources, the flags, the header and the compiler's
// arguments.
func sourceKey(header string, extra []string) (string, error) {
	h := sha256.New()
	_, _ = fmt.Fprintln(h, header, flags, extra, targets)
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := sources.ReadFile(path)
		_, _ = fmt.Fprintf(h, "%s %d\n%s", path, len(b), b)
		return err
	})
	return fmt.Sprintf("%x", h.Sum(nil))[:12], err
}

func compile(ctx context.Context, dir, header string, extra []string) error {
	src := filepath.Join(dir, "src")
	if err := os.CopyFS(src, sources); err != nil {
		return err
	}
	objects := map[string]string{} // C file -> object
	for _, t := range targets {
		var objs []string
		for _, pattern := range t.files {
			files, err := fs.Glob(sources, pattern)
			if err != nil || len(files) == 0 {
				return fmt.Errorf("no sources %q for %s: %w", pattern, t.out, errors.Join(err, fs.ErrNotExist))
			}
			for _, f := range files {
				if objects[f] == "" {
					objects[f] = filepath.Join(src, f+".o")
					if err := cc(ctx, append(extra[:len(extra):len(extra)], "-I"+header, "-o", objects[f], "-c", filepath.Join(src, f))); err != nil {
						return err
					}
				}
				objs = append(objs, objects[f])
			}
		}
		if err := link(ctx, dir, header, t, objs, extra); err != nil {
			return err
		}
		// HTCondor's tools ask for libcuda.so.
		if so, ok := strings.CutSuffix(t.out, ".so.1"); ok {
			if err := os.Symlink(filepath.Base(t.out), filepath.Join(dir, so+".so")); err != nil {
				return err
			}
		}
	}
	return nil
}

func link(ctx context.Context, dir, header string, t target, objs, extra []string) error {
	out := filepath.Join(dir, t.out)
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	args := append(append(extra[:len(extra):len(extra)], objs...), "-o", out)
	if strings.HasSuffix(t.out, "libnvidia-ml.so.1") {
		own, err := nvmlParts(ctx, dir, header, objs, extra)
		if err != nil {
			return err
		}
		args = append(args, own...)
	}
	if t.exports != "" {
		script := filepath.Join(dir, "src", filepath.Base(t.out)+".map")
		if err := os.WriteFile(script, versionScript([]string{t.exports}), 0o644); err != nil {
			return err
		}
		args = append(args, "-Wl,--version-script="+script)
	}
	return cc(ctx, append(append(args, t.link...), "-ldl"))
}

// cc runs gcc with the flags of every compile.
func cc(ctx context.Context, args []string) error {
	out, err := exec.CommandContext(ctx, "gcc", append(flags[:len(flags):len(flags)], args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("gcc … %s: %w\n%s", args[len(args)-1], err, out)
	}
	return nil
}
