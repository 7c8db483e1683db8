package devices

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// programName tells our programs from others on a cgroup (at most 15 characters).
const programName = "gpuslot_mig"

// licence is what the kernel is told; the program calls nothing that asks for more.
const licence = "Apache-2.0"

// Kernel lets the kernel enforce rules on cgroups, by a device program (BPF) on the
// cgroup. It vanishes with the cgroup, and stands without this process.
type Kernel struct{}

// Try says whether the kernel would take the program of a rule.
func (Kernel) Try(r Rule) error {
	p, err := load(r)
	if err != nil {
		return err
	}
	return p.Close()
}

// Put enforces the rule on a cgroup, a directory, and all below it, in the place of
// one that it had. Programs of others on it, above and below stay in force: the
// kernel lets a node be opened only if all agree.
func (Kernel) Put(dir string, r Rule) error {
	cgroup, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open the cgroup: %w", err)
	}
	defer cgroup.Close()
	before, err := ours(cgroup)
	if err != nil {
		return err
	}
	p, err := load(r)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	// The new one first: for a moment both hold, never none.
	err = link.RawAttachProgram(link.RawAttachProgramOptions{
		Target: int(cgroup.Fd()), Program: p, Attach: ebpf.AttachCGroupDevice, Flags: unix.BPF_F_ALLOW_MULTI})
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w: gpuslotd needs CAP_SYS_ADMIN, and no other device program that admits none beside it", err)
	}
	if err != nil {
		return fmt.Errorf("attach a device program to %s: %w", dir, err)
	}
	return detach(cgroup, before)
}

// Remove takes the rule of a cgroup back.
func (Kernel) Remove(dir string) error {
	cgroup, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open the cgroup: %w", err)
	}
	defer cgroup.Close()
	before, err := ours(cgroup)
	if err != nil {
		return err
	}
	return detach(cgroup, before)
}

// ours are the programs of a cgroup that bear our name.
func ours(cgroup *os.File) ([]ebpf.ProgramID, error) {
	all, err := link.QueryPrograms(link.QueryOptions{Target: int(cgroup.Fd()), Attach: ebpf.AttachCGroupDevice})
	if err != nil {
		return nil, fmt.Errorf("ask for the device programs of %s: %w", cgroup.Name(), err)
	}
	var found []ebpf.ProgramID
	for _, p := range all.Programs {
		if named(p.ID) {
			found = append(found, p.ID)
		}
	}
	return found, nil
}

func named(id ebpf.ProgramID) bool {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return false // detached meanwhile
	}
	defer func() { _ = p.Close() }()
	info, err := p.Info()
	return err == nil && info.Name == programName
}

func detach(cgroup *os.File, ids []ebpf.ProgramID) error {
	var errs []error
	for _, id := range ids {
		p, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = link.RawDetachProgram(link.RawDetachProgramOptions{Target: int(cgroup.Fd()), Program: p,
				Attach: ebpf.AttachCGroupDevice})
			_ = p.Close()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("detach a device program from %s: %w", cgroup.Name(), err))
		}
	}
	return errors.Join(errs...)
}

func load(r Rule) (*ebpf.Program, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: programName, Type: ebpf.CGroupDevice, AttachType: ebpf.AttachCGroupDevice, Instructions: program(r),
		License: licence})
	if err != nil {
		return nil, fmt.Errorf("load a device program (the kernel needs BPF and cgroup v2): %w", err)
	}
	return p, nil
}

// Offsets in struct bpf_cgroup_dev_ctx, and its word for a character device in
// the lower half of access_type (linux/bpf.h).
const (
	ctxAccess, ctxMajor, ctxMinor = 0, 4, 8

	characterDevice = 2
)

// program answers 1 for what may be opened or made, 0 for what may not.
func program(r Rule) asm.Instructions {
	const open, closed = "open", "closed"
	opened := asm.Instructions{asm.Mov.Imm(asm.R0, 1).WithSymbol(open), asm.Return()}
	if r.Empty() {
		return opened // the kernel takes no program with instructions that nothing reaches
	}
	is := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, ctxAccess, asm.Word),
		asm.And.Imm(asm.R2, 0xffff),
		asm.JNE.Imm(asm.R2, characterDevice, open),
		asm.LoadMem(asm.R2, asm.R1, ctxMajor, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, ctxMinor, asm.Word),
	}
	for i, node := range r.Closed {
		next := fmt.Sprintf("no%d", i)
		is = append(is,
			asm.JNE.Imm(asm.R2, int32(node.Major), next),
			asm.JEq.Imm(asm.R3, int32(node.Minor), closed),
			asm.Mov.Reg(asm.R3, asm.R3).WithSymbol(next),
		)
	}
	if r.Major == 0 {
		is = append(is, asm.Ja.Label(open))
	} else {
		is = append(is, instances(r, open)...)
	}
	// The kernel's number of the account: who is root in a user namespace of its own is not 0.
	is = append(is, asm.FnGetCurrentUidGid.Call().WithSymbol(closed))
	for _, uid := range r.Spared {
		is = append(is, asm.JEq.Imm32(asm.R0, int32(uid), open))
	}
	return append(append(is, asm.Mov.Imm(asm.R0, 0), asm.Return()), opened...)
}

// instances goes on to open for all but MIG's nodes and those of the job.
func instances(r Rule, open string) asm.Instructions {
	is := asm.Instructions{
		asm.JNE.Imm(asm.R2, int32(r.Major), open),
		asm.JLT.Imm(asm.R3, int32(r.MIG.First), open),
		asm.JGT.Imm(asm.R3, int32(r.MIG.Last), open),
	}
	for i, own := range r.Own {
		next := fmt.Sprintf("after%d", i)
		is = append(is,
			asm.JLT.Imm(asm.R3, int32(own.First), next),
			asm.JLE.Imm(asm.R3, int32(own.Last), open),
			asm.Mov.Reg(asm.R3, asm.R3).WithSymbol(next),
		)
	}
	return is
}
