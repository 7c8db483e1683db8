package mig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// journalSchema is the first field of every journal; another one is not touched.
const journalSchema = "gpuslot-mig/1"

// Wanted is what one GPU should have.
type Wanted struct {
	// Enabled is the MIG mode.
	Enabled bool `json:"enabled"`
	// Layout are the instances; foreign ones that are left alone may stand beside.
	Layout gpu.Layout `json:"layout,omitempty"`
}

// Owned is an instance that gpuslot made. With the journal's GPU it is found again
// by its place: the driver's ids and UUIDs are reused.
type Owned struct {
	gpu.Place
	// Generation tells instances at one place apart over time.
	Generation int `json:"generation"`
}

// Change is the journal of a change that has not ended.
type Change struct {
	// Former is what was there of ours when it began.
	Former Wanted `json:"former"`
	Wanted Wanted `json:"wanted"`
	// Back: the change failed and is being undone.
	Back bool `json:"back,omitempty"`
	// Step was about to be done when this was written.
	Step *Step `json:"step,omitempty"`
}

// Journal is what gpuslot knows of one GPU's instances: which are its own, what
// should be there, and the change under way. It is written and synced before
// every step, so that a process that is killed leaves a journal that tells.
type Journal struct {
	Schema string   `json:"schema"`
	GPU    gpu.UUID `json:"gpu"`
	// Boot is the boot that owned instances belong to: none outlives it.
	Boot string `json:"boot,omitempty"`
	// Generation is that of the newest instance.
	Generation int     `json:"generation"`
	Owned      []Owned `json:"owned,omitempty"`
	// Applied is what was reached last, to be made again after a boot.
	Applied *Wanted `json:"applied,omitempty"`
	// Change is the journal; nil when nothing is under way.
	Change *Change `json:"change,omitempty"`
	// Degraded is why neither the wanted nor the former layout could be reached.
	Degraded string `json:"degraded,omitempty"`
}

// JournalFile is where a GPU's journal lies below the state directory.
func JournalFile(dir string, u gpu.UUID) string { return filepath.Join(dir, "mig", u.String()+".json") }

// ReadJournal reads a GPU's journal; without one it is empty.
func ReadJournal(dir string, u gpu.UUID) (Journal, error) {
	path := JournalFile(dir, u)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Journal{Schema: journalSchema, GPU: u}, nil
	}
	if err != nil {
		return Journal{}, err
	}
	journal, err := parseJournal(b)
	if err == nil && journal.GPU != u {
		err = fmt.Errorf("it is of %s", journal.GPU)
	}
	if err != nil {
		return Journal{}, fmt.Errorf("%s: %w; the GPU's instances are left alone until the file is mended, or removed: "+
			"then they all count as foreign", path, err)
	}
	return journal, nil
}

func parseJournal(b []byte) (Journal, error) {
	var journal Journal
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&journal); err != nil {
		return Journal{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) { // More would take a bracket for an end
		return Journal{}, errors.New("there is more than one journal, or text after its end")
	}
	if journal.Schema != journalSchema {
		return Journal{}, fmt.Errorf("schema is %q, this gpuslot reads %q", foreign.Clip(journal.Schema), journalSchema)
	}
	if c := journal.Change; journal.GPU == "" || c != nil && c.Step != nil && c.Step.GPU != journal.GPU {
		return Journal{}, errors.New("it names no GPU, or a step of another one")
	}
	journal.sort()
	return journal, nil
}

// sort keeps layouts as NewLayout makes them, also those of an edited file.
func (b *Journal) sort() {
	slices.SortFunc(b.Owned, func(x, y Owned) int { return gpu.Place.Compare(x.Place, y.Place) })
	b.Owned = slices.CompactFunc(b.Owned, func(x, y Owned) bool { return x.Place == y.Place })
	wanted := []*Wanted{b.Applied}
	if b.Change != nil {
		wanted = append(wanted, &b.Change.Former, &b.Change.Wanted)
	}
	for _, w := range wanted {
		if w != nil && len(w.Layout) > 0 {
			w.Layout = gpu.NewLayout(w.Layout...)
		}
	}
}

// Owns tells whether the instance at a place is ours, and its generation.
func (b Journal) Owns(p gpu.Place) (generation int, ours bool) {
	for _, o := range b.Owned {
		if o.Place == p {
			return o.Generation, true
		}
	}
	return 0, false
}

// own writes down an instance that was made.
func (b *Journal) own(p gpu.Place) {
	b.disown(p)
	b.Generation++
	b.Owned = append(b.Owned, Owned{Place: p, Generation: b.Generation})
	b.sort()
}

func (b *Journal) disown(p gpu.Place) {
	b.Owned = slices.DeleteFunc(b.Owned, func(o Owned) bool { return o.Place == p })
}

// settle holds the journal against the hardware: it forgets what is gone, takes
// what the step in the journal made, and marks the owner of each instance.
func (b *Journal) settle(s gpu.MIGState, boot string) gpu.MIGState {
	if b.Boot != boot {
		b.Owned, b.Boot = nil, boot // every instance of the former boot is gone
		if b.Change != nil {
			b.Change.Step = nil
		}
	}
	b.Owned = slices.DeleteFunc(b.Owned, func(o Owned) bool {
		_, there := s.At(o.Place)
		return !there
	})
	if c := b.Change; c != nil && c.Step != nil && c.Step.Verb == Create {
		_, there := s.At(c.Step.Place)
		if _, ours := b.Owns(c.Step.Place); there && !ours {
			b.own(c.Step.Place) // the place was free when the step was written
		}
	}
	s.Instances = slices.Clone(s.Instances)
	for i := range s.Instances {
		s.Instances[i].Owner = gpu.Foreign
		if _, ours := b.Owns(s.Instances[i].Place); ours {
			s.Instances[i].Owner = gpu.Ours
		}
	}
	return s
}

// write replaces the file: readers, and whoever comes after a crash, see the
// old text or the new one.
func (b Journal) write(dir string) error {
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	path := JournalFile(dir, b.GPU)
	if err := writeSynced(path, append(text, '\n')); err != nil {
		return fmt.Errorf("write the journal %s: %w", path, err)
	}
	return nil
}

func writeSynced(path string, text []byte) (err error) {
	d, err := os.Open(filepath.Dir(path)) // before anything is written: without it the new name is not synced
	if err != nil {
		return err
	}
	defer d.Close()
	temp := path + ".new"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	_, errWrite := f.Write(text)
	if err := errors.Join(errWrite, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return d.Sync()
}

// lockGPU keeps a second gpuslot away from a GPU until unlock, or until this
// process ends.
func lockGPU(dir string, u gpu.UUID) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Join(dir, "mig"), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "mig", u.String()+".lock"), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if by, ok := process.LockHolder(f); ok {
			return nil, fmt.Errorf("another gpuslot changes the layout of %s now: %s", u, by.Advice())
		}
		return nil, fmt.Errorf("another gpuslot changes the layout of %s now; try again when it is done (%w)", u, err)
	}
	return func() { f.Close() }, nil
}
