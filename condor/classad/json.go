package classad

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// ParseJSON reads several ads as condor_status and condor_q print them with -json: a
// list of objects. HTCondor escapes every string there, so text that a user wrote ends
// neither its line nor its ad, as it does with -long. An empty text has no ads:
// HTCondor prints nothing where there is nothing. Ads without attributes are left out.
//
// An attribute that cannot be read costs itself and no other: see Ad.Lost. Lists and
// nested ads are such attributes, because gpuslot reads none.
func ParseJSON(text string) ([]Ad, error) {
	s := jsonText{text: text}
	if s.space(); s.rest() == "" {
		return nil, nil
	}
	var ads []Ad
	err := s.items('[', ']', func() error {
		var ad Ad
		err := s.items('{', '}', func() error { return s.attribute(&ad) })
		if ad.Len() > 0 || len(ad.lost) > 0 {
			ads = append(ads, ad)
		}
		return err
	})
	if s.space(); err == nil && s.rest() != "" {
		err = s.unexpected("the end")
	}
	if err != nil {
		return nil, err
	}
	return ads, nil
}

// jsonText is read without recursion, and only as far as the limits of each value:
// encoding/json takes a list of 10,000 levels, which a user can write, for an error of
// the whole text.
type jsonText struct {
	text string
	at   int
}

func (s *jsonText) rest() string { return s.text[s.at:] }

func (s *jsonText) space() {
	s.at = len(s.text) - len(strings.TrimLeft(s.rest(), " \t\r\n"))
}

func (s *jsonText) unexpected(want string) error {
	return fmt.Errorf("byte %d: %q is not %s", s.at, foreign.Clip(s.rest()), want)
}

// take reads one byte behind white space.
func (s *jsonText) take(c byte) bool {
	if s.space(); s.rest() == "" || s.text[s.at] != c {
		return false
	}
	s.at++
	return true
}

// items reads what stands between commas in brackets.
func (s *jsonText) items(from, to byte, item func() error) error {
	if !s.take(from) {
		return s.unexpected(strconv.QuoteRune(rune(from)))
	}
	if s.take(to) {
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if s.take(to) {
			return nil
		}
		if !s.take(',') {
			return s.unexpected("',' or " + strconv.QuoteRune(rune(to)))
		}
	}
}

func (s *jsonText) attribute(ad *Ad) error {
	s.space()
	from := s.at
	if err := s.quoted(); err != nil {
		return err
	}
	key := s.text[from:s.at]
	if !s.take(':') {
		return s.unexpected("':'")
	}
	s.space()
	from = s.at
	if err := s.value(); err != nil {
		return err
	}
	ad.setJSON(key, s.text[from:s.at])
	return nil
}

// quoted passes over a string.
func (s *jsonText) quoted() error {
	if s.rest() == "" || s.text[s.at] != '"' {
		return s.unexpected("a string")
	}
	for i := s.at + 1; i < len(s.text); i++ {
		switch s.text[i] {
		case '\\':
			i++
		case '"':
			s.at = i + 1
			return nil
		}
	}
	return s.unexpected("a string that ends")
}

// value passes over any value.
func (s *jsonText) value() error {
	for depth := 0; s.at < len(s.text); {
		switch s.text[s.at] {
		case '"':
			if err := s.quoted(); err != nil {
				return err
			}
		case '[', '{':
			depth++
			s.at++
		case ']', '}':
			depth--
			s.at++
		default:
			n := strings.IndexAny(s.rest(), "\"[]{}, \t\r\n")
			if n < 0 {
				n = len(s.rest())
			}
			s.at += max(n, 1)
		}
		if depth == 0 {
			return nil
		}
	}
	return s.unexpected("a value")
}

// setJSON adds an attribute, or notes that it is lost.
func (a *Ad) setJSON(key, value string) {
	var name string
	if json.Unmarshal([]byte(key), &name) != nil {
		name = key
	}
	_, rest, plain := cutName(name)
	expr, err := exprOf(value)
	_, twice := a.index[strings.ToLower(name)]
	if err != nil || !plain || rest != "" || name[0] == '\'' || twice {
		a.lost = append(a.lost, name)
		return
	}
	a.SetExpr(name, expr)
}

// HTCondor prints an expression as "\/Expr(x)\/". It never escapes the slash of a
// string, so that no text of a user looks like that.
const (
	exprStart = `"\/Expr(`
	exprEnd   = `)\/"`
)

// exprOf is a value of JSON in the old syntax.
func exprOf(value string) (string, error) {
	if value == "null" {
		return "undefined", nil
	}
	if value == "" || value[0] == '[' || value[0] == '{' || !json.Valid([]byte(value)) {
		return "", fmt.Errorf("%q is no value of an attribute", foreign.Clip(value))
	}
	if value[0] != '"' {
		return value, nil
	}
	expr, start := strings.CutPrefix(value, exprStart)
	expr, end := strings.CutSuffix(expr, exprEnd)
	var text string
	if !start || !end {
		err := json.Unmarshal([]byte(value), &text)
		return literal(text), err
	}
	if err := json.Unmarshal([]byte(`"`+expr+`"`), &text); err != nil {
		return "", err
	}
	text, err := oldSyntax(text)
	if err == nil && strings.TrimSpace(text) == "" {
		err = errors.New("the expression is empty")
	}
	if err == nil {
		err = checkStrings(text)
	}
	return text, err
}

// oldSyntax turns the string literals of an expression from the new syntax, which has
// escapes as C does, into the old one.
func oldSyntax(expr string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(expr); {
		c := expr[i]
		if c != '"' && c != '\'' { // '…' is a name
			b.WriteByte(c)
			i++
			continue
		}
		end := i + 1
		for end < len(expr) && expr[end] != c {
			if expr[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(expr) {
			return "", fmt.Errorf("the string %s has no end", foreign.Clip(expr[i:]))
		}
		if c == '"' {
			b.WriteString(literal(unescape(expr[i+1 : end])))
		} else {
			b.WriteString(expr[i : end+1])
		}
		i = end + 1
	}
	return b.String(), nil
}

// escaped are the letters behind a backslash that stand for another byte.
var escaped = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\'`, `'`, `\n`, "\n", `\r`, "\r", `\t`, "\t",
	`\b`, "\b", `\f`, "\f", `\a`, "\a", `\v`, "\v", `\?`, "?")

// unescape undoes the escapes of the new syntax. HTCondor prints other control
// characters as three octal digits, which stay as they are: no name of a GPU has one.
func unescape(s string) string { return escaped.Replace(s) }
