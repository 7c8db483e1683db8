package startd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/condor"
)

// Changes are what HTCondor's startds do not run yet of a node, each with the
// jobs that a restart concerns and what it waits for; none if all is as planned.
// It is pure.
func Changes(n condor.Node, running []api.StatusStartd, policy config.Changes) []api.Change {
	text, err := condor.ExecutionPoint(n)
	if err != nil {
		return nil // the plan's defect is told where the file is written
	}
	var out []api.Change
	for _, s := range condor.Startds(n) {
		now, ok := startdNamed(running, s.Name)
		c := api.Change{Daemon: s.Daemon(), Startd: s.Name, Plan: s.Plan}
		switch {
		case !ok && s.Name == "":
			continue // it does not answer: told elsewhere
		case !ok:
			c.Need = api.NeedStart
		case !slices.Equal(now.Layout, s.Layout) ||
			slices.ContainsFunc(now.Plans, func(p string) bool { return p != s.Plan }):
			c.Need, c.Jobs, c.GPUs = api.NeedRestart, now.Jobs, now.GPUs
		case slices.ContainsFunc(now.Configs, func(h string) bool { return h != condor.ConfigOf(text) }):
			c.Need = api.NeedReconfig
		default:
			continue
		}
		if c.Need != api.NeedReconfig {
			c.Blocked = blockedBy(s, running)
		}
		c.Says = says(c, policy)
		out = append(out, c)
	}
	return oneReconfig(block(append(out, unwanted(n, running, policy)...), policy))
}

// unwanted are startds of another layout that still run.
func unwanted(n condor.Node, running []api.StatusStartd, policy config.Changes) []api.Change {
	wanted := condor.Startds(n)
	var out []api.Change
	for _, now := range running {
		if slices.ContainsFunc(wanted, func(s condor.Startd) bool { return s.Name == now.Name }) {
			continue
		}
		c := api.Change{Daemon: now.Daemon, Startd: now.Name, Need: api.NeedStop, Jobs: now.Jobs, GPUs: now.GPUs}
		c.Says = says(c, policy)
		out = append(out, c)
	}
	return out
}

// block keeps condor_reconfig back while it would end jobs: the condor_master
// then stops what is no longer in DAEMON_LIST, jobs or not.
func block(all []api.Change, policy config.Changes) []api.Change {
	i := slices.IndexFunc(all, func(c api.Change) bool { return c.Need == api.NeedStop && len(c.Jobs) > 0 })
	if i < 0 {
		return all
	}
	busy := all[i].Daemon
	for k := range all {
		if c := &all[k]; c.Need != api.NeedRestart && c.Blocked == "" {
			c.Blocked = busy
			c.Says = says(*c, policy)
		}
	}
	return all
}

// Explained names the setting: where a setting of the site's keeps a startd from its slots, a restart
// changes nothing, and that setting has to change first.
func Explained(all []api.Change, overridden []condor.Override) []api.Change {
	i := slices.IndexFunc(overridden, func(o condor.Override) bool { return o.Breaks == condor.BreaksLayout })
	if i < 0 {
		return all
	}
	for k := range all {
		if c := &all[k]; c.Need == api.NeedRestart {
			c.Blocked = overridden[i].Setting.Name
			c.Says = fmt.Sprintf("%s has other slots than planned, and a restart does not change that: %s.", c.Daemon,
				overridden[i].Says)
		}
	}
	return all
}

func startdNamed(running []api.StatusStartd, name string) (api.StatusStartd, bool) {
	i := slices.IndexFunc(running, func(s api.StatusStartd) bool { return s.Name == name })
	if i < 0 {
		return api.StatusStartd{}, false
	}
	return running[i], true
}

// blockedBy is another startd that still offers a GPU which this one is to
// offer: two must never do so at one time.
func blockedBy(s condor.Startd, running []api.StatusStartd) string {
	for _, other := range running {
		if other.Name == s.Name {
			continue
		}
		for _, u := range s.Devices {
			if slices.Contains(other.GPUs, string(u)) {
				return other.Daemon
			}
		}
	}
	return ""
}

// oneReconfig: condor_reconfig speaks to all daemons, so it is told once.
func oneReconfig(all []api.Change) []api.Change {
	told := false
	return slices.DeleteFunc(all, func(c api.Change) bool {
		again := c.Need == api.NeedReconfig && told
		told = told || c.Need == api.NeedReconfig
		return again
	})
}

// says is a change as a sentence for the operator.
func says(c api.Change, policy config.Changes) string {
	switch {
	case c.Need == api.NeedStop && len(c.Jobs) > 0:
		return fmt.Sprintf("%s is not wanted any more: %s; until they have ended condor_reconfig would end them.", c.Daemon,
			jobWords(c.Jobs))
	case c.Need == api.NeedStop && policy == config.ChangesNever:
		return fmt.Sprintf(`%s is not wanted any more: condor_reconfig stops it (htcondor.changes = "never").`, c.Daemon)
	case c.Need == api.NeedStop:
		return fmt.Sprintf("%s is not wanted any more: condor_reconfig stops it.", c.Daemon)
	case c.Need == api.NeedReconfig && c.Blocked != "":
		return fmt.Sprintf("HTCondor has not read its new configuration: "+
			"that waits for %s, whose jobs condor_reconfig would end.", c.Blocked)
	case c.Need == api.NeedReconfig && policy == config.ChangesNever:
		return `HTCondor has not read its new configuration: run condor_reconfig, which touches no job (htcondor.changes ` +
			`= "never").`
	case c.Need == api.NeedReconfig:
		return "HTCondor reads its new configuration by condor_reconfig, which touches no job."
	case c.Blocked != "":
		return fmt.Sprintf("%s waits: %s still offers a GPU that it is to offer.", c.Daemon, c.Blocked)
	case c.Need == api.NeedStart && policy == config.ChangesNever:
		return fmt.Sprintf(`%s does not run: condor_reconfig starts it (htcondor.changes = "never").`, c.Daemon)
	case c.Need == api.NeedStart:
		return fmt.Sprintf("%s does not run: condor_reconfig starts it.", c.Daemon)
	}
	return fmt.Sprintf("%s runs an older layout: %s", c.Daemon, restartSays(c, policy))
}

func restartSays(c api.Change, policy config.Changes) string {
	jobs := jobWords(c.Jobs)
	switch {
	case policy == config.ChangesNever:
		return fmt.Sprintf(
			`%s; condor_restart -peaceful -daemon %s lets it take no new ones and restarts it when they have ended `+
				`(htcondor.changes = "never").`,
			jobs,
			c.Daemon,
		)
	case len(c.Jobs) == 0:
		return jobs + ", so it restarts now."
	case policy == config.ChangesDrain:
		return jobs + "; it takes no new ones and restarts when they have ended."
	}
	return jobs + "; it restarts when none runs."
}

// jobWords names the jobs by slot and id, the first ones of many.
func jobWords(jobs []api.ChangeJob) string {
	const most = 8
	var names []string
	for _, j := range jobs[:min(len(jobs), most)] {
		names = append(names, j.Slot+" "+j.ID)
	}
	if len(jobs) > most {
		names = append(names, "…")
	}
	switch len(jobs) {
	case 0:
		return "no job runs on it"
	case 1:
		return "1 job runs on it (" + names[0] + ")"
	}
	return fmt.Sprintf("%d jobs run on it (%s)", len(jobs), strings.Join(names, ", "))
}
