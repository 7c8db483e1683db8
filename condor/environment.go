package condor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Environment is a job's environment: variables in the order of their first
// mention; a later mention of the same name wins, as in HTCondor. The zero
// value is empty.
type Environment struct {
	names  []string
	values map[string]string
}

// ParseEnvironment reads HTCondor's second syntax as it stands in the job ad's
// Environment: NAME=value between blanks; 'single quotes' keep blanks, and two
// of them inside stand for one (condor_submit(1), split_args in
// condor_arglist.cpp).
func ParseEnvironment(v2 string) (Environment, error) {
	var e Environment
	for s := v2; ; {
		entry, rest, ok, err := cutEntry(s)
		if err != nil || !ok {
			return e, err
		}
		if err := e.add(entry); err != nil {
			return e, err
		}
		s = rest
	}
}

// ParseEnvironmentV1 reads the first syntax, the job ad's Env: NAME=value
// between delimiters, with no way to quote. An empty delimiter means ";".
func ParseEnvironmentV1(v1, delimiter string) (Environment, error) {
	if delimiter == "" {
		delimiter = ";"
	}
	var e Environment
	for entry := range strings.SplitSeq(v1, delimiter[:1]) {
		entry = strings.TrimLeft(entry, " \t\r\n")
		if entry == "" {
			continue
		}
		if err := e.add(entry); err != nil {
			return e, err
		}
	}
	return e, nil
}

// cutEntry splits off one entry with its quoting undone; ok is false if
// nothing but blanks is left.
func cutEntry(s string) (entry, rest string, ok bool, err error) {
	s = strings.TrimLeft(s, blanks)
	if s == "" {
		return "", "", false, nil
	}
	var b strings.Builder
	for s != "" && strings.IndexByte(blanks, s[0]) < 0 {
		if s[0] != '\'' {
			b.WriteByte(s[0])
			s = s[1:]
			continue
		}
		end := strings.IndexByte(s[1:], '\'') + 1
		if end == 0 {
			return "", "", false, fmt.Errorf("the environment has a single quote without its second one: %s", foreign.Clip(s))
		}
		b.WriteString(s[1:end])
		if s = s[end+1:]; strings.HasPrefix(s, "'") {
			b.WriteByte('\'') // two in a row: a literal one, and the quoted part goes on
			continue
		}
	}
	return b.String(), s, true, nil
}

const blanks = " \t\n\r"

func (e *Environment) add(entry string) error {
	name, value, ok := strings.Cut(entry, "=")
	if !ok || name == "" {
		return fmt.Errorf("the environment's entry %q is not of the form NAME=value", foreign.Clip(entry))
	}
	e.Set(name, value)
	return nil
}

// Lookup is the value of a variable.
func (e Environment) Lookup(name string) (value string, ok bool) {
	value, ok = e.values[name]
	return value, ok
}

// Names are the variables in order.
func (e Environment) Names() []string { return slices.Clone(e.names) }

// Set sets a variable.
func (e *Environment) Set(name, value string) {
	if e.values == nil {
		e.values = map[string]string{}
	}
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

// With is e as an admitted job gets it: without the job's own CUDA_MPS_* and
// CUDA_VISIBLE_DEVICES, with all of set, and with those of defaults that the
// job does not have. e stays as it is.
func (e Environment) With(set, defaults map[string]string) Environment {
	var out Environment
	for _, name := range e.names {
		if !Reserved(name) {
			out.Set(name, e.values[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		out.Set(name, set[name])
	}
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		if _, ok := out.Lookup(name); !ok {
			out.Set(name, defaults[name])
		}
	}
	return out
}

// Reserved reports whether a variable is never taken over from a job: it
// chooses the GPU, or the control daemon and its limits.
func Reserved(name string) bool {
	return name == "CUDA_VISIBLE_DEVICES" || strings.HasPrefix(name, "CUDA_MPS_")
}

// String is e in the second syntax, as ParseEnvironment reads it.
func (e Environment) String() string {
	var b strings.Builder
	for i, name := range e.names {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(quoteEntry(name + "=" + e.values[name]))
	}
	return b.String()
}

// quoteEntry quotes what HTCondor itself quotes, and the two blanks that it
// does not treat as blanks.
func quoteEntry(entry string) string {
	if !strings.ContainsAny(entry, blanks+"'\v\f") {
		return entry
	}
	return "'" + strings.ReplaceAll(entry, "'", "''") + "'"
}
