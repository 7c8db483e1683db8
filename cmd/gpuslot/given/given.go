// Package given counts the jobs that gpuslotd has let onto GPUs and MIG devices as holders of
// these, also those that have opened nothing yet. It changes nothing. Start at Hardware.
package given

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// patience is how long gpuslotd may take for an answer.
const patience = 5 * time.Second

// Hardware is a node's GPUs, with these jobs.
type Hardware struct {
	mig.Hardware
	socket string
	warn   io.Writer
	silent bool
}

// New returns the hardware with the jobs by the word of the gpuslotd at a socket. Without one there are none. If it
// does not answer, as at boot, a warning is printed once, and no job is known.
func New(h mig.Hardware, socket string, warn io.Writer) *Hardware {
	return &Hardware{Hardware: h, socket: socket, warn: warn}
}

// State reads one GPU. The jobs are asked for each time: the next step rests on it.
func (h *Hardware) State(ctx context.Context, u gpu.UUID) (gpu.MIGState, error) {
	s, err := h.Hardware.State(ctx, u)
	if err != nil || h.silent {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	status, err := api.AskStatus(ctx, h.socket)
	if err != nil {
		if h.silent = true; !errors.Is(err, fs.ErrNotExist) {
			show.Warn(h.warn, []string{"jobs that have not opened their GPU are not known: " + err.Error()})
		}
		return s, nil
	}
	return withJobs(s, status), nil
}

// withJobs is the state with the jobs of a status. A MIG device may stand there by its place.
func withJobs(s gpu.MIGState, status api.Status) gpu.MIGState {
	of := map[gpu.UUID][]gpu.Holder{}
	for _, g := range status.GPUs {
		for _, j := range g.Jobs {
			for _, u := range slices.Compact([]string{g.UUID, g.Device}) {
				of[gpu.UUID(u)] = append(of[gpu.UUID(u)], gpu.Holder{Slot: j.Slot})
			}
		}
	}
	s.Holders = slices.Concat(s.Holders, of[s.UUID])
	s.Instances = slices.Clone(s.Instances)
	for i := range s.Instances {
		if u, ok := s.Instances[i].UUID(); ok {
			s.Instances[i].Holders = slices.Concat(s.Instances[i].Holders, of[u])
		}
	}
	return s
}
