package condor

import (
	"fmt"
	"strings"
)

// text collects lines of HTCondor configuration.
type text struct{ b strings.Builder }

func (t *text) line(format string, args ...any) { fmt.Fprintf(&t.b, format+"\n", args...) }

// set is one macro. Values come from checked input, so none holds a line break.
func (t *text) set(name, format string, args ...any) {
	t.line("%s = %s", name, fmt.Sprintf(format, args...))
}

func (t *text) comment(lines ...string) {
	for _, l := range lines {
		t.line("# %s", Sentence(l))
	}
}

func (t *text) bytes() []byte { return []byte(t.b.String()) }
