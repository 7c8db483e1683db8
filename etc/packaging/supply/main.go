// Command supply says what the built programs are made of: it reads the modules
// out of the binaries themselves, writes them as a CycloneDX SBOM, and collects
// their licences. A licence that it does not know, or that is not on the list
// below, is an error, so that no package is built with one.
//
// docs/decisions/0003-dependencies.md says why no kept tool does this. Start at run.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "supply: "+err.Error())
		os.Exit(1)
	}
}

// The files that it writes.
const (
	sbomFile     = "sbom.cdx.json"
	licencesFile = "third-party-licences.txt"
)

// run writes both files into a directory.
func run(ctx context.Context, args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("supply", flag.ContinueOnError)
	flags.SetOutput(stderr)
	version := flags.String("version", "unknown", "the `version` of gpuslot")
	into := flags.String("into", ".", "the `directory` for "+sbomFile+" and "+licencesFile)
	libc := flags.String("libc", "", "the `archive` of the C library that gpuslot-start is linked with")
	if err := flags.Parse(args); err != nil {
		return err
	}
	mods, err := modulesOf(flags.Args())
	if err != nil {
		return err
	}
	licences, err := licencesOf(ctx, mods)
	if err != nil {
		return err
	}
	if *libc != "" {
		m, its, err := cLibrary(*libc, lesser()...)
		if err != nil {
			return err
		}
		mods, licences[m] = append(mods, m), its
	}
	doc, err := sbom(*version, mods, licences)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*into, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(*into, sbomFile), doc, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*into, licencesFile), licenceTexts(mods, licences), 0o644)
}
