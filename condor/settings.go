package condor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Setting is one knob of HTCondor's configuration, as the last file that sets it does.
type Setting struct {
	Name string
	// Value has its macros expanded.
	Value string
	// Place is "/etc/condor/config.d/90-site.conf, line 3"; empty for HTCondor's defaults.
	Place string
}

// Settings are all knobs of a node, by their names in lower case.
type Settings map[string]Setting

// InstalledSettings asks condor_config_val, which reads the files as they are now.
func InstalledSettings(ctx context.Context) (Settings, error) {
	out, err := output(ctx, nil, "condor_config_val", "-dump", "-verbose")
	if err != nil {
		return nil, err
	}
	return parseSettings(out), nil
}

// parseSettings reads "condor_config_val -dump -verbose": for each knob the line
// NAME = value, or the lines of NAME @=tag, then comments with its place and expansion.
func parseSettings(dump string) Settings {
	all := Settings{}
	var (
		s       Setting
		tag     string
		expands bool
	)
	for line := range strings.Lines(dump) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case tag != "":
			if line == "@"+tag {
				tag = ""
			}
		case strings.HasPrefix(line, " # at: "):
			if s.Place = strings.TrimPrefix(line, " # at: "); s.Place == "<Default>" {
				s.Place = ""
			}
		case strings.HasPrefix(line, " # expanded:"):
			s.Value, expands = strings.TrimSpace(strings.TrimPrefix(line, " # expanded:")), true
			all[strings.ToLower(s.Name)] = s
		case strings.HasPrefix(line, " # ") && expands && !strings.HasPrefix(line, " # default:"):
			s.Value = strings.TrimSpace(s.Value + "\n" + strings.TrimSpace(strings.TrimPrefix(line, " #")))
			all[strings.ToLower(s.Name)] = s
		case line != "" && line[0] != '#' && line[0] != ' ':
			var assigned string
			s = Setting{}
			s.Name, assigned, _ = strings.Cut(line, " ")
			if end, several := strings.CutPrefix(assigned, "@="); several {
				tag = end
			}
			expands = false
		}
	}
	return all
}

// of is a knob as the startd reads it.
func (s Settings) of(name string) (Setting, bool) {
	for _, n := range []string{startdOnly + name, name} {
		if set, ok := s[strings.ToLower(n)]; ok {
			return set, true
		}
	}
	return Setting{}, false
}

// startdOnly begins knobs that the startd prefers to those without it, whatever the
// order of files, and that no other daemon reads.
const startdOnly = "STARTD."

// fromFile: the last file that sets it is this one.
func (s Setting) fromFile(file string) bool { return strings.HasPrefix(s.Place, file+", line ") }

// bySite: some file or variable sets it, not HTCondor's defaults.
func (s Setting) bySite() bool { return s.Place != "" }

func (s Setting) String() string {
	return fmt.Sprintf("%s = %s (%s)", s.Name, oneLine(s.Value), s.Place)
}

func oneLine(s string) string { return foreign.Clip(strings.Join(strings.Fields(s), " ")) }

// words splits a list.
func (s Setting) words() []string {
	return strings.FieldsFunc(s.Value, func(r rune) bool { return strings.ContainsRune(", \t\n", r) })
}

// has looks for a word of a list; HTCondor does not heed case.
func (s Setting) has(word string) bool {
	return slices.ContainsFunc(s.words(), func(w string) bool { return strings.EqualFold(w, word) })
}

// number is a plain positive number; 0 for anything else.
func (s Setting) number() int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(s.Value), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// At is the node where HTCondor has these settings.
func (n Node) At(s Settings) Node {
	n.SiteSlotTypes = s.SlotTypes()
	return n
}

// Within is what the site leaves of a host to HTCondor: NUM_CPUS and MEMORY bound it,
// and RESERVED_MEMORY is not for jobs. Settings that are not known bound nothing.
func (s Settings) Within(h gpu.Host) gpu.Host {
	if n := s["num_cpus"]; n.bySite() && n.number() > 0 {
		h.CPUs = min(h.CPUs, int(n.number()))
	}
	if n := s["memory"]; n.bySite() && n.number() > 0 {
		h.Memory = min(h.Memory, gpu.MiB(n.number()))
	}
	if left := h.Memory - gpu.MiB(s["reserved_memory"].number()); left > 0 {
		h.Memory = left
	}
	return h
}
