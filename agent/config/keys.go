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
	keys = append(keys, agentKeys()...)
	return keys
}

// Tables describes the tables in the order of the documentation.
func Tables() []Table {
	return []Table{
		{"sharing", "How GPUs are shared: what holds for every GPU of every host. The same keys may stand in " +
			"`[model.\"<product name>\"]`, `[host.\"<glob>\"]` and `[gpu.\"GPU-…\"]`."},
		{"request_vram", "What a job may say in `request_vram`."},
		{"cpu_only", "The part of the node kept for jobs without GPUs. The rest goes to the GPUs in proportion to their memory."},
		{"health", "How long a proof that a control daemon works is trusted."},
		{"htcondor", "The HTCondor installation."},
		{"metrics", "The Prometheus listener."},
		{"paths", "Where gpuslot writes, and the programs it runs."},
	}
}

// Table is one table of fixed name.
type Table struct{ Name, Meaning string }

// keysOf indexes the keys that may stand in a table of the given name.
func keysOf(table string) map[string]Key {
	keys := map[string]Key{}
	for _, k := range Keys() {
		if k.Table == table {
			keys[k.Name] = k
		}
	}
	return keys
}

// put stores a value that was read without a problem.
func put[T any](dst *T, v T, problem string) string {
	if problem == "" {
		*dst = v
	}
	return problem
}

// point is put for a field of a sharing table.
func point[T any](dst **T, v T, problem string) string { return put(dst, &v, problem) }
