package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// found is the licence of one module.
type found struct {
	// id is SPDX's (spdx.org/licenses).
	id string
	// texts are the licence and notice files, which must come with the binary.
	texts []string
}

// licencesOf finds each module's licence in its own files.
func licencesOf(ctx context.Context, mods []module) (map[module]found, error) {
	dirs, err := directories(ctx, mods)
	if err != nil {
		return nil, err
	}
	all := map[module]found{}
	for _, m := range mods {
		if all[m], err = licenceIn(dirs[m.Path]); err != nil {
			return nil, fmt.Errorf("%s %s: %w", m.Path, m.Version, err)
		}
	}
	return all, nil
}

// directories are where the modules' files lie: they were there for the build.
func directories(ctx context.Context, mods []module) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	args := []string{"list", "-m", "-f", "{{.Path}}\t{{.Dir}}"}
	for _, m := range mods {
		if m.Path != std {
			args = append(args, m.Path)
		}
	}
	out, err := exec.CommandContext(ctx, "go", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("find the files of the modules: go list -m: %w", err)
	}
	dirs := map[string]string{std: strings.TrimSpace(string(root))}
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), "\t")
		dirs[path] = dir
	}
	return dirs, nil
}

// licenceIn reads the files in which licences are by custom.
func licenceIn(dir string) (found, error) {
	var f found
	if dir == "" {
		return f, fmt.Errorf("its files are not here: go mod download")
	}
	var files []string
	for _, pattern := range []string{"LICENSE*", "LICENCE*", "COPYING*", "NOTICE*"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return f, err
		}
		files = append(files, names...)
	}
	slices.Sort(files)
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return f, err
		}
		f.texts = append(f.texts, string(text))
		if id := identify(string(text)); f.id == "" {
			f.id = id
		}
	}
	if f.id == "" {
		return f, fmt.Errorf("no licence that is known here in %s: read it, and add it to identify if it may be used", dir)
	}
	return f, nil
}

// identify knows the licences that may be used, by sentences that only they
// have. All of them ask for their text beside the binary, and for no more.
func identify(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	has := func(s string) bool { return strings.Contains(text, s) }
	switch {
	case has("Apache License Version 2.0, January 2004"):
		return "Apache-2.0"
	case has("Permission is hereby granted, free of charge, to any person obtaining a copy"):
		return "MIT"
	case has("Redistribution and use in source and binary forms") && has("endorse or promote products"):
		return "BSD-3-Clause"
	case has("Redistribution and use in source and binary forms"):
		return "BSD-2-Clause"
	case has("Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee"):
		return "ISC"
	}
	return ""
}

// licenceTexts is what must come with the binaries.
func licenceTexts(mods []module, licences map[module]found) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "gpuslot is under the Apache License 2.0 (LICENSE). Its programs hold these modules:\n\n")
	for _, m := range mods {
		fmt.Fprintf(&b, "%-50s %-40s %s\n", m.Path, m.Version, licences[m].id)
	}
	for _, m := range mods {
		fmt.Fprintf(&b, "\n%s\n%s %s\n", strings.Repeat("=", 78), m.Path, m.Version)
		for _, text := range licences[m].texts {
			fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(text))
		}
	}
	return b.Bytes()
}
