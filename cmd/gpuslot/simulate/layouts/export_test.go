package layouts

import "github.com/gpuslot/gpuslot/mig"

// Run simulates one trace under one policy.
func Run(n Node, t Trace, p Policy) (Result, error) { return run(n, t, p, &mig.Catalogue{}) }
