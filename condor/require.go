package condor

import (
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/condor/classad"
)

// What users write into require_gpus is nearly always a few comparisons of
// properties with constants. Those are understood here, to tell which MIG profile
// a waiting job means; the matching itself is HTCondor's. Anything else is "not
// known", never a guess.

// value is a ClassAd value; the zero value is undefined.
type value struct {
	kind kind
	num  float64
	str  string
}

type kind int

const (
	isUndefined kind = iota
	isNumber
	isString
	isBool
)

func num(f float64) value { return value{kind: isNumber, num: f} }
func str(s string) value  { return value{kind: isString, str: s} }
func truth(b bool) value {
	if b {
		return value{kind: isBool, num: 1}
	}
	return value{kind: isBool}
}

func (v value) is(b bool) bool { return v == truth(b) }

// literal reads a number; anything else is undefined.
func literal(text string) value {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return value{}
	}
	return num(f)
}

// evalRequire tells whether the expression is true of a device.
func evalRequire(expr string, property func(string) value) (is, known bool) {
	p := requireParser{rest: expr, property: property}
	v := p.or()
	if p.space(); p.failed || p.rest != "" {
		return false, false
	}
	return v.is(true), true
}

// requireParser evaluates while it reads; expressions are short (maxRequire).
type requireParser struct {
	rest     string
	property func(string) value
	failed   bool
}

func (p *requireParser) space() { p.rest = strings.TrimLeft(p.rest, " \t\r\n") }

// take reads one of the words, the longer ones first.
func (p *requireParser) take(words ...string) string {
	p.space()
	for _, w := range words {
		if !strings.HasPrefix(strings.ToLower(p.rest), w) {
			continue
		}
		if after := p.rest[len(w):]; isLetter(w[0]) && after != "" && isNameByte(after[0]) {
			return "" // a name that begins like the word
		}
		p.rest = p.rest[len(w):]
		return w
	}
	return ""
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' || c == '_' }

func isNameByte(c byte) bool { return isLetter(c) || '0' <= c && c <= '9' }

func (p *requireParser) or() value {
	v := p.and()
	for !p.failed && p.take("||") != "" {
		w := p.and()
		switch {
		case v.is(true) || w.is(true):
			v = truth(true)
		case !v.is(false) || !w.is(false):
			v = value{}
		}
	}
	return v
}

func (p *requireParser) and() value {
	v := p.comparison()
	for !p.failed && p.take("&&") != "" {
		w := p.comparison()
		switch {
		case v.is(false) || w.is(false):
			v = truth(false)
		case !v.is(true) || !w.is(true):
			v = value{}
		}
	}
	return v
}

func (p *requireParser) comparison() value {
	a := p.operand()
	op := p.take("=?=", "=!=", "isnt", "is", "==", "!=", "<=", ">=", "<", ">")
	if op == "" || p.failed {
		return a
	}
	return compare(a, op, p.operand())
}

func compare(a value, op string, b value) value {
	switch op {
	case "=?=", "is":
		return truth(a == b)
	case "=!=", "isnt":
		return truth(a != b)
	}
	var order int
	switch {
	case a.kind != b.kind || a.kind == isUndefined:
		return value{}
	case a.kind == isString:
		order = strings.Compare(strings.ToLower(a.str), strings.ToLower(b.str)) // == and < do not heed case
	case a.num < b.num:
		order = -1
	case a.num > b.num:
		order = 1
	}
	switch op {
	case "==":
		return truth(order == 0)
	case "!=":
		return truth(order != 0)
	case "<":
		return truth(order < 0)
	case "<=":
		return truth(order <= 0)
	case ">":
		return truth(order > 0)
	}
	return truth(order >= 0)
}

func (p *requireParser) operand() value {
	p.space()
	switch {
	case p.rest == "":
		p.failed = true
		return value{}
	case p.take("(") != "":
		v := p.or()
		p.failed = p.failed || p.take(")") == ""
		return v
	case p.rest[0] == '"':
		return p.quoted()
	case isLetter(p.rest[0]):
		return p.name()
	}
	return p.number()
}

func (p *requireParser) quoted() value {
	end := 1
	for end < len(p.rest) && p.rest[end] != '"' {
		if p.rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(p.rest) {
		p.failed = true
		return value{}
	}
	var ad classad.Ad
	ad.SetExpr("s", p.rest[:end+1])
	s, ok := ad.String("s")
	p.rest, p.failed = p.rest[end+1:], p.failed || !ok
	return str(s)
}

// number reads digits with at most one exponent: HTCondor prints 8.0 as
// 8.000000000000000E+00.
func (p *requireParser) number() value {
	digits := func(text string) int { return len(text) - len(strings.TrimLeft(text, "0123456789.")) }
	end := digits(p.rest)
	if end < len(p.rest) && p.rest[end]|0x20 == 'e' {
		power := strings.TrimLeft(p.rest[end+1:], "+-")
		end = len(p.rest) - len(power) + digits(power)
	}
	v := literal(p.rest[:end])
	p.rest, p.failed = p.rest[end:], p.failed || v.kind == isUndefined
	return v
}

func (p *requireParser) name() value {
	end := 0
	for end < len(p.rest) && isNameByte(p.rest[end]) {
		end++
	}
	name := p.rest[:end]
	p.rest = p.rest[end:]
	switch strings.ToLower(name) {
	case "true", "false":
		return truth(strings.EqualFold(name, "true"))
	case "undefined":
		return value{}
	}
	return p.property(name) // what follows a scope or a function's name is left over, and so it is unknown
}
