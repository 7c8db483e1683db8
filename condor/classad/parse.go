package classad

import (
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Parse reads one ad: every line that is not blank and does not start with #
// is "Name = expression". A line that is not, a string without end, or a name
// given twice is an error: HTCondor prints none of them, and a value that
// broke out of its line would look like that.
func Parse(text string) (Ad, error) {
	var ad Ad
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if skipped(line) {
			continue
		}
		if err := ad.parseLine(line); err != nil {
			return Ad{}, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return ad, nil
}

func skipped(line string) bool {
	line = strings.TrimSpace(line)
	return line == "" || line[0] == '#'
}

// parseLine adds one "Name = expression".
func (a *Ad) parseLine(line string) error {
	if strings.ContainsAny(line, breaks) {
		return fmt.Errorf("%q has a line break or NUL inside", foreign.Clip(line))
	}
	name, rest, ok := cutName(strings.TrimLeft(line, " \t"))
	if !ok {
		return fmt.Errorf("%q does not start with an attribute's name", foreign.Clip(line))
	}
	expr, ok := strings.CutPrefix(strings.TrimLeft(rest, " \t"), "=")
	if !ok {
		return fmt.Errorf("%s has no = behind its name", foreign.Clip(name))
	}
	expr = strings.TrimLeft(expr, " \t\v\f")
	if err := checkStrings(expr); err != nil {
		return fmt.Errorf("%s: %w", foreign.Clip(name), err)
	}
	expr = strings.TrimRight(expr, " \t\r\n\v\f")
	if expr == "" || expr[0] == '=' {
		return fmt.Errorf("%s has no value", foreign.Clip(name))
	}
	if _, twice := a.index[strings.ToLower(name)]; twice {
		return fmt.Errorf("%s is there twice", foreign.Clip(name))
	}
	a.SetExpr(name, expr)
	return nil
}

// cutName splits off an attribute's name, which may be quoted: 'any text'.
func cutName(s string) (name, rest string, ok bool) {
	if strings.HasPrefix(s, "'") {
		end := strings.IndexByte(s[1:], '\'')
		if end < 1 {
			return "", s, false
		}
		return s[:end+2], s[end+2:], true
	}
	n := 0
	for n < len(s) && isNameByte(s[n], n == 0) {
		n++
	}
	return s[:n], s[n:], n > 0
}

func isNameByte(c byte, first bool) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_':
		return true
	case '0' <= c && c <= '9', c == '.':
		return !first
	}
	return false
}

// checkStrings tells whether every string literal of an expression ends.
func checkStrings(expr string) error {
	for {
		start := strings.IndexByte(expr, '"')
		if start < 0 {
			return nil
		}
		n, ok := literalLen(expr[start:])
		if !ok {
			return fmt.Errorf("the string %s has no end on its line", foreign.Clip(expr[start:]))
		}
		expr = expr[start+n:]
	}
}
