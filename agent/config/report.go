package config

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxErrors is how many errors anyone reads.
const maxErrors = 100

// report sorts the findings by their place and gives each its line.
func (d *draft) report(name string) (errs []error, warnings []string) {
	sort.SliceStable(d.findings, func(i, j int) bool {
		return d.src.order(d.findings[i].key) < d.src.order(d.findings[j].key)
	})
	for _, f := range d.findings {
		if len(errs) == maxErrors {
			errs = append(errs, &Error{File: name, Problem: fmt.Sprintf("and more; these are the first %d errors", maxErrors)})
			break
		}
		e := &Error{File: name, Line: d.src.line(f.key), Key: shown(f.key, f.value), Value: literal(f.value), Problem: f.problem}
		if f.warning {
			warnings = append(warnings, e.Error())
		} else {
			errs = append(errs, e)
		}
	}
	return errs, warnings
}

// shown prints a key as TOML, the names of tables always in quotes.
func shown(key toml.Key, value any) string {
	stray := len(key) == 2 && value != nil // a key where a table belongs
	if len(key) < 2 || stray || !isNamed(key[0]) {
		return key.String()
	}
	s := key[0] + "." + strconv.Quote(clip(key[1]))
	if rest := key[2:]; len(rest) > 0 {
		s += "." + rest.String()
	}
	return s
}

// oneLine keeps an error of the TOML library on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
