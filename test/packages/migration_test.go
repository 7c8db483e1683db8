package packages

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// What a site without gpuslot may have: one control daemon for all GPUs, and
// GPUs that HTCondor offers several times.
const (
	handUnit = `[Unit]
Description=the site's MPS control daemon
[Service]
Environment=CUDA_MPS_PIPE_DIRECTORY=/run/site-mps CUDA_MPS_LOG_DIRECTORY=/run/site-mps
RuntimeDirectory=site-mps
RuntimeDirectoryMode=0777
ExecStart=/usr/bin/nvidia-cuda-mps-control -f
[Install]
WantedBy=multi-user.target
`
	handConfig = `use feature:GPUs
GPU_DISCOVERY_EXTRA = -repeat 4
STARTER_JOB_ENVIRONMENT = "CUDA_MPS_PIPE_DIRECTORY=/run/site-mps"
`
	handJob = `executable = /usr/local/bin/simjob
arguments = "alloc 1024 load 30 1s"
output = job.$(Cluster).$(Process).out
error = job.$(Cluster).$(Process).err
should_transfer_files = yes
transfer_executable = false
request_cpus = 1
request_memory = 50
request_disk = 10M
request_gpus = 1
queue 2
`
)

// TestMigration goes the way of docs/migration.md from MPS set up by hand, with
// its commands, and back. Leg: sim.
func TestMigration(t *testing.T) {
	t.Parallel()
	if err := node.Available(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	inv, err := gpu.ReadInventory("../site/testdata/v100s-2-h100.json")
	must(t, err)
	s, err := site.Boot(ctx, site.Options{Leg: site.Sim, Inventory: &inv, Package: first(t).deb, Progress: t.Output()})
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop()) })
	l := &life{s, t, inv, commands(t, "mps", "../../docs/migration.md")}

	// NVIDIA's packages bring this name, too, by which condor_gpu_discovery knows the library.
	l.sh(ctx, "ln -s libcuda.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so")
	must(t, l.byHand(ctx))
	must(t, l.StartCondor(ctx))
	job, err := l.Submit(ctx, "alice", handJob)
	must(t, err)
	l.wellDone(ctx, job)

	l.sh(ctx, "apt-get install -y "+site.PackageFile)
	l.sh(ctx, "printf '[sharing]\nshares = 4\n' >new.toml")
	for _, look := range []string{"gpuslot check-config new.toml", "gpuslot inventory --json > node.json", "gpuslot condor-config --config new.toml --inventory node.json"} {
		l.tell(ctx, look)
	}
	l.tell(ctx, "gpuslot plan --config new.toml --inventory node.json", 2)
	l.tell(ctx, "condor_drain $(hostname)")
	l.wait(ctx, "an empty node", func() bool {
		out, err := l.Run(ctx, "condor_status", "-af", "State")
		return err == nil && strings.TrimSpace(out.Stdout) == "Drained"
	})
	l.tell(ctx, "systemctl disable --now site-mps.service")
	l.tell(ctx, "rm /etc/condor/config.d/40-site-mps.config")

	l.tell(ctx, "cp new.toml /etc/gpuslot/gpuslot.toml")
	l.tell(ctx, "systemctl enable --now gpuslotd")
	l.tell(ctx, "systemctl restart condor.service")
	must(t, l.StartCondor(ctx))
	must(t, l.WaitAccept(ctx, len(inv.GPUs)))
	l.tell(ctx, "gpuslot doctor", 3)
	l.tell(ctx, "gpuslot verify")
	l.wellDone(ctx, l.submit(ctx, 1))
	allRan(t, l.told)

	l.sh(ctx, "apt-get purge -y gpuslot")
	must(t, l.byHand(ctx))
	l.sh(ctx, "systemctl restart condor.service")
	must(t, l.StartCondor(ctx))
	job, err = l.Submit(ctx, "alice", handJob)
	must(t, err)
	l.wellDone(ctx, job)
}

// byHand makes the site's own set-up.
func (l *life) byHand(ctx context.Context) error {
	if err := l.WriteFile(ctx, "/etc/systemd/system/site-mps.service", node.File{Data: handUnit}); err != nil {
		return err
	}
	if err := l.WriteFile(ctx, "/etc/condor/config.d/40-site-mps.config", node.File{Data: handConfig}); err != nil {
		return err
	}
	_, err := l.Run(ctx, "sh", "-ec", "systemctl daemon-reload && systemctl enable --now site-mps.service")
	return err
}
