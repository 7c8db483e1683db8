package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/store"
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

func holdsStore(path string) store.Store[heldFile] {
	return store.Store[heldFile]{Path: path, Schema: holdsSchema}
}

func readHolds(path string) (heldFile, error) {
	f, err := holdsStore(path).Read()
	if errors.Is(err, fs.ErrNotExist) {
		return heldFile{Schema: holdsSchema}, nil
	}
	return f, err
}

// holdStore has the holds of operators and sites, which are on disk. Jobs start,
// and startds are answered, while a disk does not: mu is never held over I/O.
type holdStore struct {
	path string
	// changing is held by one change at a time, from its decision until it is on
	// disk, and taken before mu.
	changing sync.Mutex

	mu   sync.Mutex
	file heldFile
	// unreadable is why the file could not be read; then everything is closed.
	unreadable error
}

func newHoldStore(path string) *holdStore {
	return &holdStore{path: path, file: heldFile{Schema: holdsSchema}}
}

// now is what holds in this moment.
func (s *holdStore) now() (heldFile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file, s.unreadable
}

// follow makes a file the one that holds. The caller holds changing.
func (s *holdStore) follow(f heldFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file, s.unreadable = f, nil
}

// read takes up what an earlier agent kept.
func (s *holdStore) read() error {
	s.changing.Lock()
	defer s.changing.Unlock()
	f, err := readHolds(s.path)
	if err == nil {
		s.follow(f)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unreadable = err
	return err
}

// mend reads the file again if it could not be read before.
func (s *holdStore) mend() error {
	if _, unreadable := s.now(); unreadable == nil {
		return nil
	}
	return s.read()
}

// set closes a GPU. It is closed also if that cannot be kept, which is the error.
func (s *holdStore) set(n Hold) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	next, unreadable := s.now()
	on := next.Holds.On(n.GPU)
	if owners := on.Owners(); len(owners) >= maxOwners && !slices.Contains(owners, n.Owner) {
		return fmt.Errorf("%d owners hold it already (%v): open it for those that are gone", len(owners), owners)
	}
	next.Holds = next.Holds.With(n)
	if unreadable != nil {
		return fmt.Errorf("all GPUs are closed, because %s", unknownHolds(unreadable))
	}
	s.follow(next)
	if err := s.write(next); err != nil {
		return fmt.Errorf("it is closed until gpuslotd ends, and not longer: %w", err)
	}
	return nil
}

// lift takes an owner's holds of a GPU away, or everybody's. An error goes on after
// the name of the GPU.
func (s *holdStore) lift(u gpu.UUID, owner string, override bool) (lifted, left Holds, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	was, unreadable := s.now()
	if unreadable != nil && !override {
		return nil, nil, errors.New("stays closed: " + unknownHolds(unreadable))
	}
	rest, lifted, err := was.Holds.Lift(u, owner, override)
	if err != nil || len(lifted) == 0 && unreadable == nil {
		return nil, rest.On(u), err
	}
	next := was
	next.Holds = rest
	if unreadable != nil {
		err = store.Aside(s.path)
	}
	if err == nil {
		err = s.write(next)
	}
	if err != nil {
		return nil, was.Holds.On(u), fmt.Errorf("stays closed, because its opening cannot be kept: %w", err)
	}
	s.follow(next)
	return lifted, rest.On(u), nil
}

// on are all holds of a device with these names.
func (s *holdStore) on(names ...gpu.UUID) Holds {
	f, unreadable := s.now()
	if unreadable != nil {
		return Holds{{Owner: OwnerAgent, GPU: names[0], Reason: unknownHolds(unreadable)}}
	}
	out := f.Holds.On(names...)
	if f.Node != nil {
		out = append(out, f.Node.hold())
	}
	return out
}

// node is the state of the whole node; its zero value is one that serves.
func (s *holdStore) node() nodeState {
	f, _ := s.now()
	if f.Node == nil {
		return nodeState{}
	}
	return *f.Node
}

// setNode keeps another state of the node; nothing changes if it cannot be kept.
func (s *holdStore) setNode(n nodeState) error {
	return s.replace(func(f *heldFile) {
		f.Node = &n
		if n.Phase == nodeServes {
			f.Node = nil
		}
	})
}

// serve ends what kept the node out of service, but for the GPUs that failed now.
func (s *holdStore) serve(failed []Hold) error {
	return s.replace(func(f *heldFile) {
		f.Node = nil
		f.Holds = slices.DeleteFunc(slices.Clone(f.Holds), func(h Hold) bool { return h.Owner == OwnerNode })
		for _, h := range failed {
			f.Holds = f.Holds.With(h)
		}
	})
}

// replace keeps a changed file and then follows it.
func (s *holdStore) replace(change func(*heldFile)) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	next, unreadable := s.now()
	if unreadable != nil {
		return errors.New(unknownHolds(unreadable))
	}
	change(&next)
	if err := s.write(next); err != nil {
		return fmt.Errorf("the node's state cannot be kept: %w", err)
	}
	s.follow(next)
	return nil
}

// unknownHolds says why everything is closed.
func unknownHolds(unreadable error) string {
	return fmt.Sprintf("which GPUs are held closed is not known (%v): mend the file and reload gpuslotd, or open all: gpuslot gpu open all --override", unreadable)
}

// write keeps the holds. The caller holds changing.
func (s *holdStore) write(f heldFile) error {
	if f.Holds == nil {
		f.Holds = Holds{}
	}
	return store.WriteJSON(s.path, f)
}
