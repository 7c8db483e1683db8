// Package closures knows who closed which GPU and why, and takes a whole node out of
// service and back. A closed GPU takes no new jobs; jobs that run on it go on. Operators
// and a site's programs close GPUs (gpuslot gpu close), each under a name of its own, and
// a GPU is open once each of them has opened it again. Start at Table.
package closures

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Closure is one owner's statement that a GPU takes no new jobs, and why.
type Closure struct {
	// GPU is a GPU or a MIG device; closing a GPU closes its MIG devices too.
	GPU gpu.UUID `json:"gpu"`
	// Owner alone may open it, or an operator with --override.
	Owner  string `json:"owner"`
	Reason string `json:"reason"`
	// Since is when the owner closed the GPU; a new reason does not change it.
	// Zero if unknown.
	Since time.Time `json:"since,omitzero"`
}

// The owners that are not a site's own programs.
const (
	// OwnerOperator is who gives no other name.
	OwnerOperator = history.ByOperator
	// OwnerAgent closes by what it sees and opens by itself; an operator may
	// override.
	OwnerAgent = history.ByAgent
	// OwnerNode closes all GPUs of a node that is being quiesced.
	OwnerNode = "node"
)

// List has closures ordered by GPU and owner. It is a value: each step makes the next.
type List []Closure

// With adds a closure, or gives the owner's closure of the same GPU its new reason.
func (l List) With(n Closure) List {
	out := slices.Clone(l)
	if i := slices.IndexFunc(out, n.same); i >= 0 {
		n.Since = out[i].Since
		out[i] = n
		return out
	}
	out = append(out, n)
	slices.SortStableFunc(out, Closure.compare)
	return out
}

func (c Closure) same(o Closure) bool { return c.compare(o) == 0 }

func (c Closure) compare(o Closure) int {
	return cmp.Or(cmp.Compare(c.GPU, o.GPU), cmp.Compare(c.Owner, o.Owner))
}

// On returns the closures of a device. Names are those that it is known by, such as its
// own UUID and that of the GPU of which it is a part.
func (l List) On(names ...gpu.UUID) List {
	var out List
	for _, c := range l {
		if slices.Contains(names, c.GPU) {
			out = append(out, c)
		}
	}
	return out
}

// Lift takes away an owner's closure of a GPU or, with override, everybody's. The error
// names who closed a GPU that this owner did not close.
func (l List) Lift(u gpu.UUID, owner string, override bool) (rest, lifted List, err error) {
	for _, c := range l {
		if c.GPU == u && (override || c.Owner == owner) {
			lifted = append(lifted, c)
		} else {
			rest = append(rest, c)
		}
	}
	if left := rest.On(u); len(lifted) == 0 && len(left) > 0 {
		return l, nil, fmt.Errorf("is %s: only its owner (--owner) or --override opens it", left.Reason())
	}
	return rest, lifted, nil
}

// For returns the closures that apply to a job whose starter was started then, in clock
// ticks since boot. A job that HTCondor started before an owner closed the GPU is one of
// its running jobs, even if its hook asks a moment later.
func (l List) For(started uint64) List {
	return slices.DeleteFunc(slices.Clone(l), func(c Closure) bool {
		closed, err := process.TicksAt(c.Since)
		return err == nil && !c.Since.IsZero() && started < closed
	})
}

// Owners returns who closed a GPU, each once.
func (l List) Owners() []string {
	var out []string
	for _, c := range l {
		out = append(out, c.Owner)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Reason says who closed a GPU and why, for status, ads and refusals; empty without
// closures.
func (l List) Reason() string {
	words := make([]string, 0, len(l))
	for _, c := range l {
		words = append(words, c.String())
	}
	return strings.Join(words, "; ")
}

// ReasonAnd is Reason and what else closes the GPU, which may be empty.
func (l List) ReasonAnd(other string) string {
	switch why := l.Reason(); {
	case why == "":
		return other
	case other == "":
		return why
	default:
		return why + "; and " + other
	}
}

func (c Closure) String() string {
	since := ""
	if !c.Since.IsZero() {
		since = " since " + c.Since.Format(time.DateTime)
	}
	return fmt.Sprintf("closed by %s%s: %s", c.Owner, since, c.Reason)
}
