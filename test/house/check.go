package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// What a package may be before it needs a reason.
const (
	mostFiles     = 15
	mostLines     = 1500
	mostMethods   = 25
	mostInterface = 3
)

// size is how large a package may be that has a reason. The numbers may only shrink.
type size struct {
	files, lines int
	reason       string
}

// count is a limit for a type or an interface that has a reason. It may only shrink.
type count struct {
	most   int
	reason string
}

// rules are the exceptions.
type rules struct {
	packages            map[string]size
	methods, interfaces map[string]count
	// long is how many lines have more than mostColumns columns.
	long int
}

// check compares packages with the limits, and the exceptions with the packages: one that is
// not needed any more goes.
func (r rules) check(packages []*pkg) []string {
	var out []string
	long := 0
	bad := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	methods, interfaces, known := map[string]int{}, map[string]int{}, map[string]bool{}
	for _, p := range packages {
		known[p.path] = true
		for name, n := range p.methods {
			methods[p.path+"."+name] = n
		}
		for name, n := range p.interfaces {
			interfaces[p.path+"."+name] = n
		}
		long += len(p.long)
		most, named := r.packages[p.path]
		switch {
		case named && p.files <= mostFiles && p.lines <= mostLines:
			bad("%s has %d files and %d lines: it needs no exception any more", p.path, p.files, p.lines)
		case !named:
			most = size{files: mostFiles, lines: mostLines}
		}
		if p.files > max(most.files, mostFiles) || p.lines > max(most.lines, mostLines) {
			bad("%s has %d files and %d lines, at most %d and %d are allowed: cut it", p.path, p.files, p.lines,
				max(most.files, mostFiles), max(most.lines, mostLines))
		}
	}
	if long > r.long {
		bad("%d lines have more than %d columns, at most %d are allowed", long, mostColumns, r.long)
	}
	for _, path := range slices.Sorted(maps.Keys(r.packages)) {
		if !known[path] {
			bad("%s has an exception and does not exist", path)
		}
		if r.packages[path].reason == "" {
			bad("%s has an exception without a reason", path)
		}
	}
	out = append(out, counts("methods", methods, mostMethods, r.methods)...)
	return append(out, counts("methods as an interface", interfaces, mostInterface, r.interfaces)...)
}

// counts compares types with a limit.
func counts(what string, have map[string]int, most int, named map[string]count) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(have)) {
		limit, ok := named[name]
		switch {
		case have[name] > max(most, limit.most):
			out = append(out, fmt.Sprintf("%s has %d %s, at most %d are allowed: cut it", name, have[name], what,
				max(most, limit.most)))
		case ok && have[name] <= most:
			out = append(out, fmt.Sprintf("%s has %d %s: it needs no exception any more", name, have[name], what))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if _, ok := have[name]; !ok {
			out = append(out, fmt.Sprintf("%s has an exception and does not exist", name))
		}
		if strings.TrimSpace(named[name].reason) == "" {
			out = append(out, fmt.Sprintf("%s has an exception without a reason", name))
		}
	}
	return out
}
