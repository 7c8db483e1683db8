package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

// HoldsFile holds who closed which GPU; it outlives agents and reboots.
func HoldsFile(p config.Paths) string { return filepath.Join(p.State, "holds.json") }

// holdsSchema is the first field of the file; another one closes all GPUs.
const holdsSchema = "gpuslot-holds/1"

// heldFile is what the file holds.
type heldFile struct {
	Schema string `json:"schema"`
	Holds  Holds  `json:"holds"`
	// Node is there while the node does not serve.
	Node *nodeState `json:"node,omitempty"`
}

func readHolds(path string) (heldFile, error) {
	f := heldFile{Schema: holdsSchema}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return f, fmt.Errorf("%s: %w", path, err)
	}
	if f.Schema != holdsSchema {
		return f, fmt.Errorf("%s: schema is %q, this gpuslot reads %q", path, clip(f.Schema), holdsSchema)
	}
	return f, nil
}

// holdStore has the holds of operators and sites, which are on disk.
type holdStore struct {
	mu   sync.Mutex
	path string
	file heldFile
	// unreadable is why the file could not be read; then everything is closed.
	unreadable error
}

func newHoldStore(path string) *holdStore {
	return &holdStore{path: path, file: heldFile{Schema: holdsSchema}}
}

// read takes up what an earlier agent kept.
func (s *holdStore) read() error {
	f, err := readHolds(s.path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unreadable = err; err == nil {
		s.file = f
	}
	return err
}

// mend reads the file again if it could not be read before.
func (s *holdStore) mend() error {
	s.mu.Lock()
	lost := s.unreadable != nil
	s.mu.Unlock()
	if !lost {
		return nil
	}
	return s.read()
}

// set closes a GPU. It is closed also if that cannot be kept, which is the error.
func (s *holdStore) set(n Hold) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	on := s.file.Holds.On(n.GPU)
	if owners := on.Owners(); len(owners) >= maxOwners && !slices.Contains(owners, n.Owner) {
		return fmt.Errorf("%d owners hold it already (%v): open it for those that are gone", len(owners), owners)
	}
	next := s.file
	next.Holds = next.Holds.With(n)
	if s.unreadable != nil {
		return fmt.Errorf("all GPUs are closed, because %s", s.unknown())
	}
	s.file = next
	if err := s.write(next); err != nil {
		return fmt.Errorf("it is closed until gpuslotd ends, and not longer: %w", err)
	}
	return nil
}

// lift takes an owner's holds of a GPU away, or everybody's.
func (s *holdStore) lift(u gpu.UUID, owner string, override bool) (lifted, left Holds, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unreadable != nil && !override {
		return nil, nil, errors.New(s.unknown())
	}
	rest, lifted, err := s.file.Holds.Lift(u, owner, override)
	if err != nil || len(lifted) == 0 && s.unreadable == nil {
		return nil, rest.On(u), err
	}
	next := s.file
	next.Holds = rest
	if err := s.write(next); err != nil {
		return nil, s.file.Holds.On(u), fmt.Errorf("it stays closed, because that cannot be kept: %w", err)
	}
	s.file, s.unreadable = next, nil
	return lifted, rest.On(u), nil
}

// on are all holds of a device with these names.
func (s *holdStore) on(names ...gpu.UUID) Holds {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unreadable != nil {
		return Holds{{Owner: OwnerAgent, GPU: names[0], Reason: s.unknown()}}
	}
	out := s.file.Holds.On(names...)
	if s.file.Node != nil {
		out = append(out, s.file.Node.hold())
	}
	return out
}

// node is the state of the whole node; its zero value is one that serves.
func (s *holdStore) node() nodeState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file.Node == nil {
		return nodeState{}
	}
	return *s.file.Node
}

// setNode keeps another state of the node; nothing changes if it cannot be kept.
func (s *holdStore) setNode(n nodeState) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.file
	next.Node = &n
	if n.Phase == nodeServes {
		next.Node = nil
	}
	return s.replace(next)
}

// serve ends what kept the node out of service, but for the GPUs that failed now.
func (s *holdStore) serve(failed []Hold) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.file
	next.Node = nil
	next.Holds = slices.DeleteFunc(slices.Clone(next.Holds), func(h Hold) bool { return h.Owner == OwnerNode })
	for _, h := range failed {
		next.Holds = next.Holds.With(h)
	}
	return s.replace(next)
}

// replace keeps a file and then follows it. The caller holds mu.
func (s *holdStore) replace(next heldFile) error {
	if s.unreadable != nil {
		return errors.New(s.unknown())
	}
	if err := s.write(next); err != nil {
		return fmt.Errorf("the node's state cannot be kept: %w", err)
	}
	s.file = next
	return nil
}

// unknown says why everything is closed. The caller holds mu.
func (s *holdStore) unknown() string {
	return fmt.Sprintf("which GPUs are held closed is not known (%v): mend the file and reload gpuslotd, or open all: gpuslot gpu open all --override", s.unreadable)
}

// write keeps the holds. The caller holds mu.
func (s *holdStore) write(f heldFile) error {
	if f.Holds == nil {
		f.Holds = Holds{}
	}
	return writeJSON(s.path, f)
}
