// Package classad reads and prints the part of HTCondor's ClassAd language
// that hooks, monitors and condor_status exchange: flat ads, as "Name = value"
// lines (the old, "long" syntax) or as JSON. Values are kept as the text of expressions
// in the old syntax; it evaluates none, it only reads literals. Start at Parse and
// ParseJSON.
package classad

import (
	"strconv"
	"strings"
)

// Ad is one ClassAd. Names are compared without case, as HTCondor does; the
// order is that of the first mention. The zero value is an empty ad.
type Ad struct {
	attrs []attr
	index map[string]int // lower-case name -> position in attrs
	lost  []string
}

// attr is one attribute: its name as first spelled and its expression.
type attr struct{ name, expr string }

// Lost names the attributes that ParseJSON could not read, or read twice.
func (a Ad) Lost() []string { return a.lost }

// Len is the number of attributes.
func (a Ad) Len() int { return len(a.attrs) }

// Expr is the text of an attribute's expression.
func (a Ad) Expr(name string) (expr string, ok bool) {
	i, ok := a.index[strings.ToLower(name)]
	if !ok {
		return "", false
	}
	return a.attrs[i].expr, true
}

// Has reports whether an attribute is there and not the literal undefined.
func (a Ad) Has(name string) bool {
	expr, ok := a.Expr(name)
	return ok && !strings.EqualFold(expr, "undefined")
}

// String is an attribute that is one string literal, with escapes undone; ok
// is false if it is absent, undefined, or anything else.
func (a Ad) String(name string) (s string, ok bool) {
	expr, _ := a.Expr(name)
	return unquote(expr)
}

// Int is an attribute that is an integer literal.
func (a Ad) Int(name string) (n int64, ok bool) {
	expr, _ := a.Expr(name)
	n, err := strconv.ParseInt(expr, 10, 64)
	return n, err == nil
}

// Float is an attribute that is an integer or real literal.
func (a Ad) Float(name string) (f float64, ok bool) {
	expr, _ := a.Expr(name)
	if expr == "" || strings.ContainsAny(expr, "xXpP_nN") { // what ParseFloat reads beyond ClassAds
		return 0, false
	}
	f, err := strconv.ParseFloat(expr, 64)
	return f, err == nil
}

// StringList is a string literal read as HTCondor's lists are: items between
// commas or blanks, empty ones dropped. An empty string is an empty list.
func (a Ad) StringList(name string) (items []string, ok bool) {
	s, ok := a.String(name)
	return SplitList(s), ok
}

// SplitList splits a list as StringList does.
func SplitList(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
}

// SetExpr sets an attribute to an expression. Line breaks in it become blanks,
// since the syntax has none.
func (a *Ad) SetExpr(name, expr string) {
	expr = strings.TrimSpace(oneLine(expr))
	key := strings.ToLower(name)
	if i, ok := a.index[key]; ok {
		a.attrs[i].expr = expr
		return
	}
	if a.index == nil {
		a.index = map[string]int{}
	}
	a.index[key] = len(a.attrs)
	a.attrs = append(a.attrs, attr{name, expr})
}

// SetString sets an attribute to a string literal; see Quote.
func (a *Ad) SetString(name, s string) { a.SetExpr(name, literal(s)) }

// SetInt sets an attribute to an integer.
func (a *Ad) SetInt(name string, n int64) { a.SetExpr(name, strconv.FormatInt(n, 10)) }

// SetBool sets an attribute to true or false.
func (a *Ad) SetBool(name string, b bool) { a.SetExpr(name, strconv.FormatBool(b)) }

// SetUndefined sets an attribute to undefined.
func (a *Ad) SetUndefined(name string) { a.SetExpr(name, "undefined") }

// Print is the ad as Parse reads it: one line per attribute.
func (a Ad) Print() string {
	var b strings.Builder
	for _, at := range a.attrs {
		b.WriteString(at.name + " = " + at.expr + "\n")
	}
	return b.String()
}
