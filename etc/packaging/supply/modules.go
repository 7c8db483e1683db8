package main

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"slices"
	"strings"
)

// module is one that a binary is made of.
type module struct {
	Path, Version string
	// Sum is what go.sum says of it ("h1:…"); empty for Go's own library.
	Sum string
}

// std is the module that stands for Go's own library.
const std = "std"

// modulesOf reads the modules of binaries, each once, in order of their paths.
func modulesOf(binaries []string) ([]module, error) {
	if len(binaries) == 0 {
		return nil, fmt.Errorf("no binary given")
	}
	var all []module
	for _, path := range binaries {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read what %s is made of: %w", path, err)
		}
		all = append(all, module{Path: std, Version: strings.TrimPrefix(info.GoVersion, "go")})
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			all = append(all, module{d.Path, d.Version, d.Sum})
		}
	}
	slices.SortFunc(all, func(a, b module) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Version, b.Version))
	})
	return slices.Compact(all), nil
}
