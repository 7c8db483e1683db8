package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// selectors is what every verb of "gpuslot gpu" says of its argument.
const selectors = `GPU is an index, a UUID or the beginning of one, a PCI bus id, a MIG device's UUID,
or "all". Run it as root.`

func gpuCommand(f *flags) *cobra.Command {
	c := &cobra.Command{
		Use:   "gpu",
		Short: "Close a GPU to new jobs, drain it, open it, restart its control daemon",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(gpuClose(f), gpuDrain(f), gpuOpen(f), gpuRestart(f))
	return c
}

// closer are the flags of close and drain.
type closer struct {
	owner, reason string
	wait          bool
	deadline      time.Duration
}

func (o *closer) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.reason, "reason", "",
		"a `text` that says why, for status, the slot's ad, and those who wonder later; needed")
	c.Flags().StringVar(&o.owner, "owner", "operator", "who closes it: a site's program gives its `name`")
	c.Flags().DurationVar(&o.deadline, "deadline", 0,
		"wait no longer than this `time` for the jobs to end, such as 2h; exit code 5 if some remain")
}

func gpuClose(f *flags) *cobra.Command {
	var o closer
	c := &cobra.Command{
		Use:   "close GPU --reason TEXT",
		Short: "Let a GPU take no new jobs",
		Long: `close keeps new jobs off a GPU from the next second on, without a restart of
HTCondor; its running jobs go on, and other GPUs take jobs. Each closure has an
owner. Only its owner ends it, or an operator with --override, and the GPU takes
jobs when it has no closure left. Closures outlive gpuslotd and reboots. Closing
again changes the reason.

` + selectors + `

Exit code 5: jobs remain at the deadline (with --wait).`,
		Example: `  gpuslot gpu close 0 --reason "riser to be replaced"
  gpuslot gpu close 0000:3b:00.0 --owner node-health --reason "93 C"
  gpuslot gpu close all --reason "cooling, ticket 4711" --wait --deadline 2h`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if o.deadline > 0 && !o.wait {
				return show.Usage(errors.New("--deadline goes with --wait"))
			}
			return closeGPU(c, f, args[0], o)
		},
	}
	o.flags(c)
	c.Flags().BoolVar(&o.wait, "wait", false, "wait until its last job has ended, as drain does")
	return c
}

func gpuDrain(f *flags) *cobra.Command {
	o := closer{wait: true}
	c := &cobra.Command{
		Use:   "drain GPU --reason TEXT",
		Short: "Close a GPU and wait for its last job",
		Long: `drain closes a GPU as "gpuslot gpu close" does, waits until its jobs have ended,
and prints which are left. It ends no job. The GPU stays closed
afterwards, and also if drain is interrupted: gpuslot gpu open opens it.

` + selectors + `

Exit code 5: jobs remain at the deadline.`,
		Example: `  gpuslot gpu drain 0 --reason "riser to be replaced" --deadline 4h`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return closeGPU(c, f, args[0], o) },
	}
	o.flags(c)
	return c
}

func gpuOpen(f *flags) *cobra.Command {
	var owner string
	var override bool
	c := &cobra.Command{
		Use:   "open GPU",
		Short: "Let a closed GPU take jobs again",
		Long: `open ends the owner's closure of a GPU, which takes jobs again from the next second
on if no other closure is left. With --override it ends all closures, and opens a
GPU that an XID or ECC event closed. The agent opens a GPU automatically after a
reset; one that the driver reports as broken opens only with --override. A later
fault closes it again. It does not open a GPU that its control daemon closes.

` + selectors,
		Example: `  gpuslot gpu open 0
  gpuslot gpu open all --owner node-health
  gpuslot gpu open 0 --override`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			_, err := askClosing(c.Context(), c, f, api.Request{Op: api.OpOpen, GPU: args[0], Owner: owner, Force: override})
			return err
		},
	}
	c.Flags().StringVar(&owner, "owner", "operator", "whose closure ends: the `name` that the GPU was closed with")
	c.Flags().BoolVar(&override, "override", false, "end the closures of all owners, also if the reason persists")
	return c
}

// askClosing has GPUs closed or opened and prints what was done.
func askClosing(ctx context.Context, c *cobra.Command, f *flags, req api.Request) (api.Closing, error) {
	reply, err := api.Call(ctx, f.socket, req)
	if err != nil {
		return api.Closing{}, err
	}
	if reply.Closing == nil {
		return api.Closing{}, errors.New("the agent answered without a result; " +
			"gpuslot and gpuslotd may be of different versions")
	}
	for _, text := range reply.Closing.Text {
		fmt.Fprintln(c.OutOrStdout(), text)
	}
	return *reply.Closing, nil
}

func closeGPU(c *cobra.Command, f *flags, name string, o closer) error {
	if o.reason == "" {
		return needs("--reason", "write why the GPU takes no jobs, such as --reason \"riser to be replaced\"")
	}
	done, err := askClosing(c.Context(), c, f, api.Request{Op: api.OpClose, GPU: name, Owner: o.owner, Reason: o.reason})
	if err != nil || !o.wait {
		return err
	}
	jobs := func(ctx context.Context) ([]jobOn, error) {
		s, err := api.AskStatus(ctx, f.socket)
		return jobsOn(s, done.Devices), err
	}
	return waiting{jobs: jobs, out: c.OutOrStdout(), deadline: o.deadline, pace: drainPace,
		stays: "it stays closed: run it again to wait on, gpuslot gpu open to open it"}.run(c.Context())
}

// jobOn is a job that is waited for.
type jobOn struct {
	gpu int
	api.StatusJob
}

func jobsOn(s api.Status, devices []string) []jobOn {
	var out []jobOn
	for _, g := range s.GPUs {
		for _, d := range devices {
			if d != g.UUID {
				continue
			}
			for _, j := range g.Jobs {
				out = append(out, jobOn{g.Index, j})
			}
		}
	}
	return out
}

func (j jobOn) String() string {
	return fmt.Sprintf("job %s of %s in %s on GPU %d since %s", show.OrDash(j.ID), show.OrDash(j.Account), j.Slot, j.gpu,
		clock(j.Since))
}

// drainPace is how often the agent is asked while jobs are waited for, and
// drainSettles how long it is asked at least: a job that HTCondor had started
// already may be about to tell of itself.
const (
	drainPace    = time.Second
	drainSettles = 2 * time.Second
	// drainDeaf is how long gpuslotd may not answer, as while it restarts.
	drainDeaf = 30 * time.Second
)

// waiting waits for jobs to end.
type waiting struct {
	jobs     func(context.Context) ([]jobOn, error)
	out      io.Writer
	deadline time.Duration // 0 is none
	pace     time.Duration
	stays    string
}

func (w waiting) run(ctx context.Context) error {
	if w.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.deadline, errDeadline)
		defer cancel()
	}
	said := ""
	begin := time.Now()
	answered := begin
	var left []jobOn
	for {
		now, err := w.jobs(ctx)
		if err == nil {
			answered = time.Now()
		}
		switch {
		case err != nil && ctx.Err() == nil && time.Since(answered) > drainDeaf:
			return err
		case err == nil && len(now) == 0 && time.Since(begin) >= drainSettles:
			fmt.Fprintln(w.out, "no job is left")
			return nil
		case err == nil:
			left = now
		}
		if text := describeLeft(left); len(left) > 0 && text != said {
			fmt.Fprint(w.out, text)
			said = text
		}
		select {
		case <-time.After(w.pace):
			continue
		case <-ctx.Done():
		}
		if errors.Is(context.Cause(ctx), errDeadline) {
			return quits{fmt.Errorf("%d jobs remain after %s; %s", len(left), w.deadline, w.stays), exitJobsRemain}
		}
		return fmt.Errorf("interrupted while %d jobs remain; %s", len(left), w.stays)
	}
}

var errDeadline = errors.New("the deadline came")

func describeLeft(jobs []jobOn) string {
	var b strings.Builder
	fmt.Fprintf(&b, "waiting for %d jobs:\n", len(jobs))
	for _, j := range jobs {
		fmt.Fprintf(&b, "  %s\n", j)
	}
	return b.String()
}
