package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// refresh is the time between two looks at the agent, as long as a sample.
const refresh = time.Second

// live is a text that is renewed until somebody has enough of it.
type live struct {
	ask func(context.Context) (api.Status, error)
	// text makes a frame; key is called with what was pressed.
	text func(api.Status, time.Time) string
	key  func(byte)
	// frames ends it after so many; 0 means never.
	frames int
}

// run paints on a terminal, until q, Ctrl-C or an error of the terminal. An
// agent that does not answer is said, and asked again. Without a terminal the
// frames follow each other, and an error ends it.
func (l live) run(ctx context.Context, in io.Reader, out io.Writer) error {
	screen, ok := terminalOf(in, out)
	keys := make(chan byte)
	if ok {
		defer screen.leave()
		keys = screen.keys
	}
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	last, missing := "", ""
	for n := 1; ; n++ {
		s, err := l.ask(ctx)
		if ctx.Err() != nil {
			return nil // Ctrl-C
		}
		switch {
		case err == nil:
			last, missing = l.text(s, time.Now()), ""
		case !ok:
			return err
		default:
			missing = "no answer: " + err.Error() + "\n"
		}
		if ok {
			err = screen.paint(missing + last)
		} else {
			_, err = fmt.Fprintln(out, strings.ReplaceAll(last, headMark, ""))
		}
		if err != nil || n == l.frames {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case k := <-keys:
			if k == 'q' || k == 'Q' || k == 3 {
				return nil
			}
			if l.key != nil {
				l.key(k)
			}
		case <-tick.C:
		}
	}
}

// headed prints a table whose first row is a title.
func headed(b *strings.Builder, t *show.Table) {
	var rows strings.Builder
	t.Print(&rows)
	b.WriteString(headMark + rows.String())
}

// orUnknown prints what is known; a dash is never a zero.
func orUnknown[T any](v *T, text func(T) string) string {
	if v == nil {
		return "-"
	}
	return text(*v)
}

func share(part float64) string { return fmt.Sprintf("%.0f %%", 100*part) }

func whole(f float64) string { return fmt.Sprintf("%.0f", f) }
