package mps

import (
	"context"

	"github.com/gpuslot/gpuslot/gpu"
)

// Check asks one daemon for its limits.
func (d *Daemons) Check(ctx context.Context, w Wanted) (Checked, error) {
	one, err := d.Daemon(w.GPU)
	if err != nil {
		return Checked{}, err
	}
	return one.Check(ctx, w)
}

// QuickCheck checks in microseconds that processes that answered still run.
func (d *Daemons) QuickCheck(u gpu.UUID, p Checked) QuickCheck {
	one, err := d.Daemon(u)
	if err != nil {
		return QuickCheck{Err: err}
	}
	return one.QuickCheck(p)
}

// Servers lists a daemon's servers with their clients.
func (d *Daemons) Servers(ctx context.Context, u gpu.UUID) ([]Server, error) {
	one, err := d.Daemon(u)
	if err != nil {
		return nil, err
	}
	return one.Servers(ctx)
}

// SetServers gives running servers their limits.
func (d *Daemons) SetServers(ctx context.Context, w Wanted, servers []int) (Checked, error) {
	one, err := d.Daemon(w.GPU)
	if err != nil {
		return Checked{}, err
	}
	return one.SetServers(ctx, w, servers...)
}

// EndClients lets processes leave as MPS clients.
func (d *Daemons) EndClients(ctx context.Context, u gpu.UUID, pids []int, rules EndRules) (EndStep, error) {
	one, err := d.Daemon(u)
	if err != nil {
		return EndStep{}, err
	}
	return one.EndClients(ctx, pids, rules)
}

// StartServer asks for an account's server.
func (d *Daemons) StartServer(ctx context.Context, u gpu.UUID, uid uint32) error {
	one, err := d.Daemon(u)
	if err != nil {
		return err
	}
	return one.StartServer(ctx, uid)
}

// ShutdownServer asks a server to end when its clients have.
func (d *Daemons) ShutdownServer(ctx context.Context, u gpu.UUID, server int) error {
	one, err := d.Daemon(u)
	if err != nil {
		return err
	}
	return one.ShutdownServer(ctx, server)
}

// Partitions lists a GPU's static SM partitions.
func (d *Daemons) Partitions(ctx context.Context, u gpu.UUID) ([]Partition, error) {
	one, err := d.Daemon(u)
	if err != nil {
		return nil, err
	}
	return one.Partitions(ctx)
}

// AddPartition makes a static SM partition of some chunks.
func (d *Daemons) AddPartition(ctx context.Context, u gpu.UUID, chunks int) (string, error) {
	one, err := d.Daemon(u)
	if err != nil {
		return "", err
	}
	return one.AddPartition(ctx, chunks)
}
