package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRun reads what this very test binary is made of.
func TestRun(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dirs := []string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		if err := run(t.Context(), []string{"-version", "v1", "-into", dir, exe}, t.Output()); err != nil {
			t.Fatal(err)
		}
	}
	text := equal(t, filepath.Join(dirs[0], sbomFile), filepath.Join(dirs[1], sbomFile))
	equal(t, filepath.Join(dirs[0], licencesFile), filepath.Join(dirs[1], licencesFile))
	var d document
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(d.Components, func(c component) bool { return c.Name == std && c.Licences[0].Licence.ID == "BSD-3-Clause" }) {
		t.Errorf("Go's own library is not among %d components", len(d.Components))
	}
}

func equal(t *testing.T, a, b string) string {
	t.Helper()
	one, errA := os.ReadFile(a)
	two, errB := os.ReadFile(b)
	if errA != nil || errB != nil || string(one) != string(two) || len(one) == 0 {
		t.Errorf("%s: %d and %d bytes in two runs; %v, %v", filepath.Base(a), len(one), len(two), errA, errB)
	}
	return string(one)
}

func TestLicenceIn(t *testing.T) {
	for name, test := range map[string]struct{ file, text, id string }{
		"mit":       {"LICENSE", "Permission is hereby granted, free of\ncharge, to any person obtaining a copy", "MIT"},
		"apache":    {"LICENSE.txt", "  Apache License\n  Version 2.0, January 2004", "Apache-2.0"},
		"bsd":       {"COPYING", "Redistribution and use in source and binary forms … to endorse or promote products", "BSD-3-Clause"},
		"copyleft":  {"LICENSE", "GNU GENERAL PUBLIC LICENSE Version 3", ""},
		"none":      {"README", "MIT", ""},
		"own words": {"LICENSE", "do as you like", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, test.file), []byte(test.text), 0o644); err != nil {
				t.Fatal(err)
			}
			f, err := licenceIn(dir)
			if f.id != test.id || (err == nil) != (test.id != "") {
				t.Errorf("%q, %v; want %q", f.id, err, test.id)
			}
			if err != nil && !strings.Contains(err.Error(), "read it, and add it") {
				t.Errorf("%v does not say what to do", err)
			}
		})
	}
}

func TestDecodeSum(t *testing.T) {
	// SHA-256 of nothing, in both forms.
	got, err := decodeSum("h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")
	if want := "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"; err != nil || got != want {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range []string{"", "h1:", "h2:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", "h1:AAAA"} {
		if got, err := decodeSum(bad); err == nil {
			t.Errorf("decodeSum(%q) = %q", bad, got)
		}
	}
}
