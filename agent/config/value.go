package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// A reader of values returns the value, or a problem: the end of an error
// sentence that says what would be right. An empty problem means success.

// wholeNumber reads a whole number within bounds.
func wholeNumber(v any, least, most int64, what string) (int64, string) {
	n, ok := v.(int64)
	if ok && least <= n && n <= most {
		return n, ""
	}
	return 0, fmt.Sprintf("write %s from %d to %d%s", what, least, most, unquote(v))
}

// unquote helps with the most common slip: a number in quotes.
func unquote(v any) string {
	if s, ok := v.(string); ok {
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			return ", without quotes"
		}
	}
	return ""
}

// word reads one of a list of words.
func word[T ~string](v any, words ...T) (T, string) {
	s, ok := v.(string)
	for _, w := range words {
		if ok && s == string(w) {
			return w, ""
		}
	}
	return "", "write " + alternatives(words)
}

// alternatives prints words as an operator has to write them.
func alternatives[T ~string](words []T) string {
	var quoted []string
	for _, w := range words {
		quoted = append(quoted, strconv.Quote(string(w)))
	}
	if len(quoted) < 2 {
		return strings.Join(quoted, "")
	}
	last := len(quoted) - 1
	return strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}

// number reads an integer or a float; ok is false for anything else and for
// numbers that are none.
func number(v any) (n float64, ok bool) {
	switch x := v.(type) {
	case int64:
		return float64(x), true
	case float64:
		return x, !math.IsNaN(x) && !math.IsInf(x, 0)
	}
	return 0, false
}

// duration reads "90s" within bounds.
func duration(v any, least, most time.Duration) (time.Duration, string) {
	s, _ := v.(string)
	d, err := time.ParseDuration(s)
	if err == nil && least <= d && d <= most {
		return d, ""
	}
	return 0, fmt.Sprintf("write a time with its unit, from %q to %q", short(least), short(most))
}

// short prints a duration without zero parts: "1m", not "1m0s".
func short(d time.Duration) string {
	s := d.String()
	s = strings.TrimSuffix(s, "0s")
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	if strings.HasSuffix(s, "m") || strings.HasSuffix(s, "h") {
		return s
	}
	return d.String()
}

// literal prints a value as TOML for an error message, shortened.
func literal(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		return strconv.Quote(foreign.Clip(x))
	case map[string]any, []map[string]any:
		return ""
	case []any:
		return "[…]"
	case float64:
		return float(x)
	case time.Time:
		return "a date or time"
	}
	return foreign.Clip(fmt.Sprint(v))
}

// float prints a float so that it cannot be taken for an integer.
func float(x float64) string {
	s := strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(x, 'g', -1, 64)), "+")
	if strings.Trim(s, "-0123456789") == "" {
		s += ".0"
	}
	return s
}

// dotted is the index of a key in a source.
func dotted(parts ...string) string { return toml.Key(parts).String() }
