package foreign

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestWord(t *testing.T) {
	for text, want := range map[string]string{
		"group_atlas.prod":          "group_atlas.prod",
		"Größe":                     "Größe",
		"\x1b]0;owned\x07\x1b[2J":   "?]0;owned??[2J",
		"a\nb\tc":                   "a?b?c",
		"\u009b2J":                  "?2J",      // a terminal's other escape
		"\u202eesrever":             "?esrever", // text that runs backwards
		"\xff\xfe":                  "\ufffd\ufffd",
		strings.Repeat("ä", 200000): strings.Repeat("ä", 128) + "…",
	} {
		if got := Word(text); got != want {
			t.Errorf("%.40q is %q, want %q", text, got, want)
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "abc…"}, {"aä", 2, "a…"}, {"aäb", 3, "aä…"}, {"ä", 1, "…"},
		{"\x80\x80", 1, "…"}, {"", 0, ""}, {"a", 0, "…"},
	} {
		if got := Text(c.text, c.most); got != c.want {
			t.Errorf("%d bytes of %q are %q, want %q", c.most, c.text, got, c.want)
		}
	}
}

// FuzzForeign: nothing but printable text of a bounded length, and such text stays.
func FuzzText(f *testing.F) {
	f.Add("\x1b[2J", 3)
	f.Add("ä", 1)
	f.Fuzz(func(t *testing.T, text string, most int) {
		if most < 0 || most > 1000 {
			return
		}
		got := Text(text, most)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q from %q", got, text)
		}
		if len(got) > 3*most+len("…") {
			t.Errorf("%d bytes of %q", len(got), text)
		}
		if len(got) <= most && Text(got, most) != got {
			t.Errorf("%q is not itself", got)
		}
	})
}
