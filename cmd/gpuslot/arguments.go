package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// explainArguments has every verb end a complaint about its arguments with what
// to write instead.
func explainArguments(c *cobra.Command) {
	if accept := c.Args; accept != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := accept(c, args); err != nil {
				return show.Hint(err, usageHint(c, args))
			}
			return nil
		}
	}
	for _, verb := range c.Commands() {
		explainArguments(verb)
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

// flagHint is what to do about a flag that cannot be read.
func flagHint(c *cobra.Command, err error) string {
	if strings.Contains(err.Error(), "time: missing unit") { // of time.ParseDuration
		return "write a time with its unit, such as 90s or 2h"
	}
	return c.CommandPath() + " --help lists what there is"
}
