package main

import (
	"cmp"
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

func nodeCommand(f *flags) *cobra.Command {
	c := &cobra.Command{
		Use:   "node",
		Short: "Take the whole node out of service, as for a driver upgrade, and back",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(nodeQuiesce(f), nodeResume(f), nodeRevert(f), nodeShow(f))
	return c
}

// away are the flags of quiesce and revert.
type away struct {
	reason   string
	deadline time.Duration
	force    bool
}

func (o *away) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.reason, "reason", "",
		"a `text` that says why, for status, the slots' ads, and those who wonder later; needed")
	c.Flags().DurationVar(&o.deadline, "deadline", 0,
		"wait no longer than this `time` for the jobs to end, such as 2h; exit code 5 if some remain")
	c.Flags().BoolVar(&o.force, "force", false,
		"go on where HTCondor does not tell whether jobs run; it ends no job either")
}

func nodeQuiesce(f *flags) *cobra.Command {
	var o away
	c := &cobra.Command{
		Use:   "quiesce --reason TEXT",
		Short: "Close all GPUs, wait for the jobs, let go of the driver",
		Long: `quiesce closes all GPUs, waits until their jobs have ended and prints which are
left. Then it stops the control daemons, restores the compute modes and closes
NVML, so that the driver can be unloaded or upgraded. It lists which other
processes have the driver's devices open. The node stays quiesced through restarts of
gpuslotd and reboots, until gpuslot node resume.

Nothing ends a job, --force neither: condor_vacate_job and condor_rm do. At the
deadline, or when this command is interrupted, the GPUs stay closed, and the node
is quiesced when the last job ends; gpuslot node resume takes that back.

Exit code 5: jobs remain at the deadline. Run it as root.`,
		Example: `  gpuslot node quiesce --reason "driver 580" --deadline 12h`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.leave(c, f, api.VerbQuiesce, "quiesced")
		},
	}
	o.flags(c)
	return c
}

func nodeRevert(f *flags) *cobra.Command {
	var o away
	c := &cobra.Command{
		Use:   "revert --reason TEXT",
		Short: "Give the node back as it was: GPUs without MPS, HTCondor without gpuslot's configuration",
		Long: `revert undoes what gpuslot did to the node. After the last job it stops the control
daemons, restores the compute modes, closes NVML and removes the configuration that
it wrote for HTCondor. HTCondor reads that when the startd restarts. gpuslot never
restarts it: use condor_restart -peaceful -daemon STARTD. MIG layouts stay as they
are.
gpuslot node resume puts all of it back. Until then jobs with request_vram match
here only if HTCondor's own GPUs have VRAM: gpuslot condor-config --for plain-node.

With jobs running it is refused, unless --deadline says how long to wait. Nothing
ends a job, --force neither.

Exit code 5: jobs run. Run it as root.`,
		Example: `  gpuslot node revert --reason "back to whole GPUs" --deadline 12h`,
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.deadline == 0 {
				if err := noJobs(c.Context(), f.socket); err != nil {
					return err
				}
			}
			if err := o.leave(c, f, api.VerbRevert, "reverted"); err != nil {
				return err
			}
			_, err := fmt.Fprintln(c.OutOrStdout(), "HTCondor's configuration is withdrawn; "+
				"the startd reads that at its next start: condor_restart -peaceful -daemon STARTD")
			return err
		},
	}
	o.flags(c)
	return c
}

func nodeResume(f *flags) *cobra.Command {
	var unverified bool
	patience := resumePatience
	c := &cobra.Command{
		Use:   "resume",
		Short: "Take up the driver again, verify the GPUs and open them",
		Long: `resume starts gpuslotd again with the driver that is loaded now. It sets compute
modes and control daemons, and runs a CUDA client on each shared GPU as "gpuslot
verify" does. It opens all GPUs that keep their limits. One that does not stays closed by the
owner "node". A node that still waits for jobs just opens again.

Exit code 1: the node does not serve, and why. Run it as root.`,
		Example: "  gpuslot node resume",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			now, err := askNode(c.Context(), c.OutOrStdout(), f.socket,
				api.Request{Op: api.OpNode, Verb: api.VerbResume, Force: unverified})
			if err != nil {
				return err
			}
			if now.Phase == "" { // said
				return tellClosed(c.Context(), c.OutOrStdout(), f.socket)
			}
			last, err := follow{socket: f.socket, out: c.OutOrStdout(), deadline: patience,
				pace: drainPace}.until(c.Context(), "")
			if err != nil {
				return errors.Join(err, errors.New("it goes on trying: "+
					"see gpuslot node status and journalctl -u gpuslotd; last it waited for: "+
					show.OrDash(cmp.Or(last.Waits, now.Waits))))
			}
			return tellClosed(c.Context(), c.OutOrStdout(), f.socket)
		},
	}
	c.Flags().BoolVar(&unverified, "no-verify", false, "open without running a CUDA client on each GPU")
	c.Flags().DurationVar(&patience, "deadline", patience, "wait no longer than this `time`")
	return c
}

func nodeShow(f *flags) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show whether the node serves, and what it waits for",
		Long: `status prints the state of the node: serving, quiescing, quiesced, reverting,
reverted or resuming. Everybody may ask. Only root sees jobs, and the processes that
have the driver's devices open.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			reply, err := api.Call(c.Context(), f.socket, api.Request{Op: api.OpNode, Verb: api.VerbStatus})
			if err == nil && reply.Node == nil {
				err = errNoNode
			}
			if err != nil {
				return err
			}
			if asJSON {
				return show.JSON(c.OutOrStdout(), reply.Node)
			}
			_, err = io.WriteString(c.OutOrStdout(), describeNode(*reply.Node))
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// resumePatience is how long a node may take to come back: gpuslotd waits a
// minute for a driver, and each GPU is verified in seconds.
const resumePatience = 5 * time.Minute

var errNoNode = errors.New("the agent answered without the node's state; " +
	"gpuslot and gpuslotd may be of different versions")

// askNode sends a verb and prints what it did.
func askNode(ctx context.Context, out io.Writer, socket string, req api.Request) (api.NodeStatus, error) {
	reply, err := api.Call(ctx, socket, req)
	if err != nil {
		return api.NodeStatus{}, err
	}
	if reply.Node == nil {
		return api.NodeStatus{}, errNoNode
	}
	fmt.Fprintln(out, reply.Node.Text)
	return *reply.Node, nil
}

// noJobs is an error while jobs use GPUs.
func noJobs(ctx context.Context, socket string) error {
	s, err := api.AskStatus(ctx, socket)
	if err != nil {
		return err
	}
	jobs := 0
	for _, g := range s.GPUs {
		jobs += len(g.Jobs)
	}
	if jobs > 0 {
		return quits{fmt.Errorf("%d jobs use GPUs, see gpuslot status: write with --deadline how long to wait", jobs),
			exitJobsRemain}
	}
	return nil
}

func (o away) leave(c *cobra.Command, f *flags, verb, phase string) error {
	if o.reason == "" {
		return needs("--reason", "write why the node leaves service, such as --reason \"driver 580\"")
	}
	if _, err := askNode(c.Context(), c.OutOrStdout(), f.socket,
		api.Request{Op: api.OpNode, Verb: verb, Reason: o.reason, Force: o.force}); err != nil {
		return err
	}
	last, err := follow{socket: f.socket, out: c.OutOrStdout(), deadline: o.deadline,
		pace: drainPace}.until(c.Context(), phase)
	if errors.Is(err, errDeadline) && len(last.Jobs) > 0 {
		return quits{fmt.Errorf("%d jobs remain after %s; all GPUs stay closed, and the node is %s when they have ended: "+
			"gpuslot node resume takes that back", len(last.Jobs), o.deadline, phase), exitJobsRemain}
	}
	if err != nil {
		return show.Hint(fmt.Errorf("%w: the node is not yet %s, it waits for: %s", err, phase, show.OrDash(last.Waits)),
			fmt.Sprintf("all GPUs stay closed, and the node is %s when nothing is waited for any more; "+
				"gpuslot node status shows it, gpuslot node resume takes it back", phase))
	}
	return nil
}

// follow asks for the node's state until it is what is waited for.
type follow struct {
	socket         string
	out            io.Writer
	deadline, pace time.Duration
}

// until returns the last state; while gpuslotd starts again it does not answer.
func (w follow) until(ctx context.Context, phase string) (last api.NodeStatus, err error) {
	if w.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.deadline, errDeadline)
		defer cancel()
	}
	said := ""
	for {
		reply, err := api.Call(ctx, w.socket, api.Request{Op: api.OpNode, Verb: api.VerbStatus})
		if err == nil && reply.Node != nil {
			last = *reply.Node
			if last.Phase == phase {
				fmt.Fprint(w.out, describeNode(last))
				return last, nil
			}
			if last.Waits != said && last.Waits != "" {
				said = last.Waits
				fmt.Fprintf(w.out, "%s: waits: %s\n", last.Phase, said)
			}
		}
		select {
		case <-ctx.Done():
			return last, context.Cause(ctx)
		case <-time.After(w.pace):
		}
	}
}

func describeNode(n api.NodeStatus) string {
	var b strings.Builder
	fmt.Fprintln(&b, n.Headline())
	if n.Waits != "" {
		fmt.Fprintf(&b, "it waits: %s\n", n.Waits)
	}
	for _, h := range n.Holders {
		fmt.Fprintln(&b, describeHolder(h))
	}
	return b.String()
}

func describeHolder(h api.NodeHolder) string {
	text := fmt.Sprintf("still has the driver's devices open: %s (pid %d)", h.Name, h.PID)
	if h.Unit != "" {
		text += ": systemctl stop " + h.Unit
	}
	return text
}

// tellClosed prints the GPUs that did not open with the node.
func tellClosed(ctx context.Context, out io.Writer, socket string) error {
	s, err := api.AskStatus(ctx, socket)
	if err != nil {
		return err
	}
	failed := 0
	for _, g := range s.GPUs {
		for _, h := range g.Holds {
			fmt.Fprintf(out, "GPU %d (%s) stays closed by %s: %s\n", g.Index, g.UUID, h.Owner, h.Reason)
			if h.Owner == "node" {
				failed++
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d GPUs did not pass their verification", failed)
	}
	return nil
}
