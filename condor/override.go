package condor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Override is a setting of the site's that takes something away from the generated
// configuration.
type Override struct {
	Setting Setting
	Breaks  Breaks
	// Says is a sentence with the place and what to do.
	Says string
}

// Breaks is what an Override does.
type Breaks int

const (
	// BreaksNothing is a setting that the site may mean.
	BreaksNothing Breaks = iota
	// BreaksPolicy keeps jobs from starting, or starts them where they must not.
	BreaksPolicy
	// BreaksLayout keeps the startd's slots from being as planned, however often it restarts.
	BreaksLayout
)

// siteKnobs are generated, and a site may have its own, for which there is a word
// elsewhere: docker, and what containers get to see (gpuslot doctor looks), what a slot weighs.
var siteKnobs = []string{"DOCKER", "SINGULARITY_BIND_EXPR", "SLOT_WEIGHT"}

// Overrides compares each generated knob, in the text of an ExecutionPoint that
// HTCondor reads in a file, with the knobs in force. It is pure.
func Overrides(generated []byte, file string, now Settings) []Override {
	knobs := knobsOf(generated)
	if !slices.ContainsFunc(knobs, func(k knob) bool { s := now[strings.ToLower(k.name)]; return s.fromFile(file) }) {
		return []Override{{Breaks: BreaksLayout, Says: fmt.Sprintf("HTCondor does not read %s: restore "+
			"/usr/share/condor/config.d/50-gpuslot.conf, or add to the configuration: include ifexist : %s", file, file)}}
	}
	var out []Override
	for _, k := range knobs {
		s, defined := now.of(k.name)
		switch {
		case slices.Contains(siteKnobs, k.name) || defined && s.fromFile(file) && s.Name == k.name:
			continue
		case !defined: // HTCondor is older than the version that it is for
		case len(k.adds) > 0:
			if o, lacks := s.without(k); lacks {
				out = append(out, o)
			}
		case strings.TrimSpace(s.Value) != k.value:
			out = append(out, Override{s, k.breaks(), fmt.Sprintf("%s replaces what gpuslot generates: take that line out", s)})
		}
	}
	return append(out, siteLayout(knobs, now)...)
}

// without: a list that the site sets as a whole lacks what the generated line adds.
func (s Setting) without(k knob) (Override, bool) {
	missing := slices.DeleteFunc(slices.Clone(k.adds), s.has)
	if len(missing) == 0 {
		return Override{}, false
	}
	words := strings.Join(missing, " ")
	return Override{s, BreaksPolicy, fmt.Sprintf("%s leaves out %s: add to what there is, %s = $(%s) "+
		"…", s, words, k.name, k.name)}, true
}

// siteLayout are knobs that gpuslot does not generate, and with which its slots do not
// come about.
func siteLayout(knobs []knob, now Settings) []Override {
	var out []Override
	if s := now["machine_resource_names"]; s.bySite() && (!s.has("GPUs") || !s.has("VRAM")) {
		out = append(out, Override{s, BreaksLayout, fmt.Sprintf("%s hides resources of the slots: add GPUs and VRAM to "+
			"it", s)})
	}
	if s := now["machine_resource_gpus"]; s.bySite() {
		out = append(out, Override{s, BreaksLayout, fmt.Sprintf("%s takes the place of the GPUs that gpuslot lists: take "+
			"that line out", s)})
	}
	if s := now["daemon_list"]; s.bySite() && !s.has("STARTD") {
		out = append(out, Override{s, BreaksPolicy, fmt.Sprintf("%s has no STARTD, so this node has no slots: add it", s)})
	}
	for _, n := range now.SlotTypes() {
		name := fmt.Sprintf("NUM_SLOTS_TYPE_%d", n)
		aside := slices.ContainsFunc(knobs, func(k knob) bool { return strings.EqualFold(k.name, startdOnly+name) })
		s := now[strings.ToLower(name)]
		breaks, says := BreaksLayout, "%s makes slots of what gpuslot's slots have: take that line out, or set it to 0"
		if aside {
			breaks, says = BreaksNothing, "%s counts no more, because gpuslot divides the node: take that line out; cpu_only "+
				"in gpuslot.toml is for jobs without GPUs"
		}
		out = append(out, Override{s, breaks, fmt.Sprintf(says, s)})
	}
	return out
}

// SlotTypes are the numbers of the slot types that the site makes slots of, in order.
func (s Settings) SlotTypes() []int {
	var out []int
	for name, set := range s {
		text, ok := strings.CutPrefix(name, "num_slots_type_")
		n, err := strconv.Atoi(text)
		if ok && err == nil && n > 0 && n <= siteNumbers && set.bySite() && strings.TrimSpace(set.Value) != "0" {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// knob is one of the generated text.
type knob struct {
	name string
	// value is unexpanded, on one line; adds are the words that it adds to itself.
	value string
	adds  []string
}

// breaks is what another value does: the startd reads its slots at its start, and what
// begins with slot_type_ is for starters, where a site may chain our programs.
func (k knob) breaks() Breaks {
	name := strings.TrimPrefix(k.name, startdOnly)
	number, isType := strings.CutPrefix(name, "SLOT_TYPE_")
	_, err := strconv.Atoi(strings.TrimSuffix(number, "_PARTITIONABLE"))
	switch {
	case isType && err == nil, strings.HasPrefix(name, "NUM_SLOTS_TYPE_"), strings.HasPrefix(name, "MACHINE_RESOURCE_"),
		slices.Contains([]string{"NUM_CPUS", "MEMORY", "MAX_SLOT_TYPES"}, name):
		return BreaksLayout
	case strings.HasPrefix(name, "slot_type_"):
		return BreaksNothing
	}
	return BreaksPolicy
}

// knobsOf reads generated text: NAME = value, with lines that end in a backslash, and
// NAME @=tag. A name that is set twice counts once, with all that it adds.
func knobsOf(generated []byte) []knob {
	var out []knob
	add := func(k knob) {
		self := "$(" + k.name + ")"
		if rest, ok := strings.CutPrefix(k.value, self); ok {
			k.adds = strings.Fields(rest)
		}
		if i := slices.IndexFunc(out, func(o knob) bool { return o.name == k.name }); i >= 0 {
			out[i].adds = append(out[i].adds, k.adds...)
			return
		}
		out = append(out, k)
	}
	tag, text := "", strings.ReplaceAll(string(generated), "\\\n", " ")
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimRight(line, "\n"), " = ")
		head, isBlock := strings.CutSuffix(strings.TrimRight(line, "\n"), " @=end")
		switch {
		case tag != "":
			if strings.HasPrefix(line, "@"+tag) {
				tag = ""
			}
		case strings.HasPrefix(line, "#"):
		case isBlock:
			tag = "end"
			add(knob{name: head})
		case ok && !strings.Contains(name, " "):
			add(knob{name: name, value: strings.TrimSpace(value)})
		}
	}
	for i, k := range out { // HTCondor shows its settings with such words put in
		out[i].adds = nil
		for _, word := range k.adds {
			j := slices.IndexFunc(out, func(o knob) bool { return word == "$("+o.name+")" })
			if j < 0 {
				out[i].adds = append(out[i].adds, word)
				continue
			}
			out[i].adds = append(out[i].adds, strings.Fields(out[j].value)...)
		}
	}
	return out
}
