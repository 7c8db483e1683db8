package config

// Key is one key of gpuslot.toml. The list of them is the only place that
// says which keys there are: reading, etc/gpuslot.toml and
// docs/configuration.md all follow it.
type Key struct {
	// Table is the key's table; keys of "sharing" may also stand in
	// [model."…"], [host."…"] and [gpu."…"].
	Table string
	Name  string
	// Type says what may be written.
	Type string
	// Default is the value of an absent key, as TOML.
	Default string
	// Meaning is for the operator: what it does, in what unit, and why one
	// would change it.
	Meaning string

	// notInGPU marks a sharing key without a meaning for a single GPU.
	notInGPU bool
	// set reads the value into the configuration or, for sharing keys, into
	// the table; it returns a problem, or nothing.
	set func(c *Config, t *table, v any) (problem string)
}

// Keys lists every key, table by table, in the order of the documentation.
func Keys() []Key {
	var keys []Key
	keys = append(keys, sharingKeys()...)
	keys = append(keys, jobKeys()...)
	keys = append(keys, elasticKeys()...)
	keys = append(keys, budgetKeys()...)
	keys = append(keys, repartitionKeys()...)
	keys = append(keys, growthKeys()...)
	keys = append(keys, usageKeys()...)
	keys = append(keys, agentKeys()...)
	return keys
}

// Table is one table, or kind of table, of gpuslot.toml.
type Table struct {
	Name string
	// Header is how one begins in the file.
	Header string
	// Named tables carry the name of what they are about.
	Named   bool
	Meaning string
}

// Tables lists the tables in the order of the documentation.
func Tables() []Table {
	return []Table{
		{"sharing", "[sharing]", false, "How GPUs are shared. " +
			"These keys apply to every GPU of every host, unless a more special table has the key too."},
		{"model", `[model."Tesla V100S-PCIE-32GB"]`, true,
			"The keys of `[sharing]` for one product, by the name that `gpuslot inventory` prints, with `*`, `?` and " +
				"`[a-z]`, in any case. If several match, the one with more literal characters wins."},
		{"host", `[host."wn-gpu*"]`, true, "The keys of `[sharing]` for the hosts whose name matches, with `*`, " +
			"`?` and `[a-z]`. A name without a dot is also compared with the host's short name. " +
			"If several match, the one with more literal characters wins."},
		{"gpu", `[gpu."GPU-…"]`, true, "The keys of `[sharing]`, except `whole`, for one GPU by its UUID or at least its " +
			"first 8 digits, and where it is expected. A GPU that is configured but absent is reported; it is no error."},
		{"request_vram", "[request_vram]", false, "What a job may say in `request_vram`."},
		{"cpu_only", "[cpu_only]", false, "The part of the node kept for jobs without GPUs. " +
			"The rest goes to the GPUs in proportion to their memory."},
		{"elastic", "[elastic]", false, "The GPUs with `mode = \"elastic\"`, " +
			"which serve shared jobs and whole jobs in turns."},
		{"placement", "[placement]", false, "Which jobs get a GPU's VRAM, and what a slot counts."},
		{"budgets", "[budgets]", false, "What happens to a job whose processes together use more VRAM than its budget."},
		{"growth", "[growth]", false, "Whether a job that meets the limit of its VRAM runs again with a larger request. " +
			"The access point needs its part of the configuration: `gpuslot condor-config --for access-point`."},
		{"usage", "[usage]", false, "The sampling of what jobs use."},
		{"repartition", "[repartition]", false, "How MIG layouts follow the work that waits, " +
			"where `repartition` is `suggest` or `auto`."},
		{"health", "[health]", false, "When a GPU takes jobs, " +
			"and how long a health check of its control daemon is valid."},
		{"htcondor", "[htcondor]", false, "The HTCondor installation."},
		{"metrics", "[metrics]", false, "The Prometheus listener."},
		{"paths", "[paths]", false, "Where gpuslot writes, and the programs it runs."},
	}
}

// isNamed reports whether the tables of a kind carry names.
func isNamed(kind string) bool {
	for _, t := range Tables() {
		if t.Name == kind {
			return t.Named
		}
	}
	return false
}

// keysOf indexes the keys that may stand in a table.
func keysOf(t Table) map[string]Key {
	keys := map[string]Key{}
	for _, k := range Keys() {
		pointless := k.notInGPU && t.Name == "gpu"
		shared := t.Named && k.Table == "sharing" && !pointless
		if shared || k.Table == t.Name {
			keys[k.Name] = k
		}
	}
	return keys
}

// put stores what was read without a problem.
func put[T any](dst *T) func(v T, problem string) string {
	return func(v T, problem string) string {
		if problem == "" {
			*dst = v
		}
		return problem
	}
}

// point is put for a field of a sharing table.
func point[T any](dst **T) func(v T, problem string) string {
	return func(v T, problem string) string { return put(dst)(&v, problem) }
}
