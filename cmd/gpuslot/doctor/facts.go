package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/startd"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/nvml"
)

// facts are all that the checks look at. An error beside a fact says that it is
// not known.
type facts struct {
	root      bool
	config    config.Config
	configErr error
	// plan is the one in force or, where there is none, the one that follows
	// from the configuration.
	plan    plan.Plan
	planErr error
	inForce bool
	// generatedErr says that the configuration that the agent writes for HTCondor
	// is not there.
	generatedErr error
	// prepareErr says that the hook's program cannot be started.
	prepareErr error

	// inventory is what NVML reports of the GPUs.
	inventory    gpu.Inventory
	inventoryErr error

	persistence    map[gpu.UUID]gpu.Measured[bool]
	persistenceErr error
	uvmErr         error
	// renders are the driver's nodes for graphics that all accounts can open.
	renders []string
	// ptrace is kernel.yama.ptrace_scope; empty if the kernel has none.
	ptrace string

	status    api.Status
	statusErr error
	openFiles []openFiles

	version     condor.Version
	versionErr  error
	totalGPUs   int64 // of the running startd
	totalErr    error
	settings    map[string]string // those that are defined
	settingsErr error
	// slotUsers are the accounts of single slots, by the setting's name.
	slotUsers map[string]string

	selinux selinux
	// job is what came of the job of --job; nil where none was asked for.
	job *contractJob
}

// openFiles is how many files a process of MPS may have open.
type openFiles struct {
	pid  int
	what string
	soft uint64
	err  error
}

// Longest waits for what is asked; a wedged driver takes longer than any.
const (
	doctorNVMLTimeout   = 60 * time.Second
	doctorCondorTimeout = 10 * time.Second
)

// gatherFacts reads the node.
func gatherFacts(ctx context.Context, n Node) facts {
	got := facts{root: os.Geteuid() == 0, config: n.Config, configErr: n.ConfigErr}
	if n.ConfigErr != nil {
		got.config = config.Default()
	}
	got.readGPUs(ctx)
	_, got.uvmErr = os.Stat("/dev/nvidia-uvm")
	got.renders = openRenders("/sys", "/dev")
	_, got.generatedErr = os.Stat(got.config.Paths.CondorConfig())
	got.prepareErr = startable(filepath.Join(got.config.Paths.Libexec, "prepare"))
	scope, _ := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope") // not every kernel has it
	got.ptrace = strings.TrimSpace(string(scope))
	got.status, got.statusErr = api.AskStatus(ctx, n.Socket)
	switch {
	case got.statusErr == nil && got.status.Partial:
		got.status, got.statusErr = api.Status{}, errors.New("only root gets the whole state of the agent: run gpuslot "+
			"doctor as root")
	case got.statusErr == nil:
		got.openFiles = readOpenFiles(got.status)
	}
	got.selinux = readSELinux()
	got.version, got.versionErr = condor.InstalledVersion(ctx)
	got.totalGPUs, got.totalErr = startdGPUs(ctx, startd.Node(got.plan, got.config))
	if got.planErr == nil {
		got.settings, got.settingsErr = condorSettings(ctx, settingNames(got.slotTypes()...))
	} else {
		got.settings, got.settingsErr = condorSettings(ctx, settingNames())
	}
	if got.settingsErr == nil {
		got.slotUsers, got.settingsErr = slotUsers(ctx)
	}
	return got
}

// openRenders are the nodes for graphics of NVIDIA's driver that all accounts can open. With cgroups of version 2
// gpuslotd closes those of shared GPUs.
func openRenders(sys, dev string) (open []string) {
	if _, err := os.Stat(filepath.Join(sys, "fs/cgroup/cgroup.controllers")); err == nil {
		return nil
	}
	found, _ := filepath.Glob(filepath.Join(sys, "class/drm/*/device/driver")) // the pattern is a good one
	for _, link := range found {
		driver, err := os.Readlink(link)
		node := filepath.Join(dev, "dri", filepath.Base(filepath.Dir(filepath.Dir(link))))
		info, no := os.Stat(node)
		if err == nil && no == nil && filepath.Base(driver) == "nvidia" && info.Mode().Perm()&0o006 != 0 {
			open = append(open, node)
		}
	}
	return open
}

// startable reports whether a program is there and may be started.
func startable(program string) error {
	if err := unix.Access(program, unix.X_OK); err != nil {
		return &fs.PathError{Op: "start", Path: program, Err: err}
	}
	return nil
}

// unset: HTCondor reads nothing that the agent generates, which checkGuards says;
// what else is missing for that reason is no finding of its own.
func (f facts) unset() bool {
	_, open := f.settings[settingOpen]
	return f.settingsErr == nil && f.planErr == nil && len(f.shared()) > 0 && !open
}

// away: an operator took the node out of service.
func (f facts) away() bool { return f.statusErr == nil && f.status.Node != nil }

// slotTypes are the numbers of the shared GPUs' slot types.
func (f facts) slotTypes() []int {
	var all []int
	n := startd.Node(f.plan, f.config)
	for _, g := range f.shared() {
		number, _ := condor.SlotTypeOf(n, g.UUID)
		all = append(all, number)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// shared are the GPUs that jobs share.
func (f facts) shared() []plan.GPU {
	var some []plan.GPU
	for _, g := range f.plan.GPUs {
		if g.Shared() {
			some = append(some, g)
		}
	}
	return some
}

// served are those that they share through MPS.
func (f facts) served() []plan.GPU {
	return slices.DeleteFunc(f.shared(), func(g plan.GPU) bool { return !g.MPS() })
}

// readGPUs finds the plan, and asks NVML for what no plan has.
func (f *facts) readGPUs(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, doctorNVMLTimeout)
	defer cancel()
	f.plan, f.planErr = plan.Read(f.config.Paths.PlanFile())
	f.inForce = f.planErr == nil
	l, err := nvml.Open()
	if err != nil {
		f.persistenceErr, f.inventoryErr = err, err
		return // without a plan file the plan stays unknown
	}
	defer func() { _ = l.Close(context.WithoutCancel(ctx)) }() // the program ends soon
	f.inventory, _, f.inventoryErr = l.Inventory(ctx)
	settings, _ := condor.InstalledSettings(ctx) // what cannot be read bounds nothing
	f.inventory.Host = settings.Within(f.inventory.Host)
	if f.planErr != nil {
		if f.planErr = f.inventoryErr; f.planErr == nil {
			f.plan, f.planErr = plan.Build(f.config, f.inventory)
		}
	}
	f.persistence = map[gpu.UUID]gpu.Measured[bool]{}
	for _, g := range f.shared() {
		on, err := l.Persistence(ctx, g.UUID)
		if err != nil {
			f.persistenceErr = err
			return
		}
		f.persistence[g.UUID] = on
	}
}
