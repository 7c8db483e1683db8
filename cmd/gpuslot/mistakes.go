package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// adviseArgs lets mistakes in the words of a command line end with what to do.
func adviseArgs(c *cobra.Command) {
	if inner := c.Args; inner != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := inner(c, args); err != nil {
				return advised{err, argsHint(c, args)}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		adviseArgs(sub)
	}
}

// argsHint is how the command is written, or which one may have been meant.
func argsHint(c *cobra.Command, args []string) string {
	if !c.HasSubCommands() {
		return "write it as: " + c.UseLine()
	}
	if meant := meantBy(c, args[0]); len(meant) > 0 {
		return "did you mean " + strings.Join(meant, " or ") + "?"
	}
	return c.CommandPath() + " --help lists what there is"
}

// typos is how many letters of a verb may be wrong.
const typos = 2

// meantBy are the verbs of c that are written much like a word, and those
// anywhere that are called so.
func meantBy(c *cobra.Command, word string) []string {
	var meant []string
	c.SuggestionsMinimumDistance = typos
	for _, name := range c.SuggestionsFor(word) {
		meant = append(meant, c.CommandPath()+" "+name)
	}
	for _, verb := range c.Root().Commands() {
		for _, sub := range verb.Commands() {
			if sub.Name() == word && !slices.Contains(meant, sub.CommandPath()) {
				meant = append(meant, sub.CommandPath())
			}
		}
	}
	return meant
}

// flagHint is what to do about a flag that cannot be read.
func flagHint(c *cobra.Command, err error) string {
	if strings.Contains(err.Error(), "time: missing unit") { // of time.ParseDuration
		return "write a time with its unit, such as 90s or 2h"
	}
	return c.CommandPath() + " --help lists what there is"
}
