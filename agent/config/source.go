package config

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/BurntSushi/toml"
)

// source is a decoded file that still knows where each key stands.
type source struct {
	root map[string]any
	meta toml.MetaData
	text string
	// places numbers each key and each table in the order of the file.
	places map[string]int
	// primitives is filled by line; see there.
	primitives map[string]map[string]toml.Primitive
}

// decode reads TOML without judging what it says. The library panics on its
// own bugs; such a file is refused like one with wrong syntax.
func decode(text []byte) (src *source, e *Error) {
	defer func() {
		if r := recover(); r != nil {
			src, e = nil, &Error{Problem: oneLine(fmt.Sprint("the TOML reader gives up: ", r))}
		}
	}()
	src = &source{text: string(text), places: map[string]int{}}
	meta, err := toml.Decode(src.text, &src.root)
	if err != nil {
		return nil, syntaxError(err)
	}
	src.meta = meta
	for i, key := range meta.Keys() {
		for n := range key {
			if part := key[:n+1].String(); !src.has(part) {
				src.places[part] = i
			}
		}
	}
	return src, nil
}

func (src *source) has(key string) bool {
	_, ok := src.places[key]
	return ok
}

func syntaxError(err error) *Error {
	var syntax toml.ParseError
	if !errors.As(err, &syntax) {
		return &Error{Problem: oneLine(err.Error())}
	}
	message := strings.TrimSuffix(oneLine(syntax.Message), ".")
	return &Error{Line: syntax.Position.Line, Problem: "not TOML: " + message + hint(message)}
}

// hint says what to write where the library says what it did not expect.
func hint(message string) string {
	for _, h := range []struct{ part, hint string }{
		{"expected value but found", `; text needs quotes: "…"`},
		{"to end table name", `; a name with spaces, dots or * needs quotes: [host."wn-gpu*"]`},
		{"already been defined", "; keep one"},
		{"strings cannot contain newlines", "; the closing quote is missing"},
		{"expected '.' or '='", "; write key = value"},
	} {
		if strings.Contains(message, h.part) {
			return h.hint
		}
	}
	return ""
}

// order is the place of a key in the file.
func (src *source) order(key toml.Key) int {
	if i, ok := src.places[key.String()]; ok {
		return i
	}
	return math.MaxInt
}

// sorted lists the names in a table in the order of the file.
func (src *source) sorted(at toml.Key, table map[string]any) []string {
	var names []string
	for name := range table {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool {
		a, b := src.order(below(at, names[i])), src.order(below(at, names[j]))
		if a != b {
			return a < b
		}
		return names[i] < names[j]
	})
	return names
}

// below is the key of an entry of a table.
func below(at toml.Key, name string) toml.Key {
	return append(at[:len(at):len(at)], name)
}

// line is the line on which a key's value stands, or 0. A table that was never
// opened by a header has the line of its first entry; an entry whose name is
// empty, for which the library knows no position, that of its table.
func (src *source) line(key toml.Key) int {
	for k := key; len(k) > 0; k = src.first(k) {
		if n := src.position(k); n > 0 {
			return n
		}
	}
	for k := key; len(k) > 1; {
		k = k[:len(k)-1]
		if n := src.position(k); n > 0 {
			return n
		}
	}
	return 0
}

// position asks the library where a key stands; 0 means it does not know. It
// tells positions only in errors, so one is provoked: a Primitive remembers
// its key, and decoding it into a failing value reports where that stands.
func (src *source) position(key toml.Key) int {
	p, _ := src.primitive(key) // one that is not there has no position
	var at toml.ParseError
	_ = errors.As(src.meta.PrimitiveDecode(p, &failing{}), &at)
	return at.Position.Line
}

// first is the first key of the file that lies in the table key, or nil.
func (src *source) first(key toml.Key) toml.Key {
	i, ok := src.places[key.String()]
	if !ok || len(src.meta.Keys()[i]) <= len(key) {
		return nil
	}
	return src.meta.Keys()[i][:len(key)+1]
}

// failing is a value that nothing can be decoded into.
type failing struct{}

func (*failing) UnmarshalTOML(any) error { return errors.New("only the position is wanted") }

func (src *source) primitive(key toml.Key) (toml.Primitive, bool) {
	parent := key[:len(key)-1]
	table, ok := src.primitives[parent.String()]
	if !ok {
		table = src.openTable(parent)
		if src.primitives == nil {
			src.primitives = map[string]map[string]toml.Primitive{}
		}
		src.primitives[parent.String()] = table
	}
	p, ok := table[key[len(key)-1]]
	return p, ok
}

// openTable lists a table's entries as Primitives; nil if it is none.
func (src *source) openTable(key toml.Key) (table map[string]toml.Primitive) {
	if len(key) == 0 {
		if _, err := toml.Decode(src.text, &table); err != nil {
			return nil
		}
		return table
	}
	p, ok := src.primitive(key)
	if !ok || src.meta.PrimitiveDecode(p, &table) != nil {
		return nil
	}
	return table
}
