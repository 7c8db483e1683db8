package config

import (
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		RequestVRAM: RequestVRAM{Minimum: 1536, Quantum: 512, WithoutRequest: WithoutRequestAuto},
		CPUOnly:     CPUOnly{CPUs: Amount{Percent: 10}, Memory: Amount{Percent: 10}},
		Elastic:     Elastic{Patience: time.Minute, Stay: time.Hour, Offer: 5 * time.Minute},
		Placement:   Placement{SlotWeight: WeightSite},
		Budgets:     Budgets{Enforce: EnforceHold, Grace: 10 * time.Second},
		Usage:       Usage{Interval: time.Second},
		Repartition: Repartition{
			Dwell: 10 * time.Minute, ReserveAfter: time.Hour,
			ReserveFor: 12 * time.Hour,
		},
		Health: Health{
			Interval: 15 * time.Second,
			Open:     OpenAfterProof, Unattached: EnforceReport, AttachWithin: 30 * time.Second,
		},
		HTCondor: HTCondor{Manage: true, Supervise: true, Layout: LayoutOneStartd, Execute: "/var/lib/gpuslot/execute",
			Changes: ChangesNever},
		Metrics: Metrics{Listen: "127.0.0.1:9847", JobLabels: JobLabelsJob},
		Paths: Paths{
			Run:           "/run/gpuslot",
			State:         "/var/lib/gpuslot",
			ControlDaemon: "nvidia-cuda-mps-control",
			Libexec:       "/usr/libexec/gpuslot",
		},
		models: map[string]table{},
		gpus:   map[gpu.UUID]table{},
	}
}
