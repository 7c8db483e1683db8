package mig

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/nvml"
	"github.com/gpuslot/gpuslot/mig"
	"github.com/gpuslot/gpuslot/test/alone"
)

// applierDir names the state directory in a process that applies: this binary
// again, so that it can be killed for real.
const applierDir = "GPUSLOT_MIG_APPLIER"

func TestMain(m *testing.M) {
	dir := os.Getenv(applierDir)
	if dir == "" {
		alone.Enter()
		os.Exit(m.Run())
	}
	if err := applier(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// order is one line that the applier reads.
type order struct {
	Verb   string // apply, recover, state
	GPU    gpu.UUID
	Wanted mig.Wanted
	// DieAt kills the process at that call of the hardware; odd: before it, even:
	// after it. 0 is never.
	DieAt int
	// Boot is the boot that it runs in.
	Boot string
}

// answer is what it prints.
type answer struct {
	Outcome mig.Outcome
	Err     string
	Blocked bool
}

func applier(dir string) error {
	l, err := nvml.Open()
	if err != nil {
		return err
	}
	orders, answers := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil // the campaign is over
		} else if err != nil {
			return err
		}
		if err := answers.Encode(obey(dir, l, o)); err != nil {
			return err
		}
	}
}

func obey(dir string, l *nvml.Library, o order) answer {
	// No process is listed here: the open files of this machine have no part in the simulation.
	e := mig.Executor{Hardware: &mortal{MIG: l.MIG(), die: o.DieAt}, Dir: dir, Boot: o.Boot,
		Patience: mig.Patience{Tries: 4, First: time.Millisecond}, Proc: mig.Proc{Root: dir}}
	var a answer
	var err error
	switch ctx := context.Background(); o.Verb {
	case "apply":
		a.Outcome, err = e.Apply(ctx, o.GPU, o.Wanted)
	case "recover":
		a.Outcome, err = e.Recover(ctx, o.GPU)
	case "state":
		var s gpu.MIGState
		s, err = e.State(ctx, o.GPU)
		a.Outcome.GPU, a.Outcome.State = o.GPU, &s
	}
	if err != nil {
		a.Err, a.Blocked = err.Error(), errors.As(err, new(mig.BlockedError))
	}
	return a
}

// mortal is the hardware to a process that dies at one of its calls.
type mortal struct {
	nvml.MIG
	die, calls int
}

// at kills this process as kill -9 does if its time has come.
func (m *mortal) at() {
	m.calls++
	if m.calls == m.die {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
}

func (m *mortal) State(ctx context.Context, u gpu.UUID) (gpu.MIGState, error) {
	m.at()
	defer m.at()
	return m.MIG.State(ctx, u)
}

func (m *mortal) SetMode(ctx context.Context, u gpu.UUID, enabled bool) error {
	m.at()
	defer m.at()
	return m.MIG.SetMode(ctx, u, enabled)
}

func (m *mortal) Create(ctx context.Context, u gpu.UUID, p gpu.Place, size int) error {
	m.at()
	defer m.at()
	return m.MIG.Create(ctx, u, p, size)
}

func (m *mortal) Destroy(ctx context.Context, u gpu.UUID, p gpu.Place) error {
	m.at()
	defer m.at()
	return m.MIG.Destroy(ctx, u, p)
}
