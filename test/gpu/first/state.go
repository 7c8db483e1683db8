package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/gpuslot/gpuslot/test/gpu/truth"
)

// state is what the next call must know. It travels with the results.
type state struct {
	// ID marks the processes of this run.
	ID    string `json:"id"`
	Calls int    `json:"calls"`
	// Scale is not 1 in rehearsals.
	Scale  float64     `json:"scale"`
	Doubts []string    `json:"doubts"`
	Parts  []*progress `json:"parts"`
}

// progress is how far a part came.
type progress struct {
	Name    string   `json:"name"`
	State   string   `json:"state"`
	Call    int      `json:"call"`
	Tries   int      `json:"tries"`
	Seconds float64  `json:"seconds"`
	Error   string   `json:"error,omitempty"`
	Left    []string `json:"left,omitempty"`
}

// The states of a part. One that is running when a call begins was cut off.
const (
	running    = "running"
	finished   = "finished"
	failed     = "failed"
	cut        = "cut off"
	impossible = "impossible"
)

// mostTries is how often a part is begun that never ends.
const mostTries = 3

func (p *progress) over() bool {
	return p.State == finished || p.State == failed || p.Tries >= mostTries
}

// union is all of both, each once.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// part is a part's progress.
func (s *state) part(name string) *progress {
	i := slices.IndexFunc(s.Parts, func(p *progress) bool { return p.Name == name })
	if i < 0 {
		s.Parts = append(s.Parts, &progress{Name: name})
		i = len(s.Parts) - 1
	}
	return s.Parts[i]
}

const stateFile = "first.json"

// open makes the directories. A call for the rest takes up what the last one on
// this machine left, else what the results say that lie in OUT or in the folder.
func (c *call) open() error {
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	if c.rest {
		if err := c.takeUp(); err != nil {
			return err
		}
	} else if err := setAside(c.raw); err != nil {
		return err
	}
	if err := os.MkdirAll(c.raw, 0o700); err != nil {
		return err
	}
	if err := own(c.raw); err != nil {
		return err
	}
	if c.state.ID == "" {
		c.state.ID = rand.Text()
	}
	c.state.Calls++
	c.state.Scale = c.scale
	if err := os.MkdirAll(filepath.Join(c.raw, "logs"), 0o755); err != nil {
		return err
	}
	return c.save()
}

func (c *call) takeUp() error {
	if _, err := os.Stat(filepath.Join(c.raw, stateFile)); err != nil {
		var unread []error
		for _, dir := range []string{c.out, c.bundle} {
			err := unpack(filepath.Join(dir, packed), c.raw)
			if err == nil {
				unread = nil
				break
			}
			unread = append(unread, err)
		}
		if err := errors.Join(unread...); err != nil {
			return fmt.Errorf("there is nothing to go on from: %w; put results.tgz of the call before into OUT or beside first.sh, or leave --rest out", err)
		}
	}
	if err := own(c.raw); err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(c.raw, stateFile))
	if err != nil {
		return err
	}
	return json.Unmarshal(b, &c.state)
}

// setAside keeps the results of an earlier run.
func setAside(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for i := 1; ; i++ {
		name := fmt.Sprintf("%s.before-%d", dir, i)
		if _, err := os.Lstat(name); errors.Is(err, os.ErrNotExist) {
			return os.Rename(dir, name)
		}
	}
}

// own: the directory has a name that others can guess.
func own(dir string) error {
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !st.IsDir() || !ok || int(sys.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a directory of this account: remove it", dir)
	}
	return nil
}

// save writes the state, whole or not at all.
func (c *call) save() error {
	b, err := json.MarshalIndent(c.state, "", " ")
	name := filepath.Join(c.raw, stateFile)
	if err == nil {
		err = os.WriteFile(name+".new", append(b, '\n'), 0o644)
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		c.say("write %s: %v", stateFile, err)
	}
	return err
}

// notMade are a part's trials without an outcome, or with one that was cut off.
func (c *call) notMade(p part) (ids []string) {
	for _, id := range p.trials {
		var o truth.Outcome
		b, err := os.ReadFile(filepath.Join(c.raw, p.dir, id+".json"))
		if err == nil {
			err = json.Unmarshal(b, &o)
		}
		if err != nil || o.Cut {
			ids = append(ids, id)
		}
	}
	return ids
}
