package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// oldest is the version that what is "before 24.0.1" is there from.
const oldest = "before 24.0.1"

// rows are the cells of a table of platforms.md, between its marks, without the head.
func rows(t *testing.T, name string) (all [][]string) {
	t.Helper()
	_, rest, _ := strings.Cut(read(t, "platforms.md"), "<!-- "+name+" -->")
	table, _, found := strings.Cut(rest, "<!-- /"+name+" -->")
	if !found {
		t.Fatalf("platforms.md has no table %q", name)
	}
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[2:] {
		var cells []string
		for _, cell := range strings.Split(strings.Trim(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		all = append(all, cells)
	}
	return all
}

var (
	// setting is the name of a knob at the beginning of a line.
	setting = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_.]*) *(?:=|@=)`)
	// localName stands before a knob of one startd or slot type.
	localName = regexp.MustCompile(`^(?:STARTD|slot_type_\d+|gpu[0-9a-f]{8})\.`)
	// evicted is HTCondor's attribute, which a transform of ours sets.
	evicted = regexp.MustCompile(`^  EVALSET (TransformOnEvict) `)
)

// families are knobs with a part of our choice.
var families = []struct {
	like *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`^(SLOT_TYPE|NUM_SLOTS_TYPE)_\d+`), "${1}_<N>"},
	{regexp.MustCompile(`^(STARTD|SCHEDD)_CRON_GPUSLOT(?:_USAGE)?_`), "${1}_CRON_<JOB>_"},
	{regexp.MustCompile(`^(JOB_TRANSFORM|SUBMIT_REQUIREMENT)_GPUSlot[A-Za-z]*`), "${1}_<NAME>"},
	{regexp.MustCompile(`^(MACHINE_RESOURCE(?:_INVENTORY)?)_(?:GPUs|VRAM)$`), "${1}_<TAG>"},
	{regexp.MustCompile(`^GPUSLOT_(HOOK_)`), "<K>_${1}"},
	{regexp.MustCompile(`^DOCKER_VOLUME_DIR_GPUSLOT\d+`), "DOCKER_VOLUME_DIR_<NAME>"},
	{regexp.MustCompile(`^STARTD_GPU[0-9A-F]{8}`), "<DAEMON>"},
}

// ours are macros and attributes of gpuslot's own.
var ours = regexp.MustCompile(`^(?:SLOT_TYPE_<N>_)?(?:GPUSlot[A-Za-z]*|GPUThreads|GPUSLOT_[A-Z_]+)$`)

// knobs are HTCondor's knobs in a generated text, by the names of the table, each with
// the version for which it is there ("" for all).
func knobs(text string) map[string]string {
	used := make(map[string]string)
	version := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if rest, found := strings.CutPrefix(line, "if version >= "); found {
			version = rest
		}
		if line == "else" || line == "endif" {
			version = ""
		}
		m := setting.FindStringSubmatch(line)
		if m == nil {
			m = evicted.FindStringSubmatch(line)
		}
		if m == nil {
			continue
		}
		name := localName.ReplaceAllString(m[1], "")
		for _, f := range families {
			name = f.like.ReplaceAllString(name, f.name)
		}
		if was, seen := used[name]; !ours.MatchString(name) && (!seen || was != "") {
			used[name] = version
		}
	}
	return used
}

// TestKnobs: the table has all of HTCondor's knobs that gpuslot sets, and no other; what
// is younger than the oldest version stands behind a condition.
func TestKnobs(t *testing.T) {
	since := make(map[string]string)
	for _, row := range rows(t, "knobs") {
		name := strings.Trim(row[0], "`")
		if since[name] != "" {
			t.Errorf("%s stands twice", name)
		}
		since[name] = row[1]
	}
	used := make(map[string]bool)
	var files []string
	for _, pattern := range []string{"../condor/testdata/*.conf", "../etc/condor/*.conf"} {
		more, err := filepath.Glob(pattern)
		if err != nil || len(more) == 0 {
			t.Fatal(pattern, err)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		for name, version := range knobs(read(t, file)) {
			used[name] = true
			switch from, known := since[name]; {
			case !known:
				t.Errorf("%s: %s is not in the table of platforms.md", file, name)
			case from != oldest && version != from:
				t.Errorf("%s: %s is there since %s, and stands for version %q", file, name, from, version)
			}
		}
	}
	for name := range since {
		if !used[name] {
			t.Errorf("%s is in the table of platforms.md, and in no generated text", name)
		}
	}
}

// TestBehaviours: what a row names stands in the file that it names.
func TestBehaviours(t *testing.T) {
	for _, row := range rows(t, "behaviours") {
		name, file := strings.Trim(row[1], "`"), strings.Trim(row[2], "`")
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Errorf("%s: %v", row[0], err)
		} else if !strings.Contains(string(text), name) {
			t.Errorf("%s: %s does not name %s", row[0], file, name)
		}
	}
}

// TestKnobsOf: what a condition of versions holds for.
func TestKnobsOf(t *testing.T) {
	got := knobs("START = 1\nif version >= 25.2.1\nA = 1\nSTART = 2\nelse\nB = 2\nendif\nslot_type_7.C = 3\n  D = 4\n")
	if want := map[string]string{"START": "", "A": "25.2.1", "B": "", "C": ""}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, not %v", got, want)
	}
}
