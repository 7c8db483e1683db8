package sim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Memory limits of cgroups, from R615 on. Nothing of it was measured here: the
// rows are those of nvml.h of CUDA 13.4, of the MPS documentation of release
// 615 ("MPS v3 Memory Partitioning"), and of NVIDIA's own measurements on
// 615.71.09 (Dynamo guide, "Verified Behavior").

// memoryLimits is a worker: set PATH SOFT HARD, or get PATH. It says the limits
// in MiB, or NVML's result.
func memoryLimits(lib nvml.Interface, args []string) error {
	d, ret := lib.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		return ret
	}
	if args[0] == "as" { // after nvmlInit: the library may lie where that account cannot go
		if err := syscall.Setuid(1000); err != nil {
			return err
		}
		args = args[1:]
	}
	if args[0] == "mig" {
		if d, ret = d.GetMigDeviceHandleByIndex(0); ret != nvml.SUCCESS {
			return ret
		}
		args = args[1:]
	}
	if args[0] == "set" {
		if ret := d.SetMemoryLimits_v1(args[1], bytesOf(args[2]), bytesOf(args[3])); ret != nvml.SUCCESS {
			return say(nvml.ErrorString(ret))
		}
	}
	l, ret := d.GetMemoryLimits_v1(args[1])
	if ret != nvml.SUCCESS {
		return say(nvml.ErrorString(ret))
	}
	return say("soft", mibOf(l.SoftLimit), "hard", mibOf(l.HardLimit), "used", mibOf(l.CurrentUsed))
}

// plain is the node with the library of the whole run, whatever its jobs have:
// a Go program that loads a sanitized one needs what New knows.
func (n *Node) plain(t *testing.T) *Node {
	t.Helper()
	extra, err := sanitizerVars(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &Node{Dir: Dir(t), State: n.State, lib: filepath.Join(Dir(t), "lib"), extra: extra}
}

// limits holds what a worker says.
func (n *Node) limits(t *testing.T, want string, args ...string) {
	t.Helper()
	if got := strings.TrimSpace(n.plain(t).do(t, "limits", args...)); got != want {
		t.Errorf("limits %v: %q, want %q", args, got, want)
	}
}

// limit sets one, and nothing is to be said of it.
func (n *Node) limit(t *testing.T, path, soft, hard string) {
	t.Helper()
	if got := n.plain(t).do(t, "limits", "set", path, soft, hard); !strings.HasPrefix(got, "soft "+soft+" hard "+hard+" ") {
		t.Fatalf("limit %s %s %s: %s", path, soft, hard, got)
	}
}

func bytesOf(mib string) uint64 {
	if n, err := strconv.ParseUint(mib, 10, 64); err == nil {
		return n << 20
	}
	return ^uint64(0)
}

func mibOf(bytes uint64) string {
	if bytes == ^uint64(0) {
		return "max"
	}
	return fmt.Sprint(bytes >> 20)
}

// cgroups is a directory of the test's own in the machine's cgroup v2 tree, on
// a node that knows where that is.
func cgroups(t *testing.T, n *Node, accounting string) string {
	t.Helper()
	needRoot(t)
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var root string
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); root == "" && len(f) > 2 && f[2] == "cgroup2" {
			root = f[1]
		}
	}
	dir, err := os.MkdirTemp(root, "sim-test")
	if root == "" || err != nil {
		t.Skipf("needs a writable cgroup v2 tree: %v", err)
	}
	t.Cleanup(func() { removeCgroup(t, dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // what a cgroup is made with
		t.Fatal(err)
	}
	n.simgpu(t, "cgroups", accounting, root)
	return dir
}

// removeCgroup removes it with what is below; a process that was killed leaves
// it a moment later.
func removeCgroup(t *testing.T, dir string) {
	t.Helper()
	below, _ := filepath.Glob(filepath.Join(dir, "*/"))
	for _, d := range below {
		if st, err := os.Stat(d); err == nil && st.IsDir() {
			removeCgroup(t, d)
		}
	}
	for range 1000 {
		if err := syscall.Rmdir(dir); err != syscall.EBUSY { //nolint:errorlint // an errno of the kernel
			return
		}
	}
}

func makeCgroup(t *testing.T, path ...string) string {
	t.Helper()
	dir := filepath.Join(path...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// in starts simjob inside a cgroup: a shell enters it first.
func (n *Node) in(t *testing.T, cgroup, words string, vars ...string) *running {
	t.Helper()
	script := fmt.Sprintf("echo $$ >%s/cgroup.procs && exec %s %s", cgroup, filepath.Join(n.Dir, "bin/simjob"), words)
	return n.begin(t, exec.Command("sh", "-c", script), vars...)
}

// jobIn runs it to its end.
func (n *Node) jobIn(t *testing.T, cgroup, words string, vars ...string) string {
	t.Helper()
	r := n.in(t, cgroup, words, vars...)
	r.end()
	return strings.Join(r.said(), "\n")
}

const oneRTX = `{"driver": "615.71.09", "gpus": [{"model": "RTXPRO6000"}]}`

// TestMemoryLimitCalls: nvml.h of CUDA 13.4, result by result.
func TestMemoryLimitCalls(t *testing.T) {
	needRoot(t)
	n := New(t, "615.71.09", "H200")
	dir := cgroups(t, n, "dmem")
	leaf := makeCgroup(t, dir, "leaf")
	t.Run("rows", func(t *testing.T) {
		tests := []struct{ args, want, from string }{
			{"get " + leaf, "Not Found", "no limits for this device and cgroup"},
			{"set " + leaf + " 4000 8000", "soft 4000 hard 8000 used 0", "nvml.h"},
			{"get " + leaf + "/", "soft 4000 hard 8000 used 0", "inferred: the same directory"},
			{"set " + leaf + " 9000 8000", "Invalid Argument", "the softLimit exceeds the hardLimit"},
			{"set " + leaf + " 0 150000", "Invalid Argument", "a limit exceeds total device memory"},
			{"set " + leaf + " max max", "soft 143771 hard max used 0", "MPS documentation: max means the capacity"},
			{"set " + leaf + " 0 max", "soft 0 hard max used 0", "nvml.h: clears the limits"},
			{"get " + dir + "/none", "GPU access blocked by the operating system", "OPERATING_SYSTEM: the path cannot be opened"},
			{"get " + filepath.Dir(dir), "Not Supported", "Dynamo guide: the root cgroup"},
			{"get /etc", "Not Found", "MPS documentation: no files of the controller"},
		}
		for _, tt := range tests {
			t.Log(tt.from)
			n.limits(t, tt.want, strings.Fields(tt.args)...)
		}
	})
	t.Run("another account", func(t *testing.T) {
		n.limits(t, "soft 1000 hard 1000 used 0", "set", leaf, "1000", "1000")
		n.limits(t, "soft 1000 hard 1000 used 0", "as", "get", leaf)
		n.limits(t, "Insufficient Permissions", "as", "set", leaf, "1", "1")
	})
	t.Run("MIG", func(t *testing.T) {
		n.simgpu(t, "mig", "0", "on")
		n.simgpu(t, "mig", "0", "create", "3g.71gb@4")
		for _, args := range [][]string{{"set", leaf, "0", "1000"}, {"mig", "set", leaf, "0", "1000"}, {"mig", "get", leaf}} {
			n.limits(t, "Not Supported", args...) // MPS documentation: MIG is not
		}
	})
	t.Run("older driver, and switched off", func(t *testing.T) {
		n.make(t, `{"driver": "590.48.01", "gpus": [{"model": "H200"}]}`)
		n.limits(t, "Not Supported", "get", leaf)
		n.make(t, `{"driver": "615.71.09", "gpus": [{"model": "H200"}]}`)
		n.simgpu(t, "cgroups", "off")
		n.limits(t, "Not Supported", "get", leaf)
	})
}

// TestMemoryLimitBinds: a limit of the leaf is the total that CUDA shows; that
// of a parent binds and is not shown; both hold for plain CUDA, too.
func TestMemoryLimitBinds(t *testing.T) {
	needRoot(t)
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, oneRTX)
		dir := cgroups(t, n, "dmem")
		leaf := makeCgroup(t, dir, "slice", "leaf")
		const context, whole = 64 + 2*188, 97887 - 638
		steps := strings.Repeat("alloc 1000 ", 9)
		check := func(what, words, want string) {
			t.Helper()
			if got := n.jobIn(t, leaf, words); !strings.HasPrefix(strings.TrimPrefix(got, "init: ok\n"), want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		check("no limit", "info", fmt.Sprintf("context on device 0: ok\ninfo %d MiB free of %d MiB: ok", whole-context, whole))
		n.limit(t, leaf, "8000", "8000")
		check("on the leaf", "info", fmt.Sprintf("context on device 0: ok\ninfo %d MiB free of 8000 MiB: ok", 8000-context))
		check("on the leaf", steps, "context on device 0: ok\n"+strings.Repeat("alloc 1000 MiB: ok\n", 7)+
			"alloc 1000 MiB: error 2 CUDA_ERROR_OUT_OF_MEMORY")
		n.limit(t, leaf, "0", "max")
		n.limit(t, filepath.Dir(leaf), "0", "4000")
		check("on the parent", "info", fmt.Sprintf("context on device 0: ok\ninfo %d MiB free of %d MiB: ok", 4000-context, whole))
		check("on the parent", steps, "context on device 0: ok\n"+strings.Repeat("alloc 1000 MiB: ok\n", 3)+
			"alloc 1000 MiB: error 2 CUDA_ERROR_OUT_OF_MEMORY")
		n.limit(t, filepath.Dir(leaf), "0", "100")
		check("less than a context", "info", "context on device 0: error 2 CUDA_ERROR_OUT_OF_MEMORY")
		// misc has no hierarchy: the nearest limit is the limit.
		n.simgpu(t, "cgroups", "misc")
		n.limit(t, filepath.Dir(leaf), "0", "4000")
		check("misc, of the parent", "info", fmt.Sprintf("context on device 0: ok\ninfo %d MiB free of 4000 MiB: ok", 4000-context))
		n.limit(t, leaf, "0", "8000")
		check("misc, its own", steps, "context on device 0: ok\n"+strings.Repeat("alloc 1000 MiB: ok\n", 7)+
			"alloc 1000 MiB: error 2 CUDA_ERROR_OUT_OF_MEMORY")
	})
}

// TestMemoryLimitUse: every account reads what a cgroup uses, with all below it.
func TestMemoryLimitUse(t *testing.T) {
	needRoot(t)
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, oneRTX)
		dir := cgroups(t, n, "dmem")
		a, b := makeCgroup(t, dir, "slice", "a"), makeCgroup(t, dir, "slice", "b")
		n.limit(t, a, "1000", "20000")
		n.limit(t, b, "500", "20000")
		first, second := n.in(t, a, "alloc 1000 until eof"), n.in(t, b, "alloc 2000 until eof")
		first.line("alloc 1000 MiB: ok")
		second.line("alloc 2000 MiB: ok")
		const context = 64 + 2*188
		for path, want := range map[string]string{
			a:               fmt.Sprint("soft 1000 hard 20000 used ", 1000+context),
			b:               fmt.Sprint("soft 500 hard 20000 used ", 2000+context),
			filepath.Dir(a): fmt.Sprint("soft 1500 hard max used ", 3000+2*context),
		} {
			n.limits(t, want, "get", path)
		}
	})
}

// TestReservationLeak: a soft limit is added to the ancestors' and stays there
// when the cgroup goes first; zeroed before, nothing stays (P32).
func TestReservationLeak(t *testing.T) {
	needRoot(t)
	n := nodeWith(t, nil)
	n.make(t, oneRTX)
	dir := cgroups(t, n, "dmem")
	slice := makeCgroup(t, dir, "slice")
	get := func(want string) { t.Helper(); n.limits(t, want, "get", slice) }
	leaf := makeCgroup(t, slice, "leaf")
	n.limit(t, leaf, "4000", "4000")
	get("soft 4000 hard max used 0")
	n.limit(t, leaf, "1000", "4000")
	get("soft 1000 hard max used 0")
	n.limit(t, leaf, "0", "max")
	removeCgroup(t, leaf)
	get("soft 0 hard max used 0")

	leaf = makeCgroup(t, slice, "leaf")
	n.limits(t, "Not Found", "get", leaf) // a new cgroup of the old name
	n.limit(t, leaf, "4000", "4000")
	removeCgroup(t, leaf)
	get("soft 4000 hard max used 0")
	if out := n.simgpu(t, "show"); !strings.Contains(out, "leaf") || !strings.Contains(out, "gone") {
		t.Errorf("simgpu does not show the cgroup that is gone:\n%s", out)
	}
	n.limit(t, slice, "0", "max") // the repair
	n.limits(t, "soft 0 hard max used 0", "get", dir)
}

// TestEviction: an allocation of a client within its soft limit, on a full GPU,
// ends a client that is beyond its own: 810. One that is itself beyond gets no
// such help.
func TestEviction(t *testing.T) {
	needRoot(t)
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, oneRTX)
		dir := cgroups(t, n, "dmem")
		borrower, owner := makeCgroup(t, dir, "borrower"), makeCgroup(t, dir, "owner")
		n.limit(t, borrower, "1000", "97000")
		n.limit(t, owner, "20000", "97000")
		d := n.daemon(t)
		b := n.in(t, borrower, "alloc 90000 until eof alloc 1", d.vars()...)
		b.line("alloc 90000 MiB: ok")
		o := n.in(t, owner, "alloc 19000 until eof", d.vars()...)
		o.line("alloc 19000 MiB: ok")
		if got := b.line("until eof"); !strings.HasPrefix(got, "until eof: error 810 CUDA_ERROR_MPS_CLIENT_TERMINATED") {
			t.Errorf("the borrower says %q, want 810", got)
		}
		b.end()
		n.in(t, borrower, "alloc 60000 until eof", d.vars()...).line("alloc 60000 MiB: ok")
		over := n.in(t, borrower, "alloc 30000 until eof", d.vars()...)
		if got := over.line("alloc 30000"); !strings.HasPrefix(got, "alloc 30000 MiB: error 2 ") {
			t.Errorf("one beyond its own soft limit: %q, want out of memory", got)
		}
	})
}
