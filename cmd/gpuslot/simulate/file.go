package simulate

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// maxFile is far above any file that somebody writes by hand.
const maxFile = 4 << 20

// wrong is one thing that is wrong with a file.
type wrong struct {
	file string
	line int
	what string
}

func (w wrong) Error() string {
	if w.line == 0 {
		return w.file + ": " + w.what
	}
	return fmt.Sprintf("%s:%d: %s", w.file, w.line, w.what)
}

// text is a TOML file that knows where its keys stand.
type text struct {
	name string
	raw  string
}

// decode reads TOML strictly: a key that into does not have is an error.
func (t text) decode(into any) (err error) {
	defer func() {
		if r := recover(); r != nil { // the library panics on its own bugs
			err = wrong{t.name, 0, fmt.Sprint("the TOML reader gives up: ", r)}
		}
	}()
	meta, err := toml.Decode(t.raw, into)
	var syntax toml.ParseError
	switch {
	case errors.As(err, &syntax):
		return wrong{t.name, syntax.Position.Line, oneLine(syntax.Message)}
	case err != nil:
		return wrong{t.name, 0, oneLine(err.Error())}
	}
	var errs []error
	last := "\x00"
	for _, key := range meta.Undecoded() {
		if first := key[0]; meta.Type(first) == "ArrayHash" {
			return t.bad(fmt.Sprintf("[[%s]] is a list here; write [%s.NAME], and a NAME of its own for each", first,
				first), first)
		}
		if strings.HasPrefix(key.String(), last+".") {
			continue // its table is the mistake
		}
		last = key.String()
		errs = append(errs, t.bad(fmt.Sprintf("there is no key %s here", key), key...))
	}
	return errors.Join(errs...)
}

// bad is an error at a key.
func (t text) bad(what string, key ...string) error {
	return wrong{t.name, t.line(key), what}
}

// line is where a key stands, or the last part of it that does; 0 if it is not found.
func (t text) line(key []string) (found int) {
	table := ""
	for i, line := range strings.Split(t.raw, "\n") {
		word := strings.TrimSpace(line)
		if strings.HasPrefix(word, "[") {
			table = unquoted(strings.Trim(strings.SplitN(word, "]", 2)[0], "[ "))
			for n := len(key); n > 0; n-- {
				if table == strings.Join(key[:n], ".") {
					found = i + 1
				}
			}
			continue
		}
		name, _, _ := strings.Cut(word, "=")
		name = unquoted(name)
		if table != "" {
			name = table + "." + name
		}
		for n := len(key); n > 0; n-- {
			if name == strings.Join(key[:n], ".") {
				return i + 1
			}
		}
	}
	return found
}

func unquoted(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), `"`, "") }

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// open reads a file that somebody wrote.
func open(path string) (text, error) {
	f, err := os.Open(path)
	if err != nil {
		return text{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return text{}, err
	}
	if len(b) > maxFile {
		return text{}, wrong{path, 0, fmt.Sprintf("it is larger than %d MiB; is it the right file?", maxFile>>20)}
	}
	return text{path, string(b)}, nil
}

// span is a time as people write it: "90s", "20m", "1.5h", "7d", or a number of seconds.
type span float64

// UnmarshalTOML reads a string or a number.
func (s *span) UnmarshalTOML(v any) error {
	seconds, err := spanOf(v)
	*s = span(seconds)
	return err
}

func spanOf(v any) (float64, error) {
	n, number := numberOf(v)
	if word, ok := v.(string); ok {
		if days, ok := strings.CutSuffix(word, "d"); ok {
			d, err := strconv.ParseFloat(days, 64)
			n, number = d*86400, err == nil
		} else if d, err := time.ParseDuration(word); err == nil {
			n, number = d.Seconds(), true
		}
	}
	if !number || math.IsNaN(n) || n < 0 || n > maxSeconds {
		return 0, fmt.Errorf("%v is no time; write one such as \"90s\", \"20m\", \"1.5h\", \"7d\"", v)
	}
	return n, nil
}

func numberOf(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}
