package config

import (
	"path/filepath"
)

// PipeRoot is the directory that holds one pipe directory per GPU, named by its UUID.
func (p Paths) PipeRoot() string { return filepath.Join(p.Run, "mps") }

// PlanFile holds the plan in force, as plan.Read reads it.
func (p Paths) PlanFile() string { return filepath.Join(p.Run, "plan.json") }

// InventoryAds holds the ads that HTCondor's inventory program prints.
func (p Paths) InventoryAds() string { return filepath.Join(p.Run, "condor", "inventory.ad") }

// CondorConfig is the execution point's configuration that the agent writes.
func (p Paths) CondorConfig() string { return filepath.Join(p.Run, "condor", "execution-point.conf") }

// JobWrapper is a link to the site's own job wrapper; gpuslot-condor supervise
// follows it.
func (p Paths) JobWrapper() string { return filepath.Join(p.Run, "condor", "job-wrapper") }

// ClosuresFile holds who closed which GPU and why.
func (p Paths) ClosuresFile() string { return filepath.Join(p.State, "holds.json") }
