package docs

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	changelog = "../CHANGELOG.md"
	// longest is how many words a sentence may have.
	longest = 30
	// middle is how many words the median sentence may have.
	middle = 15
)

// unused are words that the pages do not use, with the word to write.
var unused = map[string]string{
	`anew`:                           "again",
	`walls?`:                         "enforcement",
	`books`:                          "job table",
	`pulse`:                          "health check",
	`doors?`:                         "access",
	`crowds?`:                        "connection limit",
	`troubles?`:                      "fault",
	`wedged`:                         "hangs",
	`in words`:                       "with a message",
	`is no (success|failure)`:        "fails",
	`nothing but`:                    "only",
	`save (for|that)`:                "except",
	`(thereof|whereof|wherein|lest)`: "a second sentence",
	`as it were`:                     "no figure of speech",
	`without a word`:                 "without a message",
	`(knows|tells|wishes)`:           "reads, has, reports",
	`by itself`:                      "automatically",
	`some \d`:                        "about",
	`(is|are|was|were|be) told`:      "has, reads",
	`(hears|heals|meanwhile)`:        "reads, is repaired, during that time",
	`for ever`:                       "without end",
	`by turns`:                       "in turns",
	`'s word`:                        "report, decision",
}

// mayUse are the uses of such words that stay, by page, with the reason.
var mayUse = map[string]string{}

// TestEnglish: sentences of the pages are short, and have none of the unused words.
func TestEnglish(t *testing.T) {
	worst, longestOfAll := 0, 0
	t.Logf("%-60s %6s %9s %6s %7s", "page", "words", "sentences", "median", "longest")
	for _, page := range pages(t) {
		text := read(t, page)
		if page == changelog { // what is not released yet
			_, text, _ = strings.Cut(text, "\n## ")
			text, _, _ = strings.Cut(text, "\n## ")
			text = entry.ReplaceAllString(text, "- ")
		}
		lengths, over := []int{}, []string{}
		for _, s := range sentences(text) {
			n := len(words(s.text))
			if n > longest {
				over = append(over, fmt.Sprintf("%d words: %s", n, s.text))
			}
			if !s.cell {
				lengths = append(lengths, n)
			}
		}
		slices.Sort(lengths)
		median, most := 0, 0
		if len(lengths) > 0 {
			median, most = lengths[len(lengths)/2], lengths[len(lengths)-1]
		}
		t.Logf("%-60s %6d %9d %6d %7d", page, len(strings.Fields(text)), len(lengths), median, most)
		for _, o := range over {
			t.Errorf("%s: %s", page, o)
		}
		longestOfAll = max(longestOfAll, most)
		if page != changelog {
			worst = max(worst, median)
		}
		if median > middle && page != changelog { // where each sentence has a whole change
			t.Errorf("%s: the median sentence has %d words", page, median)
		}
		for _, u := range unusedIn(page, text) {
			t.Errorf("%s: %s", page, u)
		}
	}
	t.Logf("figure: pages: the longest sentence has %d words (at most %d), the largest median of a page is %d (at most %d)",
		longestOfAll, longest, worst, middle)
}

// TestEnglishOfAlerts holds the summaries of alerts to the same rules.
func TestEnglishOfAlerts(t *testing.T) {
	const rules = "../etc/prometheus/gpuslot.rules.yml"
	all := regexp.MustCompile(`(?m)^ +summary: (.*)$`).FindAllStringSubmatch(read(t, rules), -1)
	if len(all) < 20 {
		t.Fatalf("%d summaries", len(all))
	}
	for _, m := range all {
		if n := len(words(m[1])); n > longest {
			t.Errorf("%s: %d words: %s", rules, n, m[1])
		}
		for _, u := range unusedIn(rules, m[1]) {
			t.Errorf("%s: %s", rules, u)
		}
	}
}

// pages are the pages of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"../README.md", "../CONTRIBUTING.md", changelog, "../test/node/README.md", "../test/sim/README.md"}
	for _, pattern := range []string{"*.md", "*/*.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, more...)
	}
	return all
}

// unusedIn are the unused words in the sentences of a page.
func unusedIn(page, text string) (found []string) {
	for _, s := range sentences(text) {
		for word, instead := range unused {
			if m := regexp.MustCompile(`(?i)\b` + word + `\b`).FindString(s.text); m != "" && mayUse[page+" "+strings.ToLower(m)] == "" {
				found = append(found, fmt.Sprintf("%q (write: %s) in: %s", m, instead, s.text))
			}
		}
	}
	slices.SortFunc(found, cmp.Compare)
	return found
}

// sentence is one of a page; cell, of a table.
type sentence struct {
	text string
	cell bool
}

var (
	fenced   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	comment  = regexp.MustCompile(`(?s)<!--.*?-->`)
	code     = regexp.MustCompile("`[^`]+`")
	linked   = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	listItem = regexp.MustCompile(`^\s*([-*]|\d+\.) `)
	ended    = regexp.MustCompile(`([.!?][)"*]*)\s+`)
)

// sentences are those of a page, without headings and code. A name in code is one word.
func sentences(page string) (all []sentence) {
	page = fenced.ReplaceAllString(comment.ReplaceAllString(page, ""), "\n")
	page = linked.ReplaceAllString(code.ReplaceAllString(page, "CODE"), "$1")
	add := func(block string, cell bool) {
		for s := range strings.SplitSeq(ended.ReplaceAllString(block, "$1\n"), "\n") {
			if len(words(strings.ReplaceAll(s, "CODE", ""))) > 0 { // a list of names is no sentence
				all = append(all, sentence{strings.TrimSpace(s), cell})
			}
		}
	}
	block := ""
	flush := func() { add(block, false); block = "" }
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		switch bare := strings.TrimSpace(line); {
		case bare == "":
			flush()
		case strings.HasPrefix(bare, "#"):
			flush()
		case strings.HasPrefix(bare, "|"):
			flush()
			for cell := range strings.SplitSeq(strings.ReplaceAll(bare, `\|`, "/"), "|") {
				add(cell, true)
			}
		case strings.HasPrefix(line, "    ") && block == "":
			// Code.
		case listItem.MatchString(line):
			flush()
			block = listItem.ReplaceAllString(line, "")
		default:
			block += " " + bare
		}
	}
	flush()
	return all
}

// entry is how a change begins.
var entry = regexp.MustCompile(`(?m)^- \[[A-Z]+\] [^:]*: `)

var word = regexp.MustCompile(`[\pL\pN]`)

// words are the fields of a text with a letter or a digit.
func words(text string) []string {
	return slices.DeleteFunc(strings.Fields(text), func(f string) bool { return !word.MatchString(f) })
}

// TestSentences: how pages are cut into sentences.
func TestSentences(t *testing.T) {
	page := "# A heading\n\nOne `two three` [four\nfive](link.md#there). `Name`, `name`. Six?\n- seven eight\n  nine\n\n    code here\n\n" +
		"```sh\ncode\n```\n| ten | eleven twelve. Thirteen |\n|---|---|\n<!-- note -->\n"
	want := []sentence{{"One CODE four five.", false}, {"Six?", false}, {"seven eight nine", false}, {"ten", true}, {"eleven twelve.", true}, {"Thirteen", true}}
	if got := sentences(page); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestReadmeIsShort: at most 400 words stand before README's first command.
func TestReadmeIsShort(t *testing.T) {
	before, _, found := strings.Cut(read(t, "../README.md"), "\n    CGO_ENABLED=0 go run")
	n := len(strings.Fields(before))
	t.Logf("figure: README.md: %d words before the first command (at most 400)", n)
	if !found || n > 400 {
		t.Errorf("README.md has %d words before its first command", n)
	}
}
