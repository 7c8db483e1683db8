package scenes

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/poll"
)

// seenClient is an MPS client as the simulated GPUs showed it, at its largest.
type seenClient struct {
	simProcess
	server int
}

// crowd is what was seen of all MPS clients while they ran.
type crowd struct {
	*Stage
	seen  map[int]seenClient // by PID
	most  map[int]int        // clients at once, by GPU
	wrong []string
	shown bool
}

func (c *crowd) untilDone(ctx context.Context, cluster int) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	for {
		asked := time.Now()
		rows, err := c.JobAttrs(ctx, cluster, "JobStatus")
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[0] != strconv.Itoa(completed) }) {
			return nil
		}
		if err := c.look(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cluster %d is not done: %w", cluster, ctx.Err())
		case <-time.After(poll.Pause(asked, 300*time.Millisecond)):
		}
	}
}

// look holds one moment against what must hold at all times.
func (c *crowd) look(ctx context.Context) error {
	n, err := c.simNode(ctx)
	if err != nil {
		return err
	}
	s, err := c.Status(ctx)
	if err != nil {
		return err
	}
	filled := !c.shown
	for _, g := range s.GPUs {
		c.wrong = append(c.wrong, c.lookAt(n, g)...)
		filled = filled && len(n.on(g.Index, kindClient)) > 2
	}
	if !filled {
		return nil
	}
	c.shown = true
	out, err := c.Run(ctx, "simgpu", "show")
	gpus, _, _ := strings.Cut(out.Stdout, "\nMPS control daemons") // the rest says no more
	c.Say("\nleg %s\n$ simgpu show\n%s", c.Leg, gpus)
	return err
}

// listed says whether gpuslot status has the MPS server that the GPU has.
func listed(n simNode, g api.StatusGPU) bool {
	server, one := n.server(g.Index)
	return one && server.Daemon == g.DaemonPID && strings.Contains(g.Server, fmt.Sprintf("(pid %d, ", server.PID))
}

// lookAt says what is wrong on one GPU at one moment.
func (c *crowd) lookAt(n simNode, g api.StatusGPU) (wrong []string) {
	server, one := n.server(g.Index)
	clients := n.on(g.Index, kindClient)
	sum := gpu.MiB(0)
	for _, p := range clients {
		sum += p.Memory
		if p.Limit == 0 || p.Memory > p.Limit {
			wrong = append(wrong, fmt.Sprintf("PID %d holds %d MiB, its limit is %d", p.PID, p.Memory, p.Limit))
		}
		if !one || p.UID != server.UID {
			wrong = append(wrong, fmt.Sprintf("PID %d (uid %d) has server %v", p.PID, p.UID, server))
		}
		if old := c.seen[p.PID]; p.Memory > old.Memory {
			c.seen[p.PID] = seenClient{p, server.PID}
		}
	}
	if sum > gpu.MiB(g.PoolMiB) {
		wrong = append(wrong, fmt.Sprintf("GPU %d: %d MiB are held of a pool of %d", g.Index, sum, g.PoolMiB))
	}
	c.most[g.Index] = max(c.most[g.Index], len(clients))
	return wrong
}

// checkCrowd checks what was seen of all of them together.
func (c *crowd) checkCrowd() {
	c.Check(len(c.wrong) == 0, "at no moment seen did a client lack its account's server or hold more than its limit, or a GPU's clients more than its pool %s",
		oneLine(strings.Join(c.wrong, "; ")))
	for _, g := range c.Inventory.GPUs {
		c.Check(c.most[g.Index] > 1, "GPU %d: up to %d MPS clients of one server at once", g.Index, c.most[g.Index])
	}
}

// checkListed: the servers stay when their clients are gone, so the agent's next
// look must find them.
func (c *crowd) checkListed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	var n simNode
	var s api.Status
	err := c.Wait(ctx, "gpuslot status to list the MPS servers", func() bool {
		var err, err2 error
		n, err = c.simNode(ctx)
		s, err2 = c.Status(ctx)
		return err == nil && err2 == nil && !slices.ContainsFunc(s.GPUs, func(g api.StatusGPU) bool { return !listed(n, g) })
	})
	if err != nil {
		return err
	}
	for _, g := range s.GPUs {
		c.Check(listed(n, g), "GPU %d: gpuslot status has the MPS server that the GPU has, %s", g.Index, g.Server)
	}
	return nil
}
