package doctor

import (
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// leastOpenFiles is what NVIDIA asks for a control daemon and its servers.
const leastOpenFiles = 16384

func checkRoot(f facts) []Finding {
	if f.root {
		return nil
	}
	return []Finding{{Note, "root", "doctor does not run as root",
		"The agent and the limits of its control daemons tell only root.", "sudo gpuslot doctor"}}
}

func checkConfiguration(f facts) []Finding {
	const check = "configuration"
	if f.configErr != nil {
		return []Finding{{Error, check, f.configErr.Error(),
			"The file is refused as a whole, so the agent keeps the plan it had; the checks below take the defaults.",
			"correct it until gpuslot plan accepts it, then systemctl reload gpuslotd"}}
	}
	if f.planErr != nil {
		return unchecked(check, "which GPUs are shared is not known: "+show.OneLine(f.planErr.Error()),
			"start the agent (systemctl start gpuslotd), or see what gpuslot plan says")
	}
	said := fine(check, "%d of %d GPUs are shared", len(f.shared()), len(f.plan.GPUs))
	if f.plan.Observe {
		said = fine(check, "%d GPUs are observed; gpuslot changes nothing here", len(f.plan.GPUs))
	}
	if n := f.pending(); n > 0 {
		said = append(said, Finding{Note, check,
			fmt.Sprintf("the file and the GPUs lead to another plan than the one in force, which differs in %d points", n),
			"What was edited counts from the next reload on.", "gpuslot plan, which shows them; systemctl reload gpuslotd"})
	}
	return said
}

// pending is in how many points the plan in force is not what follows from the
// configuration and the node.
func (f facts) pending() int {
	if !f.inForce || f.inventoryErr != nil || f.away() {
		return 0
	}
	p, err := plan.Build(f.config, f.inventory)
	if err != nil {
		return 0 // the agent says so
	}
	return len(plan.Diff(f.plan, p))
}

func checkPersistence(f facts) []Finding {
	const check = "persistence"
	if f.planErr == nil && len(f.shared()) == 0 {
		return fine(check, "no GPU is shared")
	}
	if f.persistenceErr != nil || f.planErr != nil {
		why := f.persistenceErr
		if why == nil {
			why = f.planErr
		}
		return unchecked(check, show.OneLine(why.Error()), "see what nvidia-smi -q -d PERSISTENCE_MODE says")
	}
	var unable, off []string
	for _, g := range f.shared() {
		switch on := f.persistence[g.UUID]; {
		case !on.Known:
			unable = append(unable, fmt.Sprint(g.Index))
		case !on.Value:
			off = append(off, fmt.Sprint(g.Index))
		}
	}
	var found []Finding
	if len(unable) > 0 {
		found = append(found, Finding{Level: Note, Check: check,
			What: "GPU " + strings.Join(unable, ", ") + ": there is no persistence mode"})
	}
	if len(off) > 0 {
		found = append(found, Finding{Warning, check, "GPU " + strings.Join(off, ", ") + ": persistence mode is off",
			"The driver starts the GPU again for the first client, which takes seconds; " +
				"until then clients may get CUDA error 807.",
			"systemctl enable --now nvidia-persistenced"})
	}
	if len(found) == 0 {
		return fine(check, "persistence mode is on for all shared GPUs")
	}
	return found
}

func checkUVM(f facts) []Finding {
	const check = "nvidia-uvm"
	switch {
	case f.planErr == nil && len(f.shared()) == 0:
		return fine(check, "no GPU is shared")
	case f.uvmErr == nil:
		return fine(check, "/dev/nvidia-uvm is there")
	}
	return []Finding{{Warning, check, show.OneLine(f.uvmErr.Error()),
		"CUDA cannot start without it. NVML does not make it. The setuid program nvidia-modprobe makes it, but not for " +
			"control daemons and their servers, which run with NoNewPrivileges.",
		"nvidia-modprobe -u -c 0, and at each boot: echo nvidia-uvm > /etc/modules-load.d/nvidia-uvm.conf"}}
}

func checkOpenFiles(f facts) []Finding {
	const check = "open files"
	switch {
	case f.statusErr != nil:
		return unchecked(check, "which processes are control daemons and servers is known from the agent",
			"see the finding about the agent")
	case f.planErr == nil && len(f.served()) == 0:
		return fine(check, "no GPU is shared through MPS")
	case f.away() && len(f.openFiles) == 0:
		return fine(check, "no control daemon runs: %s", f.status.Node.Headline())
	case len(f.openFiles) == 0:
		return unchecked(check, "no control daemon runs", "systemctl status 'gpuslot-mps@*'")
	}
	var found []Finding
	for _, o := range f.openFiles {
		switch {
		case o.err != nil:
			found = append(found, unchecked(check, fmt.Sprintf("%s, process %d: %s", o.what, o.pid, o.err),
				"run doctor again, as root")...)
		case o.soft < leastOpenFiles:
			found = append(found, Finding{Warning, check,
				fmt.Sprintf("%s, process %d, may open %d files, fewer than %d", o.what, o.pid, o.soft, leastOpenFiles),
				"Each client takes dozens; beyond the limit newcomers fail without a reason.",
				"take LimitNOFILE= out of the drop-ins that systemctl cat 'gpuslot-mps@*' shows (ours says 65536), " +
					"then gpuslot gpu restart GPU"})
		}
	}
	if len(found) == 0 {
		return fine(check, "%d control daemons and servers may open %d files or more", len(f.openFiles), leastOpenFiles)
	}
	return found
}

// checkTenancy says what those who share a GPU can do to each other.
func checkTenancy(f facts) []Finding {
	const check = "tenancy"
	if f.planErr != nil {
		return unchecked(check, "which GPUs are shared is not known", "see the finding about the configuration")
	}
	gpus := map[string][]string{}
	var keys []string
	for _, g := range f.shared() {
		if !g.MPS() && g.Tenancy.Policy == config.TenancyMultiUser {
			continue // its jobs have no server in common
		}
		key := string(g.Tenancy.Policy)
		if g.Tenancy.Policy == config.TenancyCommon {
			key += ":" + g.Tenancy.User
		}
		if gpus[key] == nil {
			keys = append(keys, key)
		}
		gpus[key] = append(gpus[key], fmt.Sprint(g.Index))
	}
	var found []Finding
	for _, key := range keys {
		on := "GPU " + strings.Join(gpus[key], ", ") + ": "
		switch {
		case key == string(config.TenancyMultiUser):
			found = append(found, sharedServer(on))
		case key != string(config.TenancyOneAtATime):
			found = append(found, sharedAccount(on, strings.TrimPrefix(key, string(config.TenancyCommon)+":"), f))
		}
	}
	if len(found) == 0 {
		return fine(check, "no MPS server and no account serves several users at a time")
	}
	return found
}

func sharedServer(on string) Finding {
	return Finding{Note, "tenancy", on + "one MPS server, root's, serves the jobs of all accounts",
		"One job's fatal GPU error ends the work of all accounts there, " +
			"and the server's log shows their command lines to each other.",
		`where that must not be: tenancy = "one-at-a-time", or keep groups apart with tenant = "accounting-group" or "vo"`}
}

func sharedAccount(on, user string, f facts) Finding {
	ptrace := "debug each other (the kernel has no kernel.yama.ptrace_scope)"
	if f.ptrace != "" {
		ptrace = fmt.Sprintf("debug each other (kernel.yama.ptrace_scope is %s: 0 lets all, 1 only parents, 2 only root, "+
			"3 nobody)", f.ptrace)
	}
	return Finding{Note, "tenancy", on + "all jobs run as the account " + user,
		fmt.Sprintf("Jobs of one account can send each other signals, read and change each other's files, "+
			"environments and credentials, %s, and %s.", ptrace, endsClients(f.status.MPS)),
		`an account for each user, and tenancy = "one-at-a-time"; else tenant = "accounting-group" or "vo" ` +
			`to keep groups apart, and kernel.yama.ptrace_scope = 2`}
}

// endsClients says what MPS lets the jobs of one account do.
func endsClients(all []api.Capability) string {
	const ends = "end each other's MPS clients (terminate_client), since the MPS server is their own account's"
	for _, c := range all {
		if c.Name != "privilege-checks" || c.Has == nil {
			continue
		}
		if *c.Has {
			return ends + "; the control daemon's defaults only root may change"
		}
		return ends + "; this control daemon also lets any account that reaches it change everybody's limits"
	}
	return ends + "; whether they may change the control daemon's limits is not known"
}

func checkAgent(f facts) []Finding {
	const check = "agent"
	switch {
	case f.statusErr != nil && !f.root && strings.Contains(f.statusErr.Error(), "refuses the request"):
		return unchecked(check, show.OneLine(f.statusErr.Error()), "sudo gpuslot doctor")
	case f.statusErr != nil && !f.inForce:
		return []Finding{{Error, check, show.OneLine(f.statusErr.Error()),
			"Without the agent no GPU takes jobs.", "systemctl enable --now gpuslotd; if that does not help: " +
				"journalctl -u gpuslotd"}}
	case f.statusErr != nil:
		return []Finding{{Error, check, show.OneLine(f.statusErr.Error()),
			"Without the agent no GPU takes jobs.", "journalctl -u gpuslotd says why; " +
				"systemctl restart gpuslotd.socket gpuslotd"}}
	}
	s := f.status
	var found []Finding
	add := func(l Level, what, why, do string) {
		found = append(found, Finding{l, check, show.OneLine(what), why, do})
	}
	if s.ConfigError != "" && f.configErr == nil { // else checkConfiguration says it
		add(Error, s.ConfigFile+" was rejected: "+s.ConfigError, "The plan before it is still in force.",
			"correct the file, then systemctl reload gpuslotd")
	}
	for _, e := range s.Errors {
		add(Error, e, "", "what the sentence says, then condor_reconfig; "+
			"slots need condor_restart -peaceful -daemon STARTD too")
	}
	if f.away() {
		add(Warning, s.Node.Headline(), "No GPU takes jobs.", "gpuslot node resume")
	}
	for _, g := range s.GPUs {
		if !g.Accept && !f.away() {
			add(Warning, fmt.Sprintf("GPU %d takes no jobs: %s", g.Index, show.OrDash(g.Reason)), "",
				`docs/runbook.md, "A GPU is closed"`)
		}
		if g.Unlisted != "" {
			add(Warning, fmt.Sprintf("GPU %d: %s", g.Index, g.Unlisted),
				"No budget counts it, and no job's own use is known for certain.", `docs/runbook.md, "Unlisted VRAM"`)
		}
	}
	for _, u := range s.Absent {
		add(Warning, u+" is configured, but not in this node", "",
			"dmesg | grep NVRM; a GPU that was taken out: remove its table from "+s.ConfigFile)
	}
	for _, w := range s.Warnings {
		add(Warning, w, "", "gpuslot status")
	}
	if len(found) == 0 {
		return fine(check, "gpuslotd %s answers and warns of nothing", s.Version)
	}
	return found
}

func checkEnforcement(f facts) []Finding {
	if f.statusErr != nil {
		return nil // said by checkAgent
	}
	var found []Finding
	for _, w := range f.status.MissingEnforcement {
		found = append(found, Finding{Note, "enforcement", show.OneLine(w), "",
			`docs/operations.md, "What each enforcement is worth"`})
	}
	if len(found) == 0 {
		return fine("enforcement", "the agent misses none")
	}
	return found
}
