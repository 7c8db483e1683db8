package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

func checkConfigCommand(f *flags) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "check-config [FILE]",
		Short: "Check a configuration file, and print every error",
		Long: `check-config reads a gpuslot.toml as the agent would, and prints every error with
file, line, key, value and what would be right; then its warnings. "-" is stdin,
without FILE it is the file of --config; the default one may be missing. It needs no GPU, no agent and no rights,
so that configuration management can ask it before it puts a file in place.

Whether a node's GPUs allow what the file wants is for "gpuslot plan" to say, with
--inventory also for another node.

Exit code 3: the file has errors, and the agent would keep what it had.`,
		Example: `  gpuslot check-config /etc/gpuslot/gpuslot.toml
  gpuslot check-config --json new.toml | jq -r '.errors[].line'
  gpuslot plan --config new.toml --inventory node.json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			file := f.config
			if len(args) == 1 {
				file = args[0]
			}
			optional := len(args) == 0 && !c.Flags().Changed("config")
			said, err := checkConfig(file, c.InOrStdin(), optional)
			if err != nil {
				return err
			}
			if !asJSON {
				said.text(c.OutOrStdout())
			} else if err := show.JSON(c.OutOrStdout(), said); err != nil {
				return err
			}
			if !said.Accepted {
				return quits{nil, exitFound}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// configSaid is what there is to say about a configuration file.
type configSaid struct {
	File string `json:"file"`
	// Absent: there is no default file, which means all defaults.
	Absent   bool            `json:"absent,omitempty"`
	Accepted bool            `json:"accepted"`
	Errors   []*config.Error `json:"errors"`
	// Warnings are known only of a file without errors.
	Warnings []string `json:"warnings"`
}

func (s configSaid) text(w io.Writer) {
	for _, e := range s.Errors {
		fmt.Fprintln(w, e)
	}
	show.Warn(w, s.Warnings)
	switch {
	case s.Absent:
		fmt.Fprintf(w, "%s: there is no such file; all defaults are used\n", s.File)
	case s.Accepted:
		fmt.Fprintf(w, "%s: accepted\n", s.File)
	}
}

// checkConfig judges a file; its error is that the file could not be read. An optional
// one may be missing.
func checkConfig(file string, stdin io.Reader, optional bool) (configSaid, error) {
	said := configSaid{File: file, Errors: []*config.Error{}, Warnings: []string{}}
	cfg, err := readConfig(file, stdin)
	if err == nil {
		said.Accepted = true
		said.Warnings = append(said.Warnings, cfg.Warnings...)
		return said, nil
	}
	if optional && errors.Is(err, fs.ErrNotExist) {
		said.Accepted, said.Absent = true, true
		return said, nil
	}
	for _, e := range each(err) {
		var place *config.Error
		if !errors.As(e, &place) {
			return configSaid{}, err
		}
		said.Errors = append(said.Errors, place)
	}
	return said, nil
}

// mostConfig is more than config accepts, so that it can say so.
const mostConfig = 2 << 20

func readConfig(file string, stdin io.Reader) (config.Config, error) {
	if file != "-" {
		return config.Load(file)
	}
	text, err := io.ReadAll(io.LimitReader(stdin, mostConfig))
	if err != nil {
		return config.Config{}, fmt.Errorf("read stdin: %w", err)
	}
	return config.Parse("stdin", text)
}

// each takes joined errors apart.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
