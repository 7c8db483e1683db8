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

// TestCLibrary: the version is the distribution's where the archive has it.
func TestCLibrary(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	licence := put("LGPL-2.1", "\t\t  GNU LESSER GENERAL PUBLIC LICENSE\n\t\t       Version 2.1, February 1999\n")
	other, missing := put("other", "do as you like"), filepath.Join(dir, "missing")
	for name, test := range map[string]struct {
		text    string
		texts   []string
		version string
		err     string
	}{
		"Debian":         {"\x00GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\n", []string{missing, licence}, "2.36-9+deb12u14", ""},
		"RHEL":           {"\x00GNU C Library (GNU libc) stable release version 2.34.\n", []string{other, licence}, "2.34", ""},
		"unnamed":        {"GNU C Library () development release version 2.40.9000.\n", []string{licence}, "2.40.9000", ""},
		"another":        {"musl", []string{licence}, "", "is not the GNU C Library"},
		"no licence":     {"GNU C Library (GNU libc) stable release version 2.34.\n", []string{missing}, "", "is in none of"},
		"another's text": {"GNU C Library (GNU libc) stable release version 2.34.\n", []string{other}, "", "is in none of"},
	} {
		m, its, err := cLibrary(put("libc.a", test.text), test.texts...)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || m.Version != test.version || its.id != "LGPL-2.1-or-later" || len(its.texts) != 2 {
			t.Errorf("%s: %+v, %q, %v", name, m, its.id, err)
		}
	}
	if _, _, err := cLibrary(missing, licence); err == nil {
		t.Error("a missing archive is no error")
	}
}

// TestCLibraryInSBOM: the SBOM and the licences have it beside the modules.
func TestCLibraryInSBOM(t *testing.T) {
	m := module{Path: glibc, Version: "2.36-9+deb12u14"}
	licences := map[module]found{m: {"LGPL-2.1-or-later", []string{"its text"}}}
	doc, err := sbom("v1", []module{m}, licences)
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(doc, &d); err != nil || len(d.Components) != 1 {
		t.Fatalf("%v, %s", err, doc)
	}
	if c := d.Components[0]; c.PURL != "pkg:generic/glibc@2.36-9%2Bdeb12u14" || c.Ref != c.PURL || c.Licences[0].Licence.ID != "LGPL-2.1-or-later" || c.Hashes != nil {
		t.Errorf("%+v", c)
	}
	if text := string(licenceTexts([]module{m}, licences)); !strings.Contains(text, "its text") {
		t.Errorf("the licences are %s", text)
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
