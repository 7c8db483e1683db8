package scenes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
)

// gpuJob uses the GPU: its arguments are a file of hold and the words of simjob.
// Until its release "until eof" waits.
var gpuJob = program{"gpu.sh", `#!/bin/bash
hold=$1; shift
echo "PID $$"
exec simjob "$@" < <(exec cat "$hold" 2>/dev/null)
`}

// noHold is a file that does not exist.
const noHold = "/nonexistent"

// client is a gpuJob on one GPU that says the words.
func client(u gpu.UUID, hold, words string) job {
	return job{Program: gpuJob, Arguments: hold + " " + words, Lines: vram(4000, on(u))}
}

// hold makes a file for jobs to wait on; release ends their wait and may be
// called again.
func (st *Stage) hold(ctx context.Context, name string) (path string, release func() error, err error) {
	path = "/run/hold-" + name
	release, err = st.Hold(ctx, path)
	return path, release, err
}

// neighbour is a client on a GPU whose work nothing may end.
type neighbour struct {
	st      *Stage
	cluster int
	// hold is what it waits on; release ends its wait and may be called again.
	hold    string
	release func() error
}

// neighbour submits one, which is not waited for.
func (st *Stage) neighbour(ctx context.Context, u gpu.UUID, name string) (n neighbour, err error) {
	n.st = st
	if n.hold, n.release, err = st.hold(ctx, name); err != nil {
		return n, err
	}
	if n.cluster, err = st.submit(ctx, client(u, n.hold, "alloc 1000 until eof")); err != nil {
		return n, errors.Join(err, n.release())
	}
	return n, nil
}

// leave ends its wait and checks that it came to its own end.
func (n neighbour) leave(ctx context.Context, what string) error {
	if err := n.release(); err != nil {
		return err
	}
	return n.st.checkEnd(ctx, user, n.cluster, "0", "until eof: ok", what)
}

// simNode is what "simgpu show --json" says: the truth about the GPUs.
type simNode struct {
	Processes []simProcess `json:"processes"`
	Servers   []simServer  `json:"mps_servers"`
}

// simProcess is one process on one GPU.
type simProcess struct {
	PID    int     `json:"pid"`
	Kind   string  `json:"kind"`
	UID    int     `json:"uid"`
	GPU    int     `json:"gpu"`
	Limit  gpu.MiB `json:"limit_mib"` // absent without one
	Memory gpu.MiB `json:"memory_mib"`
	Load   int     `json:"load"`
}

// simServer is one MPS server.
type simServer struct {
	PID    int    `json:"pid"`
	Daemon int    `json:"daemon"`
	UID    int    `json:"uid"`
	State  string `json:"state"`
}

// Kinds of simProcess.
const (
	kindServer = "MPS server"
	kindClient = "MPS client"
)

func (st *Stage) simNode(ctx context.Context) (simNode, error) {
	var n simNode
	out, err := st.Run(ctx, "simgpu", "show", "--json")
	if err != nil {
		return n, err
	}
	return n, json.Unmarshal([]byte(out.Stdout), &n)
}

// on are the processes of a kind on one GPU.
func (n simNode) on(index int, kind string) []simProcess {
	var all []simProcess
	for _, p := range n.Processes {
		if p.GPU == index && p.Kind == kind {
			all = append(all, p)
		}
	}
	return all
}

// server is the MPS server of one GPU; false if it has none, or several.
func (n simNode) server(index int) (simServer, bool) {
	on := n.on(index, kindServer)
	if len(on) != 1 {
		return simServer{}, false
	}
	for _, s := range n.Servers {
		if s.PID == on[0].PID {
			return s, true
		}
	}
	return simServer{}, false
}

// waitSim waits until the GPUs are as cond wants them, and returns them so.
func (st *Stage) waitSim(ctx context.Context, what string, cond func(simNode) bool) (simNode, error) {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	var n simNode
	err := st.Wait(ctx, what, func() bool {
		var err error
		n, err = st.simNode(ctx)
		return err == nil && cond(n)
	})
	return n, err
}

// waitClients waits until so many MPS clients that hold that much or more are
// on a GPU.
func (st *Stage) waitClients(ctx context.Context, index, count int, least gpu.MiB) (simNode, error) {
	return st.waitSim(ctx, fmt.Sprintf("%d MPS clients with %d MiB on GPU %d", count, least, index), func(n simNode) bool {
		there := 0
		for _, p := range n.on(index, kindClient) {
			if p.Memory >= least {
				there++
			}
		}
		return there == count
	})
}

// waitBusy waits until a client of a GPU works, and returns its process.
func (st *Stage) waitBusy(ctx context.Context, index int) (pid int, err error) {
	_, err = st.waitSim(ctx, "a client that works", func(n simNode) bool {
		for _, p := range n.on(index, kindClient) {
			if p.Load > 0 {
				pid = p.PID
			}
		}
		return pid != 0
	})
	return pid, err
}

// checkServes has a client run on a GPU.
func (st *Stage) checkServes(ctx context.Context, u gpu.UUID, what string) error {
	cluster, err := st.submit(ctx, client(u, noHold, "alloc 1000"))
	if err != nil {
		return err
	}
	return st.checkEnd(ctx, user, cluster, "0", "alloc 1000 MiB: ok", what)
}

// checkKilled waits for a job's end and checks that SIGKILL was it.
func (st *Stage) checkKilled(ctx context.Context, cluster int, what string) error {
	if err := st.waitJobs(ctx, cluster, completed); err != nil {
		return err
	}
	rows, err := st.JobAttrs(ctx, cluster, "ExitSignal")
	if err != nil {
		return err
	}
	st.Check(rows[0][0] == "9", "%s, job %d, ended by signal %s", what, cluster, rows[0][0])
	return nil
}

// checkEnd waits for a job's end and checks its exit code and what it printed.
func (st *Stage) checkEnd(ctx context.Context, who string, cluster int, code, want, what string) error {
	if err := st.waitJobs(ctx, cluster, completed); err != nil {
		return err
	}
	rows, err := st.JobAttrs(ctx, cluster, "ExitCode", "NumJobStarts")
	if err != nil {
		return err
	}
	text, err := st.printed(ctx, who, cluster, 0)
	if err != nil {
		return err
	}
	st.Check(rows[0][1] == "1" && rows[0][0] == code && strings.Contains(text, want),
		"%s: job %d ended after %s start with exit code %s: %s", what, cluster, rows[0][1], rows[0][0], oneLine(lineWith(text, want)))
	return nil
}
