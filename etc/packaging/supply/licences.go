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
	all := map[module]found{}
	for _, m := range mods {
		dir, err := directory(ctx, m)
		if err != nil {
			return nil, err
		}
		if all[m], err = licenceIn(dir); err != nil {
			return nil, fmt.Errorf("%s %s: %w", m.Path, m.Version, err)
		}
	}
	return all, nil
}

// directory is where the module's files lie: they were there for the build.
func directory(ctx context.Context, m module) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	args := []string{"list", "-m", "-f", "{{.Dir}}", m.Path}
	if m.Path == std {
		args = []string{"env", "GOROOT"}
	}
	out, err := exec.CommandContext(ctx, "go", args...).Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		return "", fmt.Errorf("find the files of %s: go %s: %w", m.Path, strings.Join(args, " "), err)
	}
	return dir, nil
}

// licenceIn reads the files in which licences are by custom.
func licenceIn(dir string) (found, error) {
	var f found
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
