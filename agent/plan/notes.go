package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
)

// notes collects errors and warnings. What is said of several GPUs in the same
// words becomes one sentence, in the order of its first GPU.
type notes struct {
	// total is the number of GPUs of the node.
	total          int
	failed, warned sentences
}

type sentences struct {
	order []string
	gpus  map[string][]gpu.UUID
}

func (s *sentences) add(u gpu.UUID, text string) {
	if s.gpus == nil {
		s.gpus = map[string][]gpu.UUID{}
	}
	if _, seen := s.gpus[text]; !seen {
		s.order = append(s.order, text)
	}
	if !slices.Contains(s.gpus[text], u) { // MIG devices speak of their GPU
		s.gpus[text] = append(s.gpus[text], u)
	}
}

// fail notes an impossible wish; an empty UUID means the node.
func (n *notes) fail(u gpu.UUID, format string, args ...any) {
	n.failed.add(u, fmt.Sprintf(format, args...))
}

func (n *notes) warn(u gpu.UUID, format string, args ...any) {
	n.warned.add(u, fmt.Sprintf(format, args...))
}

func (n *notes) err() error {
	var errs []error
	for _, s := range n.list(n.failed) {
		errs = append(errs, errors.New(s))
	}
	return errors.Join(errs...)
}

func (n *notes) warnings() []string { return n.list(n.warned) }

func (n *notes) list(s sentences) []string {
	var out []string
	for _, text := range s.order {
		if gpus := s.gpus[text]; gpus[0] != "" {
			text = n.subject(gpus) + ": " + text
		}
		out = append(out, text)
	}
	return out
}

// subject names the GPUs a sentence is about.
func (n *notes) subject(gpus []gpu.UUID) string {
	switch {
	case len(gpus) <= 2:
		return joinUUIDs(gpus)
	case len(gpus) == n.total:
		return fmt.Sprintf("all %d GPUs", n.total)
	}
	return fmt.Sprintf("%d GPUs (%s)", len(gpus), joinUUIDs(gpus))
}

func joinUUIDs(us []gpu.UUID) string {
	names := make([]string, len(us))
	for i, u := range us {
		names[i] = string(u)
	}
	return strings.Join(names, ", ")
}
