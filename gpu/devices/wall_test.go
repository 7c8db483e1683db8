package devices

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/gpuslot/gpuslot/test/proctree"
	"golang.org/x/sys/unix"
)

// jail is a cgroup for a job as HTCondor 24.8 makes it, a scope in a slice, and
// nodes that no driver serves: opened, they say ENXIO; closed, EPERM.
type jail struct {
	t                   *testing.T
	slice, scope, nodes string
	major               uint32
}

func newJail(t *testing.T) jail {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("device programs need root: run this test as root")
	}
	root := proctree.CgroupMount(t)
	if err := (Kernel{}).Try(Rule{}); err != nil {
		t.Skipf("this kernel lets root load no device program: %v", err)
	}
	j := jail{t: t, nodes: t.TempDir(), major: freeMajor(t)}
	j.slice = filepath.Join(root, fmt.Sprintf("gpuslot-devices-%d.slice", os.Getpid()))
	j.scope = filepath.Join(j.slice, "job.scope")
	for _, dir := range []string{j.slice, j.scope} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skipf("no cgroup can be made here: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Rmdir(dir); err != nil {
				t.Error(err)
			}
		})
	}
	return j
}

// freeMajor is a number that no driver has.
func freeMajor(t *testing.T) uint32 {
	t.Helper()
	return freeMajorFrom(t, 470)
}

// freeMajorFrom is the first such number from one on.
func freeMajorFrom(t *testing.T, major uint32) uint32 {
	t.Helper()
	text, err := os.ReadFile("/proc/devices")
	if err != nil {
		t.Fatal(err)
	}
	for ; major < 511; major++ {
		if !strings.Contains(string(text), fmt.Sprintf("\n%d ", major)) {
			return major
		}
	}
	t.Fatal("every number is taken")
	return 0
}

// node makes one, by its minor number.
func (j jail) node(kind, minor uint32) string {
	j.t.Helper()
	path := filepath.Join(j.nodes, fmt.Sprintf("%d-%d-%d", kind, j.major, minor))
	if err := unix.Mknod(path, kind|0o666, int(unix.Mkdev(j.major, minor))); err != nil && !errors.Is(err, unix.EEXIST) {
		j.t.Skipf("no device node can be made here: %v", err)
	}
	return path
}

// says is what cat says of a file, run in the job's cgroup.
func (j jail) says(path string) string { return j.saysTo(0, path) }

// saysTo is what it says to an account, started by another program if there is one.
func (j jail) saysTo(uid uint32, path string, by ...string) string {
	j.t.Helper()
	dir, err := os.Open(j.scope)
	if err != nil {
		j.t.Fatal(err)
	}
	defer dir.Close()
	ctx, cancel := context.WithTimeout(j.t.Context(), 5*time.Minute)
	defer cancel()
	args := append(by, "head", "-c1", path)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = []string{"LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()),
		Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "open"
	}
	parts := strings.Split(strings.TrimSpace(string(out)), ": ")
	return parts[len(parts)-1]
}

func (j jail) want(path, want string) {
	j.t.Helper()
	if got := j.says(path); got != want {
		j.t.Errorf("%s: %q, want %q", filepath.Base(path), got, want)
	}
}

const (
	opened = "No such device or address"
	closed = "Operation not permitted"
)

// zeroHidden is a program as HTCondor's: it hides one device, /dev/zero, and is
// attached to the job's own cgroup without any flag (install_bpf_gpu_filter in
// proc_family_direct_cgroup_v2.cpp).
func (j jail) zeroHidden() error { return hideZero(j.scope, 0) }

func hideZero(cgroup string, flags uint32) error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupDevice, License: licence, Instructions: asm.Instructions{
		asm.Mov.Imm(asm.R0, 1),
		asm.LoadMem(asm.R2, asm.R1, ctxMajor, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, ctxMinor, asm.Word),
		asm.JNE.Imm(asm.R2, 1, "end"),
		asm.JNE.Imm(asm.R3, 5, "end"),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return().WithSymbol("end"),
	}})
	if err != nil {
		return err
	}
	defer p.Close()
	dir, err := os.Open(cgroup)
	if err != nil {
		return err
	}
	defer dir.Close()
	return link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(dir.Fd()), Program: p, Attach: ebpf.AttachCGroupDevice, Flags: flags})
}

// rule opens 12 to 20 and 147 of MIG's 1 to 4322.
func (j jail) rule() Rule {
	return Rule{Major: j.major, MIG: Range{1, 4322}, Own: []Range{{12, 20}, {147, 147}}}
}

// TestWall: own nodes open, all others of MIG's do not; nothing else changes.
func TestWall(t *testing.T) {
	j := newJail(t)
	j.want(j.node(unix.S_IFCHR, 21), opened)
	if err := (Kernel{}).Put(j.slice, j.rule()); err != nil {
		t.Fatal(err)
	}
	for minor, want := range map[uint32]string{0: opened, 1: closed, 2: closed, 11: closed, 12: opened, 13: opened, 20: opened, 21: closed,
		146: closed, 147: opened, 148: closed, 4322: closed, 4323: opened} {
		j.want(j.node(unix.S_IFCHR, minor), want)
	}
	j.want(j.node(unix.S_IFBLK, 21), opened) // another kind of device
	j.want("/dev/null", "open")
	j.want("/dev/zero", "open")

	// Another rule takes its place, and is taken back.
	other := j.rule()
	other.Own = []Range{{21, 21}}
	if err := (Kernel{}).Put(j.slice, other); err != nil {
		t.Fatal(err)
	}
	j.want(j.node(unix.S_IFCHR, 21), opened)
	j.want(j.node(unix.S_IFCHR, 12), closed)
	if err := (Kernel{}).Remove(j.slice); err != nil {
		t.Fatal(err)
	}
	j.want(j.node(unix.S_IFCHR, 12), opened)
}

// TestKernelRefuses: a rule that no kernel takes is refused, and so is a cgroup that is gone.
func TestKernelRefuses(t *testing.T) {
	long := Rule{Major: 1, Own: make([]Range, 1<<14)} // its jumps are longer than an instruction can say
	gone := filepath.Join(t.TempDir(), "gone")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"a long rule":                      {Kernel{}.Try(long), "load a device program"},
		"a rule for a cgroup that is gone": {Kernel{}.Put(gone, Rule{}), "open the cgroup"},
		"no rule for one that is gone":     {Kernel{}.Remove(gone), "open the cgroup"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}

// TestWallSpared: the spared accounts open what others do not, also one that is root in a user namespace.
func TestWallSpared(t *testing.T) {
	j := newJail(t)
	for _, dir := range []string{j.nodes, filepath.Dir(j.nodes)} { // made for root alone
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := j.rule()
	const nobody, condor, games = 65534, 64, 5
	r.Spared = []uint32{0, condor}
	if err := (Kernel{}).Put(j.slice, r); err != nil {
		t.Fatal(err)
	}
	for minor, want := range map[uint32]string{0: opened, 2: closed, 12: opened, 21: closed, 147: opened, 4323: opened} {
		path := j.node(unix.S_IFCHR, minor)
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		j.want(path, opened)
		for uid, want := range map[uint32]string{nobody: want, games: want, condor: opened} {
			for _, as := range [][]string{nil, {"unshare", "-r"}} {
				if got := j.saysTo(uid, path, as...); got != want {
					t.Errorf("%d as account %d, %v: %q, want %q", minor, uid, as, got, want)
				}
			}
		}
	}
}

// TestWallClosed: further nodes are closed to all accounts but root, of exactly those numbers, alone and beside MIG's.
func TestWallClosed(t *testing.T) {
	mig := newJail(t)
	for _, dir := range []string{mig.nodes, filepath.Dir(mig.nodes)} { // made for root alone
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	gpus := mig
	gpus.major = freeMajorFrom(t, mig.major+1)
	const nobody = 65534
	want := func(j jail, minor uint32, want string) {
		t.Helper()
		path := j.node(unix.S_IFCHR, minor)
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		j.want(path, opened)
		for _, as := range [][]string{nil, {"unshare", "-r"}} {
			if got := j.saysTo(nobody, path, as...); got != want {
				t.Errorf("%d of %d as another account, %v: %q, want %q", minor, j.major, as, got, want)
			}
		}
	}
	closes := []Node{{gpus.major, 0}, {gpus.major, 3}}
	beside := mig.rule()
	beside.Spared, beside.Closed = []uint32{0}, closes
	for _, c := range []struct {
		name string
		rule Rule
		mig  string
	}{{"alone", Rule{Spared: []uint32{0}, Closed: closes}, opened}, {"beside MIG's", beside, closed}, {"alone again", Rule{Spared: []uint32{0}, Closed: closes}, opened}} {
		if err := (Kernel{}).Put(mig.slice, c.rule); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for minor, say := range map[uint32]string{0: closed, 1: opened, 3: closed, 4: opened, 255: opened} {
			want(gpus, minor, say)
		}
		for minor, say := range map[uint32]string{0: opened, 2: c.mig, 3: c.mig, 12: opened} {
			want(mig, minor, say)
		}
		block := gpus.node(unix.S_IFBLK, 3) // another kind of device
		if err := os.Chmod(block, 0o666); err != nil {
			t.Fatal(err)
		}
		if got := gpus.saysTo(nobody, block); got != opened {
			t.Errorf("%s: a block device: %q", c.name, got)
		}
		if got := gpus.saysTo(nobody, "/dev/zero"); got != "open" {
			t.Errorf("%s: /dev/zero: %q", c.name, got)
		}
		if programs := gpus.programs(); programs != 1 {
			t.Errorf("%s: %d programs on the cgroup", c.name, programs)
		}
	}
	if err := (Kernel{}).Put(mig.slice, Rule{Closed: closes}); err != nil {
		t.Fatal(err)
	}
	mig.want(gpus.node(unix.S_IFCHR, 3), closed) // to root, too
	mig.want(gpus.node(unix.S_IFCHR, 1), opened)
	if err := (Kernel{}).Remove(mig.slice); err != nil {
		t.Fatal(err)
	}
	want(gpus, 3, opened)
}

// programs is how many of ours are on the slice.
func (j jail) programs() int {
	j.t.Helper()
	cgroup, err := os.Open(j.slice)
	if err != nil {
		j.t.Fatal(err)
	}
	defer cgroup.Close()
	all, err := ours(cgroup)
	if err != nil {
		j.t.Fatal(err)
	}
	return len(all)
}

// TestWallBesideHTCondor: both programs hold, whichever came first. On the job's
// own cgroup HTCondor's would admit none beside it, nor be admitted: that is why
// ours stands on the slice.
func TestWallBesideHTCondor(t *testing.T) {
	for _, first := range []string{"HTCondor", "gpuslot"} {
		t.Run(first+" first", func(t *testing.T) {
			j := newJail(t)
			if first == "HTCondor" {
				if err := j.zeroHidden(); err != nil {
					t.Fatal(err)
				}
			}
			if err := (Kernel{}).Put(j.slice, j.rule()); err != nil {
				t.Fatal(err)
			}
			if first == "gpuslot" {
				if err := j.zeroHidden(); err != nil {
					t.Fatal(err)
				}
			}
			j.want(j.node(unix.S_IFCHR, 12), opened)
			j.want(j.node(unix.S_IFCHR, 21), closed)
			j.want("/dev/zero", closed)
			j.want("/dev/null", "open")
			if err := (Kernel{}).Put(j.scope, j.rule()); !errors.Is(err, unix.EPERM) {
				t.Errorf("beside HTCondor's program on the same cgroup: %v, want EPERM", err)
			}
		})
	}
}

// TestWallLeavesOthers: what another program attached to the same cgroup stays, when ours comes, changes and goes.
func TestWallLeavesOthers(t *testing.T) {
	j := newJail(t)
	if err := hideZero(j.slice, unix.BPF_F_ALLOW_MULTI); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := (Kernel{}).Put(j.slice, j.rule()); err != nil {
			t.Fatal(err)
		}
		j.want(j.node(unix.S_IFCHR, 21), closed)
		j.want("/dev/zero", closed)
	}
	if err := (Kernel{}).Remove(j.slice); err != nil {
		t.Fatal(err)
	}
	j.want(j.node(unix.S_IFCHR, 21), opened)
	j.want("/dev/zero", closed)
}

// TestDetach: a program that has ended is no error and does not keep the others; one that is attached nowhere is an
// error.
func TestDetach(t *testing.T) {
	j := newJail(t)
	if err := (Kernel{}).Put(j.slice, j.rule()); err != nil {
		t.Fatal(err)
	}
	cgroup, err := os.Open(j.slice)
	if err != nil {
		t.Fatal(err)
	}
	defer cgroup.Close()
	p, err := load(j.rule())
	if err != nil {
		t.Fatal(err)
	}
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	id, _ := info.ID()
	if err := detach(cgroup, []ebpf.ProgramID{id}); err == nil {
		t.Error("a program that is not attached here was detached")
	}
	_ = p.Close()
	before, err := ours(cgroup)
	if err != nil || len(before) != 1 || named(id) {
		t.Fatalf("%v, %v", before, err)
	}
	if err := detach(cgroup, append([]ebpf.ProgramID{id}, before...)); err != nil {
		t.Error(err)
	}
	if left, err := ours(cgroup); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if err := (Kernel{}).Remove(t.TempDir()); err == nil || !strings.Contains(err.Error(), "ask for the device programs") {
		t.Errorf("of no cgroup: %v", err)
	}
}
