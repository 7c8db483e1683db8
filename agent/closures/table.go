package closures

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/gpuslot/gpuslot/agent/store"
	"github.com/gpuslot/gpuslot/gpu"
)

// schema is the first field of the file. With another one, all GPUs are closed. Earlier
// versions called closures holds, and the names in the file stay.
const schema = "gpuslot-holds/1"

// state is what the file has.
type state struct {
	Schema string `json:"schema"`
	List   List   `json:"holds"`
	// Node is there while the node does not serve.
	Node *Node `json:"node,omitempty"`
}

func read(path string) (state, error) {
	f, err := store.Store[state]{Path: path, Schema: schema}.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return state{Schema: schema}, nil
	}
	return f, err
}

// IsQuiet says whether the file says that an operator quiesced the node, whose driver
// may be about to be unloaded. A file that cannot be read closes the GPUs, and no more.
func IsQuiet(path string) bool {
	f, err := read(path)
	return err == nil && f.Node != nil && f.Node.Quiet()
}

// Table has the closures of operators and sites, and the state of the node. They are on
// disk and outlive agents and reboots.
type Table struct {
	path string
	// changing is held by one change at a time, from its decision until it is on
	// disk, and taken before mu.
	changing sync.Mutex

	// mu is never held over I/O: jobs start, and startds are answered, while a disk
	// is slow.
	mu    sync.Mutex
	state state
	// unreadable is why the file could not be read; then everything is closed.
	unreadable error
}

// NewTable returns an empty table that is kept in a file. Read reads the file.
func NewTable(path string) *Table {
	return &Table{path: path, state: state{Schema: schema}}
}

// now is what applies at this moment.
func (t *Table) now() (state, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state, t.unreadable
}

// follow makes a state the one that applies. The caller holds changing.
func (t *Table) follow(s state) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state, t.unreadable = s, nil
}

// Read reads what an earlier agent wrote. If that fails all GPUs are closed.
func (t *Table) Read() error {
	t.changing.Lock()
	defer t.changing.Unlock()
	s, err := read(t.path)
	if err == nil {
		t.follow(s)
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unreadable = err
	return err
}

// ReadAgain reads the file again if it could not be read before.
func (t *Table) ReadAgain() error {
	if _, unreadable := t.now(); unreadable == nil {
		return nil
	}
	return t.Read()
}

// Close closes a GPU. It is closed also if that cannot be written, which is the error.
func (t *Table) Close(c Closure) error {
	t.changing.Lock()
	defer t.changing.Unlock()
	next, unreadable := t.now()
	on := next.List.On(c.GPU)
	if owners := on.Owners(); len(owners) >= maxOwners && !slices.Contains(owners, c.Owner) {
		return fmt.Errorf("%d owners closed it already (%v): open it for those that are gone", len(owners), owners)
	}
	next.List = next.List.With(c)
	if unreadable != nil {
		return fmt.Errorf("all GPUs are closed, because %s", unknown(unreadable))
	}
	t.follow(next)
	if err := t.write(next); err != nil {
		return fmt.Errorf("it is closed until gpuslotd ends, and not longer: %w", err)
	}
	return nil
}

// Open takes away an owner's closure of a GPU or, with override, everybody's. It returns
// what it took away and what still closes the GPU. The text of an error follows the name
// of the GPU.
func (t *Table) Open(u gpu.UUID, owner string, override bool) (lifted, left List, err error) {
	t.changing.Lock()
	defer t.changing.Unlock()
	was, unreadable := t.now()
	if unreadable != nil && !override {
		return nil, nil, errors.New("stays closed: " + unknown(unreadable))
	}
	rest, lifted, err := was.List.Lift(u, owner, override)
	if err != nil || len(lifted) == 0 && unreadable == nil {
		return nil, rest.On(u), err
	}
	next := was
	next.List = rest
	if unreadable != nil {
		err = store.Aside(t.path)
	}
	if err == nil {
		err = t.write(next)
	}
	if err != nil {
		return nil, was.List.On(u), fmt.Errorf("stays closed, because its opening cannot be kept: %w", err)
	}
	t.follow(next)
	return lifted, rest.On(u), nil
}

// On returns all closures of a device with these names, that of the node too.
func (t *Table) On(names ...gpu.UUID) List {
	s, unreadable := t.now()
	if unreadable != nil {
		return List{{Owner: OwnerAgent, GPU: names[0], Reason: unknown(unreadable)}}
	}
	out := s.List.On(names...)
	if s.Node != nil {
		out = append(out, s.Node.closure())
	}
	return out
}

// Node returns the state of the whole node; its zero value is one that serves.
func (t *Table) Node() Node {
	s, _ := t.now()
	if s.Node == nil {
		return Node{}
	}
	return *s.Node
}

// SetNode writes another state of the node. Nothing changes if that fails.
func (t *Table) SetNode(n Node) error {
	return t.replace(func(s *state) {
		s.Node = &n
		if n.Phase == Serving {
			s.Node = nil
		}
	})
}

// Serve ends what kept the node out of service, but for the GPUs that failed now.
func (t *Table) Serve(failed []Closure) error {
	return t.replace(func(s *state) {
		s.Node = nil
		s.List = slices.DeleteFunc(slices.Clone(s.List), func(c Closure) bool { return c.Owner == OwnerNode })
		for _, c := range failed {
			s.List = s.List.With(c)
		}
	})
}

// replace writes a changed state and then follows it.
func (t *Table) replace(change func(*state)) error {
	t.changing.Lock()
	defer t.changing.Unlock()
	next, unreadable := t.now()
	if unreadable != nil {
		return errors.New(unknown(unreadable))
	}
	change(&next)
	if err := t.write(next); err != nil {
		return fmt.Errorf("the node's state cannot be kept: %w", err)
	}
	t.follow(next)
	return nil
}

// unknown says why everything is closed.
func unknown(unreadable error) string {
	return fmt.Sprintf("which GPUs are held closed is not known (%v): "+
		"mend the file and reload gpuslotd, or open all: gpuslot gpu open all --override", unreadable)
}

// write writes the file. The caller holds changing.
func (t *Table) write(s state) error {
	if s.List == nil {
		s.List = List{}
	}
	return store.WriteJSON(t.path, s)
}
