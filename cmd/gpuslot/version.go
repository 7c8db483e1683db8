package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// version and commit are set by the linker (-X main.version=…); empty in a
// plain go build.
var version, commit string

// build is what "gpuslot version --json" prints.
type build struct {
	Version string `json:"version"`
	// Commit is the revision of the sources; empty if the build does not know it.
	Commit string `json:"commit,omitempty"`
	Go     string `json:"go"`
	System string `json:"system"`
}

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version of gpuslot",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b := thisBuild()
			if asJSON {
				return show.JSON(c.OutOrStdout(), b)
			}
			fmt.Fprintf(c.OutOrStdout(), "gpuslot %s\n", b)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (b build) String() string {
	about := []string{b.Go, b.System}
	if b.Commit != "" {
		about = append([]string{"commit " + b.Commit}, about...)
	}
	return b.Version + " (" + strings.Join(about, ", ") + ")"
}

func thisBuild() build {
	b := build{Version: programVersion(), Commit: commit, Go: runtime.Version(),
		System: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok || commit != "" {
		return b
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = s.Value
		}
	}
	return b
}

// programVersion is what the linker was told, or what the go command knows.
func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
