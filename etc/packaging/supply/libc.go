package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// glibc is linked into gpuslot-start, which is static.
const glibc = "glibc"

// banner is in libc.a: "GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36."
var banner = regexp.MustCompile(`GNU C Library \(([^)\n]*)\) [a-z]+ release version ([0-9.]*[0-9])`)

// cLibrary reads which C library an archive is, and its licence from the first of the files that is there.
func cLibrary(archive string, texts ...string) (module, found, error) {
	b, err := os.ReadFile(archive)
	if err != nil {
		return module{}, found{}, fmt.Errorf("the C library of gpuslot-start: %w", err)
	}
	says := banner.FindSubmatch(b)
	if says == nil {
		return module{}, found{}, fmt.Errorf("%s is not the GNU C Library: add its licence here if it may be used", archive)
	}
	m := module{Path: glibc, Version: string(says[2])}
	for word := range strings.FieldsSeq(string(says[1])) {
		if strings.HasPrefix(word, m.Version) {
			m.Version = word // the distribution's
		}
	}
	for _, name := range texts {
		if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), "GNU LESSER GENERAL PUBLIC LICENSE") {
			return m, found{"LGPL-2.1-or-later", []string{relinking, string(text)}}, nil
		}
	}
	return m, found{}, fmt.Errorf("the licence of %s is in none of %s", archive, strings.Join(texts, ", "))
}

// relinking is what section 6 of the licence asks for.
const relinking = `gpuslot-start is linked with this library, and its sources come with gpuslot (cmd/gpuslot-start). To link it with
another version of the library: make build.`

// lesser are where Debian, and Fedora with its relatives, keep the licence.
func lesser() []string {
	return []string{"/usr/share/common-licenses/LGPL-2.1", filepath.Join("/usr/share/licenses", glibc, "COPYING.LIB")}
}
