package verify

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/backoff"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// result is the last verification of a GPU.
type result struct {
	api.Verification
	// Daemon is the control daemon that it ran with.
	Daemon process.ID `json:"control_daemon"`
	// Void says what has changed since, so that it no longer counts.
	Void string `json:"void,omitempty"`
}

func (r result) holds() bool { return r.OK && r.Void == "" }

// shown is the verification as it stands now.
func (r result) shown() api.Verification {
	v := r.Verification
	if r.Void != "" && r.OK {
		v.OK, v.Text = false, fmt.Sprintf("no longer counts: %s", r.Void)
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

// announce closes a GPU in START, before its admission is asked.
func (v *Verifier) announce(u gpu.UUID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now = u
}

// Runs says whether a GPU is being verified.
func (v *Verifier) Runs(u gpu.UUID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now == u
}

// retryPause is between two attempts of the agent's own.
var retryPause = backoff.Doubling{First: 30 * time.Second, Longest: 15 * time.Minute}

func (r retry) next(why string, at time.Time) retry {
	failures := r.failures + 1
	return retry{at: at.Add(retryPause.After(failures)), failures: failures, why: why}
}

// skipped notes an attempt that came to nothing.
func (v *Verifier) skipped(u gpu.UUID, why string, at time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.retry[u] = v.retry[u].next(why, at)
}

// note enters a result and keeps it for the next agent.
func (v *Verifier) note(u gpu.UUID, r result) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.by[u] = r
	if r.OK {
		delete(v.retry, u)
	} else {
		v.retry[u] = v.retry[u].next("", r.At)
	}
	return v.write()
}

// Last is a GPU's verification as it stands; nil if there is none.
func (v *Verifier) Last(u gpu.UUID) *api.Verification {
	v.mu.Lock()
	defer v.mu.Unlock()
	r, ok := v.by[u]
	if !ok {
		return nil
	}
	now := r.shown()
	return &now
}

// due says whether it is time for the agent to verify a GPU by itself.
func (v *Verifier) due(u gpu.UUID, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.by[u].holds() && !now.Before(v.retry[u].at)
}

// Missing says why a GPU does not count as verified; empty if it does.
func (v *Verifier) Missing(u gpu.UUID) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	r, ok := v.by[u]
	again := ""
	if t := v.retry[u].at; !t.IsZero() {
		again = "; it is tried again at " + t.Format(time.TimeOnly)
	}
	switch {
	case r.holds():
		return ""
	case !v.Able():
		return "it cannot be verified (health.open): " + NoClients
	case v.retry[u].why != "":
		return "not verified yet: " + v.retry[u].why + again
	case ok && r.Void != "":
		return "not verified yet: " + r.Void + again
	case ok:
		return "its verification failed: " + r.Text + again
	}
	return "not verified yet: a CUDA client runs on it first, as soon as it is idle (health.open)"
}

// Facts are what the result of a verification rests on.
type Facts struct {
	Driver string
	// Daemon is the control daemon; zero if it is not known now.
	Daemon process.ID
	// Faulted: its MPS server met a fatal GPU error.
	Faulted bool
	// Closed is why events closed the GPU; empty if none did.
	Closed string
}

// Revise voids the results that no longer tell anything, and keeps them so.
func (v *Verifier) Revise(now func(u gpu.UUID) Facts) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	changed := false
	for u, r := range v.by {
		if r.Void != "" {
			continue
		}
		switch f := now(u); {
		case r.Driver != f.Driver:
			r.Void = fmt.Sprintf("the driver is %s and was %s", f.Driver, r.Driver)
		case f.Daemon.PID != 0 && f.Daemon != r.Daemon:
			r.Void = "its control daemon was restarted"
		case f.Faulted:
			r.Void = "its MPS server met a fatal GPU error"
		case f.Closed != "":
			r.Void = "an event closed it: " + f.Closed
		default:
			continue
		}
		v.by[u] = r
		delete(v.retry, u)
		changed = true
	}
	if !changed {
		return nil
	}
	return v.write()
}

// File holds the verifications since the boot.
func File(p config.Paths) string { return filepath.Join(p.Run, "verified.json") }

// write keeps all results.
func (v *Verifier) write() error {
	all := make([]result, 0, len(v.by))
	for _, r := range v.by {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b result) int { return cmp.Compare(a.UUID, b.UUID) })
	return store.WriteJSON(v.File, all)
}

// Read takes over the results of an earlier agent. After an error there are none, and the
// file is renamed.
func (v *Verifier) Read() error {
	all, err := store.Store[[]result]{Path: v.File}.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w: what it says is found again (gpuslot verify)", err), store.Aside(v.File))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, r := range all {
		if u, err := gpu.ParseUUID(r.UUID); err == nil {
			v.by[u] = r
		}
	}
	return nil
}
