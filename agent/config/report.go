package config

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// maxErrors is how many errors anyone reads.
const maxErrors = 100

// report gives the findings their lines and sorts them by these.
func (d *draft) report(name string) (errs []error, warnings []string) {
	bad, advice := d.locate(name, false), d.locate(name, true)
	for _, e := range bad[:min(len(bad), maxErrors)] {
		errs = append(errs, e)
	}
	if len(bad) > maxErrors {
		errs = append(errs, &Error{File: name, Problem: fmt.Sprintf("and more; these are the first %d errors", maxErrors)})
	}
	for _, e := range advice {
		warnings = append(warnings, e.Error())
	}
	return errs, warnings
}

// locate finds the lines of the errors or of the warnings, of one more than
// anyone reads: the TOML library tells positions slowly.
func (d *draft) locate(name string, warning bool) []*Error {
	var list []*Error
	sort.SliceStable(d.findings, func(i, j int) bool {
		return d.src.order(d.findings[i].key) < d.src.order(d.findings[j].key)
	})
	for _, f := range d.findings {
		if f.warning == warning && len(list) <= maxErrors {
			list = append(list, &Error{File: name, Line: d.src.line(f.key), Key: shown(f.key, f.value), Value: literal(f.value),
				Problem: f.problem})
		}
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].Line < list[j].Line })
	return list
}

// shown prints a key as TOML, the names of tables always in quotes.
func shown(key toml.Key, value any) string {
	key = slices.Clone(key)
	for i := range key {
		key[i] = foreign.Clip(key[i])
	}
	stray := len(key) == 2 && value != nil // a key where a table belongs
	if len(key) < 2 || stray || !isNamed(key[0]) {
		return key.String()
	}
	s := key[0] + "." + strconv.Quote(key[1])
	if rest := key[2:]; len(rest) > 0 {
		s += "." + rest.String()
	}
	return s
}

// oneLine keeps an error of the TOML library on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
