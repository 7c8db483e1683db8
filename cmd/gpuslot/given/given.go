// Package given counts the jobs that gpuslotd has let onto GPUs and MIG devices as holders of
// these, also those that have opened nothing yet. Start at Hardware.
package given

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// patience is how long gpuslotd may take for an answer.
const patience = 5 * time.Second

// Options say whom to ask, and what an answer that does not come means.
type Options struct {
	// Sockets are where a gpuslotd may listen.
	Sockets []string
	// Boot: the node boots, so a gpuslotd that does not answer has let no job in.
	Boot bool
	// Warn gets why jobs are not known that are taken for none.
	Warn io.Writer
}

// Sockets are where a gpuslotd may listen: one that the command line names, or else systemd's and,
// without systemd, that below paths.run.
func Sockets(socket string, named bool, run string) []string {
	if own := filepath.Join(run, "agent.sock"); own != socket && !named {
		return []string{socket, own}
	}
	return []string{socket}
}

// Hardware is a node's GPUs, with the jobs by the word of gpuslotd. Without one there are none. While it does not
// answer, or does not know the GPU of a job itself, each GPU and each MIG device may have a job.
type Hardware struct {
	mig.Hardware
	Options
	// unknown is why jobs are not known, once gpuslotd did not answer.
	unknown string
}

// New returns the hardware with the jobs.
func New(h mig.Hardware, o Options) *Hardware { return &Hardware{Hardware: h, Options: o} }

// State reads one GPU. The jobs are asked for each time: the next step rests on it.
func (h *Hardware) State(ctx context.Context, u gpu.UUID) (gpu.MIGState, error) {
	s, err := h.Hardware.State(ctx, u)
	if err != nil {
		return s, err
	}
	jobs, unknown := h.ask(ctx)
	return withJobs(s, jobs, unknown), nil
}

// Destroy destroys an instance that no job has. It asks once more: a job may have come since the look, which takes
// seconds on a node with many processes.
func (h *Hardware) Destroy(ctx context.Context, u gpu.UUID, p gpu.Place) error {
	s, err := h.State(ctx, u)
	if err != nil {
		return err
	}
	if i, ok := s.At(p); ok && i.Busy() {
		return gpu.ErrInUse
	}
	return h.Hardware.Destroy(ctx, u, p)
}

// SetMode turns MIG mode of a GPU that no job has on or off. It asks once more, as Destroy does.
func (h *Hardware) SetMode(ctx context.Context, u gpu.UUID, on bool) error {
	s, err := h.State(ctx, u)
	if err != nil {
		return err
	}
	if on != s.Enabled && (len(s.Holders) > 0 || slices.ContainsFunc(s.Instances, gpu.Instance.Busy)) {
		return gpu.ErrInUse
	}
	return h.Hardware.SetMode(ctx, u, on)
}

// ask returns the jobs, and why there may be others; empty if there are none.
func (h *Hardware) ask(ctx context.Context) (jobs []api.StatusEntry, unknown string) {
	unknown = h.unknown
	for _, socket := range h.Sockets {
		status, err := status(ctx, socket)
		switch {
		case err == nil:
			jobs, unknown = append(jobs, status.JobTable...), cmp.Or(unknown, status.UnknownJob)
		case errors.Is(err, fs.ErrNotExist): // none listens, or ever did
		case h.Boot || errors.Is(err, syscall.ECONNREFUSED):
			show.Warn(h.Warn, []string{"jobs that have not opened their GPU are not known: " + err.Error()})
			h.Sockets = slices.DeleteFunc(slices.Clone(h.Sockets), func(s string) bool { return s == socket })
		default:
			h.Sockets, h.unknown = nil, "which jobs have GPUs is not known: "+err.Error()
			return nil, h.unknown
		}
	}
	return jobs, unknown
}

func status(ctx context.Context, socket string) (api.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := api.AskStatus(ctx, socket)
	if err == nil && s.JobTable == nil {
		err = errors.New("gpuslotd answered without its jobs; gpuslot and gpuslotd may be of different versions")
	}
	return s, err
}

// withJobs is the state with jobs as holders. Where there may be others, everything has one that is not known.
func withJobs(s gpu.MIGState, jobs []api.StatusEntry, unknown string) gpu.MIGState {
	holders := func(names ...gpu.UUID) (all []gpu.Holder) {
		for _, j := range jobs {
			if slices.Contains(names, gpu.UUID(j.GPU)) || slices.Contains(names, gpu.UUID(j.Device)) {
				all = append(all, gpu.Holder{Slot: j.Slot})
			}
		}
		if unknown != "" {
			all = append(all, gpu.Holder{Command: unknown})
		}
		return all
	}
	s.Holders = slices.Concat(s.Holders, holders(s.UUID))
	s.Instances = slices.Clone(s.Instances)
	for k, i := range s.Instances {
		s.Instances[k].Holders = slices.Concat(i.Holders, holders(s.Names(i)...))
	}
	return s
}
