package simulate

// Policy is how the pool's GPUs are given to jobs.
type Policy struct {
	// Name stands in tables.
	Name string
	// Config is the text of a gpuslot.toml that holds for all nodes; empty leaves
	// each group its own.
	Config string
	// Slicing: GPUs that the plan shares are shared without a control daemon, in time slices.
	Slicing bool
}
