package main

// exceptions are what is larger than the limits, with the reason. A number here may only shrink:
// who makes a package smaller lowers it. docs/decisions has what would be next.
var exceptions = rules{
	long: 2, // scripts in raw strings
	packages: map[string]size{
		"agent":                        {15, 2610, "the wiring of the parts, Run, the loop and apply, in one package: each part below it has its own state"},
		"agent/config":                 {22, 2800, "the named exception of the design: every key of gpuslot.toml with its type, its default and its error"},
		"agent/daemons":                {15, 1700, "one state machine for each GPU: probe, self-test, fault and restart decide on the same state"},
		"agent/plan":                   {26, 2600, "the named exception of the design: Build is pure, and its files are the steps of one calculation"},
		"agent/usage":                  {15, 2380, "the mathematics of attribution, and whose the processes are; its parts share the types of one sample"},
		"cmd/gpuslot":                  {46, 6400, "one file for each verb; a verb is thin, and there are many"},
		"cmd/gpuslot/advise":           {23, 3200, "one model of jobs and GPUs, from records to advice; its texts are in paper"},
		"cmd/gpuslot/bench":            {15, 1800, "results, figures and advice of one benchmark; the measuring is in measure"},
		"cmd/gpuslot/doctor":           {15, 2100, "one pure check for each thing that can be wrong with a node"},
		"cmd/gpuslot/simulate":         {35, 4700, "a pool in simulated time; its events share one world"},
		"cmd/gpuslot/simulate/layouts": {15, 1900, "policies of MIG layouts side by side on the same traces"},
		"condor":                       {37, 4600, "HTCondor's words: one generated configuration, whose parts refer to each other"},
		"gpu":                          {22, 2000, "the nouns of all other packages; they have no common state"},
		"gpu/nvml":                     {32, 3200, "the named exception of the design: one file for each family of NVML calls"},
		"mig":                          {28, 4710, "the named exception of the design: the exact planner, the steps, and the executor with its journal"},
		"mps":                          {27, 3600, "the named exception of the design: one control daemon with all that is measured of its behaviour"},
	},
	methods: map[string]count{
		"agent/budget.Limits":        {40, "one lock over the limits, and the steps that keep, repair and give them back"},
		"agent/daemons.Keeper":       {37, "one round over the control daemons, in steps that share its state"},
		"agent/isolation.Nodes":      {27, "one lock over the rules for device nodes, and the steps that keep them"},
		"agent/starter.Node":         {33, "questions about HTCondor's starters, all answered from /proc; it has no state"},
		"cmd/gpuslot/simulate.world": {31, "the events of the simulated pool"},
		"condor.text":                {32, "one method for each part of the generated configuration; it is a writer"},
		"gpu/process.FS":             {27, "the one reader of /proc; one method for each file there"},
		"mig.view":                   {33, "questions of the planner about one GPU's layouts; it is a value"},
		"mps.Daemon":                 {50, "one control daemon: its commands, its files and its processes"},
	},
	interfaces: map[string]count{
		"agent.Manager":       {4, "systemd's sd_notify(3) has these four messages"},
		"agent/verify.Client": {4, "the four steps of one CUDA client: see package cuda"},
		"mig.Hardware":        {4, "NVML's four changes of a GPU's layout, of which none makes sense alone"},
		"mps.Runner":          {4, "start, stop and ask for a unit, and list what runs: systemd and processes both have all four"},
	},
}
