package measure

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/bench"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/nvml"
	"github.com/gpuslot/gpuslot/mps"
)

// runner is the GPU that is measured, and what reads it.
type runner struct {
	options Options
	lib     *nvml.Library
	usage   *nvml.Usage
	machine bench.Machine
	// dir takes the copies' output.
	dir string
	// program is NVIDIA's control daemon; noMPS says why there is none to use.
	program, noMPS string
}

// open finds the GPU and makes sure that no other process uses it.
func open(ctx context.Context, o Options, dir string) (*runner, error) {
	lib, err := nvml.Open()
	if err != nil {
		return nil, err
	}
	m := &runner{options: o, dir: dir, lib: lib, usage: lib.Usage()}
	if err := m.find(ctx); err != nil {
		return nil, errors.Join(err, m.close(ctx))
	}
	return m, nil
}

// close ends reading the GPU.
func (m *runner) close(ctx context.Context) error {
	return errors.Join(m.usage.Close(ctx), m.lib.Close(ctx))
}

func (m *runner) find(ctx context.Context) error {
	inv, _, err := m.lib.Inventory(ctx)
	if err != nil {
		return err
	}
	g, err := chosenGPU(inv.GPUs, m.options.GPU)
	if err != nil {
		return err
	}
	m.machine = bench.Machine{Host: inv.Host, Driver: inv.Driver, CUDA: inv.CUDA, GPU: g}
	reply, err := api.Call(ctx, m.options.Socket, api.Request{Op: api.OpStatus})
	if err == nil && reply.Status != nil {
		if err := leftToBench(*reply.Status, g.UUID); err != nil {
			return err
		}
	}
	if !m.options.Force {
		if err := m.idle(ctx); err != nil {
			return err
		}
	}
	m.program, m.noMPS = controlProgram(g)
	return nil
}

// chosenGPU is the one that an index, a UUID or its beginning names.
func chosenGPU(all []gpu.GPU, text string) (gpu.GPU, error) {
	var found []gpu.GPU
	for _, g := range all {
		if strconv.Itoa(g.Index) == text || string(g.UUID) == text ||
			len(text) > len("GPU-") && strings.HasPrefix(string(g.UUID), text) {
			found = append(found, g)
		}
	}
	if len(found) != 1 {
		return gpu.GPU{}, show.Hint(fmt.Errorf("%q names %d of the %d GPUs that answer", text, len(found), len(all)),
			"gpuslot inventory lists them; --gpu takes an index, a UUID or the beginning of one")
	}
	return found[0], nil
}

// leftToBench says why a GPU is not: the agent gives it to jobs. A node that is
// only observed has no jobs of the agent's; those of others are seen on the GPU.
func leftToBench(s api.Status, u gpu.UUID) error {
	if s.Node != nil && (s.Node.Phase == "quiesced" || s.Node.Phase == "reverted") {
		return nil
	}
	i := slices.IndexFunc(s.GPUs, func(g api.StatusGPU) bool { return g.UUID == string(u) })
	if i < 0 || s.GPUs[i].Mode == string(config.ModeObserve) {
		return nil
	}
	return show.Hint(
		fmt.Errorf("gpuslotd gives GPU %d to jobs (mode %s), and bench needs it for itself", s.GPUs[i].Index, s.GPUs[i].Mode),
		`take the node out of service first (gpuslot node quiesce --reason bench, then gpuslot node resume), `+
			`or name a GPU that is not shared with --gpu`,
	)
}

// idle says who else uses the GPU.
func (m *runner) idle(ctx context.Context) error {
	readings, err := m.usage.Read(ctx)
	if err != nil {
		return err
	}
	var pids []string
	for _, r := range readings {
		if r.GPU != m.machine.GPU.UUID {
			continue
		}
		uses := []gpu.Use{r.Use}
		for _, i := range r.Instances {
			uses = append(uses, i.Use)
		}
		for _, u := range uses {
			for _, p := range u.Processes.Value {
				pids = append(pids, strconv.Itoa(p.PID))
			}
		}
	}
	if len(pids) == 0 {
		return nil
	}
	return show.Hint(fmt.Errorf("other processes use GPU %d: %s", m.machine.GPU.Index, strings.Join(pids, ", ")),
		"what is measured beside them is theirs as well: "+
			"end them, name another GPU with --gpu, or measure all the same with --force")
}

// controlProgram finds NVIDIA's control daemon, or says why MPS is left out.
func controlProgram(g gpu.GPU) (program, why string) {
	if g.Capability.Before(gpu.Volta) {
		return "", fmt.Sprintf("MPS clients share memory before compute capability %s, and this GPU has %s", gpu.Volta,
			g.Capability)
	}
	program, err := exec.LookPath(mps.Program)
	if err != nil {
		return "", mps.Program + " is not on the PATH: it comes with the driver (Debian: nvidia-cuda-mps)"
	}
	return program, ""
}

// ground is what the GPU and its driver allow.
func (m *runner) ground() bench.Ground {
	ceiling, _ := mps.ClientCeiling(m.machine.CUDA) // 0 if unknown
	return bench.Ground{GPU: m.machine.GPU, NoMPS: m.noMPS, MaxClients: ceiling}
}
