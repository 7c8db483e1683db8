package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// showFollowed prints what the agent decided for the work that waits.
func showFollowed(c *cobra.Command, socket string, asJSON bool) error {
	s, err := api.AskStatus(c.Context(), socket)
	if err != nil {
		return err
	}
	if len(s.Repartition) == 0 {
		return show.Hint(errors.New("no GPU of this node follows the work that waits"),
			`set repartition = "suggest" where mode = "mig", or plan a layout of your own with --want`)
	}
	if asJSON {
		return show.JSON(c.OutOrStdout(), s.Repartition)
	}
	for i, r := range s.Repartition {
		if i > 0 {
			fmt.Fprintln(c.OutOrStdout())
		}
		followedText(c.OutOrStdout(), r)
	}
	return nil
}

func followedText(w io.Writer, r api.StatusRepartition) {
	if len(r.Demand) > 0 {
		var t show.Table
		t.Row("PROFILE", "JOBS", "HERE", "WAITS")
		for _, d := range r.Demand {
			t.Row(d.Profile, strconv.Itoa(d.Jobs), strconv.Itoa(d.Here), (time.Duration(d.WaitsSeconds) * time.Second).String())
		}
		t.Print(w)
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, followed(r))
	for _, s := range r.Steps {
		fmt.Fprintf(w, "  %s\n", s)
	}
	for _, s := range r.Reserved {
		fmt.Fprintf(w, "  kept free: %s\n", s)
	}
	other := r.Other
	for _, u := range r.Unserved {
		fmt.Fprintf(w, "Left out: idle jobs (%d) of %s.\n", u.Jobs, u.Why)
		other -= u.Jobs
	}
	if other > 0 {
		fmt.Fprintf(w, "%d idle jobs want what no place of mig_layout serves, "+
			"or require what gpuslot does not understand.\n", other)
	}
}

// followed is a sentence about one setting.
func followed(r api.StatusRepartition) string {
	switch {
	case r.Error != "":
		return fmt.Sprintf("repartition = %s: nothing could be decided: %s", r.Setting, r.Error)
	case r.At.IsZero():
		return fmt.Sprintf("repartition = %s: nothing was decided yet", r.Setting)
	case r.Told.IsZero():
		return fmt.Sprintf("repartition = %s: no access point reports what its jobs wait for; "+
			"see gpuslot condor-config --for access-point", r.Setting)
	}
	return fmt.Sprintf("repartition = %s, %s: %s", r.Setting, clock(r.At), strings.TrimSuffix(r.Why, "."))
}
