package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// explainArguments has every verb end a complaint about its arguments with what
// to write instead.
func explainArguments(c *cobra.Command) {
	if accept := c.Args; accept != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := accept(c, args); err != nil {
				return show.Usage(show.Hint(wrongArguments(c, args, err), usageHint(c, args)))
			}
			return nil
		}
	}
	for _, verb := range c.Commands() {
		explainArguments(verb)
	}
}

// wrongArguments names the argument that is missing or one too many.
func wrongArguments(c *cobra.Command, args []string, err error) error {
	_, wanted, _ := strings.Cut(c.Use, " ")
	wanted, _, _ = strings.Cut(wanted, " ")
	switch {
	case c.HasSubCommands() || len(c.ValidArgs) > 0:
		return err
	case len(args) == 0:
		return fmt.Errorf("%s is missing", wanted)
	case wanted == "":
		return fmt.Errorf("%q is one argument too many", args[0])
	default:
		return fmt.Errorf("%q is one argument too many", args[len(args)-1])
	}
}

func usageHint(c *cobra.Command, args []string) string {
	if len(args) == 0 || !c.HasSubCommands() {
		return "usage: " + c.UseLine()
	}
	c.SuggestionsMinimumDistance = 2 // two slips of the pen are a near miss
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return "did you mean " + c.CommandPath() + " " + near[0] + "?"
	}
	return c.CommandPath() + " --help lists what there is"
}

// flagError explains a flag that is unknown or whose value cannot be read.
func flagError(c *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return show.Usage(show.Hint(err, c.CommandPath()+" --help lists what there is"))
	}
	flag := invalid.GetFlag()
	return show.Usage(fmt.Errorf("--%s is %q; write %s", flag.Name, invalid.GetValue(), valueOf(flag.Value.Type())))
}

// valueOf describes the values of a type of flags.
func valueOf(kind string) string {
	switch kind {
	case "bool":
		return "true or false"
	case "int", "uint64":
		return "a whole number"
	case "intSlice":
		return "whole numbers, such as 1,2,4"
	case "float64":
		return "a number, such as 1.5"
	case "float64Slice":
		return "numbers, such as 5,10.5"
	case "duration":
		return "a time with its unit, such as 90s or 2h"
	}
	return "a " + kind
}

// exclusive has a verb reject a command line with more than one of these flags.
func exclusive(c *cobra.Command, names ...string) {
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if before != nil {
			if err := before(c, args); err != nil {
				return err
			}
		}
		var given []string
		for _, name := range names {
			if c.Flags().Changed(name) {
				given = append(given, "--"+name)
			}
		}
		if len(given) > 1 {
			return show.Usage(errors.New(strings.Join(given, " and ") + " do not go together"))
		}
		return nil
	}
}
