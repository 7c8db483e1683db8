package agent

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Hold is one owner's word that a GPU takes no new jobs, and why. A GPU is open
// only when nobody holds it; jobs that run are left alone. (HTCondor's hold of a
// job is api.Hold.)
type Hold struct {
	// GPU is a GPU or a MIG device; a GPU's hold holds its MIG devices too.
	GPU gpu.UUID `json:"gpu"`
	// Owner alone may lift it, or an operator who overrides.
	Owner  string `json:"owner"`
	Reason string `json:"reason"`
	// Since is when the owner closed the GPU; a new reason does not change it.
	// Zero if unknown.
	Since time.Time `json:"since,omitzero"`
}

// The owners that are not a site's own programs.
const (
	// OwnerOperator is who gives no other name.
	OwnerOperator = "operator"
	// OwnerAgent closes by what it sees and opens by itself; an operator may
	// override.
	OwnerAgent = "agent"
	// OwnerNode holds all GPUs of a node that is being quiesced.
	OwnerNode = "node"
)

// Holds are those of a node by GPU and owner. It is a value: each step makes the
// next.
type Holds []Hold

// With adds a hold, or gives the owner's hold of the same GPU its new reason.
func (h Holds) With(n Hold) Holds {
	out := slices.Clone(h)
	if i := slices.IndexFunc(out, n.same); i >= 0 {
		n.Since = out[i].Since
		out[i] = n
		return out
	}
	out = append(out, n)
	slices.SortStableFunc(out, Hold.compare)
	return out
}

func (h Hold) same(o Hold) bool { return h.compare(o) == 0 }

func (h Hold) compare(o Hold) int {
	return cmp.Or(cmp.Compare(h.GPU, o.GPU), cmp.Compare(h.Owner, o.Owner))
}

// On are the holds of a device; it is known by the names, such as its own UUID
// and that of the GPU of which it is a part.
func (h Holds) On(names ...gpu.UUID) Holds {
	var out Holds
	for _, o := range h {
		if slices.Contains(names, o.GPU) {
			out = append(out, o)
		}
	}
	return out
}

// Lift takes away an owner's holds of a GPU or, with override, everybody's. An
// error says who holds a GPU on which this owner has no hold.
func (h Holds) Lift(u gpu.UUID, owner string, override bool) (rest, lifted Holds, err error) {
	for _, o := range h {
		if o.GPU == u && (override || o.Owner == owner) {
			lifted = append(lifted, o)
		} else {
			rest = append(rest, o)
		}
	}
	if left := rest.On(u); len(lifted) == 0 && len(left) > 0 {
		return h, nil, fmt.Errorf("is %s: only its owner (--owner) or --override opens it", left.Reason())
	}
	return rest, lifted, nil
}

// Owners are those who hold, each once.
func (h Holds) Owners() []string {
	var out []string
	for _, o := range h {
		out = append(out, o.Owner)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// forStatus are the holds as operators see them.
func (h Holds) forStatus() []api.GPUHold {
	var out []api.GPUHold
	for _, o := range h {
		out = append(out, api.GPUHold{Owner: o.Owner, Reason: o.Reason, Since: o.Since})
	}
	return out
}

// Reason says who holds and why, for status, ads and refusals; empty without holds.
func (h Holds) Reason() string {
	words := make([]string, 0, len(h))
	for _, o := range h {
		words = append(words, o.String())
	}
	return strings.Join(words, "; ")
}

func (h Hold) String() string {
	since := ""
	if !h.Since.IsZero() {
		since = " since " + h.Since.Format(time.DateTime)
	}
	return fmt.Sprintf("closed by %s%s: %s", h.Owner, since, h.Reason)
}

// maxReason bounds what an owner may write into every slot ad, in runes.
const maxReason = 300

// maxOwners bounds the owners of one GPU's holds, and with them metrics.
const maxOwners = 16

var ownerName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,31}$`)

// checkHold refuses what no owner outside the agent may say, and makes the
// reason one line.
func checkHold(owner, reason string) (string, error) {
	if err := checkOwner(owner); err != nil {
		return "", err
	}
	reason = strings.Join(strings.FieldsFunc(reason, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar }), " ")
	switch {
	case reason == "":
		return "", errors.New("a closed GPU needs a reason, for those who wonder later: --reason TEXT")
	case len([]rune(reason)) > maxReason:
		return "", fmt.Errorf("the reason has more than %d characters: say it shorter", maxReason)
	}
	return reason, nil
}

func checkOwner(owner string) error {
	switch {
	case owner == OwnerAgent || owner == OwnerNode:
		return fmt.Errorf("the owner %q is gpuslot's own: use another name, such as that of the program which closes", owner)
	case !ownerName.MatchString(owner):
		return fmt.Errorf("the owner %q is no name: up to 32 small letters, digits, dots, dashes and underscores, such as node-health", foreign.Clip(owner))
	}
	return nil
}
