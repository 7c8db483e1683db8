package classad

import "strings"

// Strings in the old syntax know one escape, \" for a quote; every other
// backslash stands for itself, also the one before a quote that ends the line
// (ConvertEscapingOldToNew in compat_classad.cpp, and seen on 25.14.1:
// Environment = "B=C:\dir\n L=last\").

// Quote prints s as a string literal that may stand anywhere in an expression. A
// backslash at its end gets a blank behind it: within a line it would escape the quote.
func Quote(s string) string {
	if strings.HasSuffix(s, `\`) {
		s += " "
	}
	return literal(s)
}

// literal prints s as a string literal at the end of a line. The syntax cannot express
// line breaks and NUL: each becomes a blank, so that no text can break out of its line.
func literal(s string) string {
	return `"` + strings.ReplaceAll(oneLine(s), `"`, `\"`) + `"`
}

// oneLine works on bytes: an environment need not be UTF-8.
func oneLine(s string) string {
	if !strings.ContainsAny(s, breaks) {
		return s
	}
	b := []byte(s)
	for i, c := range b {
		if strings.IndexByte(breaks, c) >= 0 {
			b[i] = ' '
		}
	}
	return string(b)
}

// breaks are the bytes that end a line, or the text, for one reader or another.
const breaks = "\n\r\x00"

// literalLen is the length of the string literal at the start of s, quotes included.
func literalLen(s string) (n int, ok bool) {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return i + 1, true
		case s[i] == '\\' && i+2 < len(s) && s[i+1] == '"':
			i++
		}
	}
	return 0, false
}

// unquote reads an expression that is one string literal and nothing else.
func unquote(expr string) (string, bool) {
	if expr == "" || expr[0] != '"' {
		return "", false
	}
	if n, ok := literalLen(expr); !ok || n != len(expr) {
		return "", false
	}
	return strings.ReplaceAll(expr[1:len(expr)-1], `\"`, `"`), true
}
