package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
	"github.com/gpuslot/gpuslot/gpu/cuda"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// verified is the last verification of a GPU.
type verified struct {
	api.Verification
	// Daemon is the control daemon that it ran with.
	Daemon process.ID `json:"control_daemon"`
	// Void says what has changed since, so that it no longer tells anything.
	Void string `json:"void,omitempty"`
}

func (r verified) holds() bool { return r.OK && r.Void == "" }

// shown is the verification as it stands now.
func (r verified) shown() api.Verification {
	v := r.Verification
	if r.Void != "" && r.OK {
		v.OK, v.Text = false, fmt.Sprintf("no longer tells anything: %s", r.Void)
	}
	return v
}

// retry is when a GPU is verified again by itself, after what did not go well.
type retry struct {
	at       time.Time
	failures int
	// why it could not even be tried; empty if it could.
	why string
}

// verifier holds the results of verifications, and lets one run at a time: a
// client costs seconds of all its GPU's time, and the CPUs belong to jobs.
type verifier struct {
	start func(context.Context, cuda.Order) (CUDAClient, error)
	// patience is how long a client may take, hears how long START is given.
	patience, hears time.Duration
	turn            chan struct{}

	mu    sync.Mutex
	by    map[gpu.UUID]verified
	retry map[gpu.UUID]retry
	// now is the GPU that is being verified, or is about to be; empty if none is.
	now gpu.UUID
}

// verifyPatience is how long a client may take. Without persistence mode the
// driver initialises the GPU anew, and then the MPS server starts.
const verifyPatience = 30 * time.Second

func newVerifier(start func(context.Context, cuda.Order) (CUDAClient, error)) *verifier {
	return &verifier{start: start, patience: verifyPatience, hears: startHears, turn: make(chan struct{}, 1), by: map[gpu.UUID]verified{}, retry: map[gpu.UUID]retry{}}
}

// enter waits for its turn.
func (s *verifier) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, errors.New("gpuslotd is ending: try again when it runs")
	}
	return func() { s.announce(""); <-s.turn }, nil
}

// announce closes a GPU in START, before its admission is asked.
func (s *verifier) announce(u gpu.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = u
}

// runs says whether a GPU is being verified.
func (s *verifier) runs(u gpu.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now == u
}

// retryPause is between two attempts of the agent's own.
var retryPause = backoff.Doubling{First: 30 * time.Second, Longest: 15 * time.Minute}

func (r retry) next(why string, at time.Time) retry {
	failures := r.failures + 1
	return retry{at: at.Add(retryPause.After(failures)), failures: failures, why: why}
}

// skipped books an attempt that came to nothing.
func (s *verifier) skipped(u gpu.UUID, why string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retry[u] = s.retry[u].next(why, at)
}

// note books a result and keeps it for the next agent.
func (s *verifier) note(u gpu.UUID, r verified, file string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by[u] = r
	if r.OK {
		delete(s.retry, u)
	} else {
		s.retry[u] = s.retry[u].next("", r.At)
	}
	return s.write(file)
}

// last is a GPU's verification as it stands; nil if there is none.
func (s *verifier) last(u gpu.UUID) *api.Verification {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.by[u]
	if !ok {
		return nil
	}
	v := r.shown()
	return &v
}

// due says whether it is time for the agent to verify a GPU by itself.
func (s *verifier) due(u gpu.UUID, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.by[u].holds() && !now.Before(s.retry[u].at)
}

// missing says why a GPU does not count as verified; empty if it does.
func (s *verifier) missing(u gpu.UUID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.by[u]
	again := ""
	if t := s.retry[u].at; !t.IsZero() {
		again = "; it is tried again at " + t.Format(time.TimeOnly)
	}
	switch {
	case r.holds():
		return ""
	case s.start == nil:
		return "it cannot be verified (health.open): " + noClients
	case s.retry[u].why != "":
		return "not verified yet: " + s.retry[u].why + again
	case ok && r.Void != "":
		return "not verified yet: " + r.Void + again
	case ok:
		return "its verification failed: " + r.Text + again
	}
	return "not verified yet: a CUDA client runs on it first, as soon as it is idle (health.open)"
}

// revise voids the results that no longer tell anything, and keeps them so.
func (s *verifier) revise(void func(gpu.UUID, verified) string, file string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := false
	for u, r := range s.by {
		if r.Void != "" {
			continue
		}
		if r.Void = void(u, r); r.Void != "" {
			s.by[u] = r
			delete(s.retry, u)
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return s.write(file)
}

// verifiedFile holds the verifications since the boot.
func verifiedFile(p config.Paths) string { return filepath.Join(p.Run, "verified.json") }

// write keeps all results.
func (s *verifier) write(file string) error {
	all := make([]verified, 0, len(s.by))
	for _, r := range s.by {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b verified) int { return cmp.Compare(a.UUID, b.UUID) })
	return store.WriteJSON(file, all)
}

// read takes over the results of an earlier agent.
func (s *verifier) read(file string) error {
	all, err := store.Store[[]verified]{Path: file}.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w: what it says is found again (gpuslot verify)", err), store.Aside(file))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range all {
		if u, err := gpu.ParseUUID(r.UUID); err == nil {
			s.by[u] = r
		}
	}
	return nil
}
