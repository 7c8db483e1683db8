package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// verifyTimeout bounds one GPU: its client has half a minute, and another one
// may be under way.
const verifyTimeout = 3 * time.Minute

func verifyCommand(f *flags) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "verify [GPU]",
		Short: "Run a CUDA client as a job, and check that its limits hold",
		Long: `verify lets the agent run a small CUDA client on a GPU. The client is admitted like a
job of the default size, with exactly the environment that a job would get. It runs
as the account nobody, or the common account of tenancy "common:<user>". What must
hold: the control daemon lists it as its client, an allocation below its limit
succeeds, and one above fails with CUDA_ERROR_OUT_OF_MEMORY.

GPU is an index, a UUID or the beginning of one; without it every idle shared GPU
is verified, one after the other. Each takes a few seconds, in which it takes no
jobs; a GPU with jobs is left alone. The result is kept until the next boot, fault,
restart of the control daemon or change of the driver. gpuslot status, the metric
gpuslot_gpu_verified and the slots' attribute GPUVerified show it. With
health.open = "after-verify" the agent does all this automatically.

Exit codes: 0 all limits hold, 1 a GPU could not be tried, 3 a limit does not hold.
Only root may ask.`,
		Example: `  gpuslot verify
  gpuslot verify 0
  gpuslot verify --json | jq '.[] | select(.ok | not)'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			found, err := verifyAll(c.Context(), f.socket, args, c.ErrOrStderr())
			if err != nil {
				return err
			}
			if asJSON {
				if err := show.JSON(c.OutOrStdout(), found.all()); err != nil {
					return err
				}
			} else {
				found.print(c.OutOrStdout())
			}
			return found.result()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// verification is a GPU and what came of it.
type verification struct {
	index string
	api.Verification
	// left alone: it was not asked for by name, and has jobs.
	leftAlone bool
}

type verifications []verification

// verifyAll asks the agent for one GPU after the other, and prints which.
func verifyAll(ctx context.Context, socket string, args []string, progress io.Writer) (verifications, error) {
	status, err := api.AskStatus(ctx, socket)
	if err != nil {
		return nil, err
	}
	if len(args) == 1 {
		v, err := verifyOne(ctx, socket, args[0])
		return verifications{{indexOf(status, v.UUID), v, false}}, err
	}
	var out verifications
	for _, g := range status.GPUs {
		v := verification{index: strconv.Itoa(g.Index), Verification: api.Verification{UUID: g.UUID}}
		switch {
		case g.Mode != string(config.ModeMPS):
			continue // nothing is promised of it
		case len(g.Jobs) > 0:
			v.Skipped, v.leftAlone = "jobs run on it", true
		default:
			fmt.Fprintf(progress, "verifying GPU %d, %s\n", g.Index, g.UUID)
			if v.Verification, err = verifyOne(ctx, socket, g.UUID); err != nil {
				return nil, err
			}
		}
		out = append(out, v)
	}
	return out, nil
}

func verifyOne(ctx context.Context, socket, name string) (api.Verification, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	reply, err := api.Call(ctx, socket, api.Request{Op: api.OpVerify, GPU: name})
	if err != nil {
		return api.Verification{}, err
	}
	if len(reply.Verified) != 1 {
		return api.Verification{}, errors.New("the agent answered without a verification; " +
			"gpuslot and gpuslotd may be of different versions")
	}
	return reply.Verified[0], nil
}

func indexOf(s api.Status, uuid string) string {
	for _, g := range s.GPUs {
		if g.UUID == uuid {
			return strconv.Itoa(g.Index)
		}
	}
	return "-"
}

func (vs verifications) all() []api.Verification {
	out := make([]api.Verification, 0, len(vs))
	for _, v := range vs {
		out = append(out, v.Verification)
	}
	return out
}

func (vs verifications) print(w io.Writer) {
	t := &show.Table{}
	t.Row("GPU", "UUID", "RESULT", "DRIVER", "CUDA", "WHAT")
	for _, v := range vs {
		result, what := "does not hold", v.Text
		switch {
		case v.Skipped != "":
			result, what = "not tried", v.Skipped
		case v.OK:
			result = "holds"
		}
		t.Row(v.index, v.UUID, result, show.OrDash(v.Driver), show.OrDash(v.CUDA), what)
	}
	t.Print(w)
}

// result is the exit code: what does not hold counts more than what was not
// tried, and a GPU with jobs is no failure unless nothing else was there.
func (vs verifications) result() error {
	tried, missed := 0, 0
	for _, v := range vs {
		switch {
		case v.Skipped == "" && !v.OK:
			return quits{nil, exitFound}
		case v.Skipped == "":
			tried++
		case !v.leftAlone:
			missed++
		}
	}
	switch {
	case missed > 0:
		return quits{nil, exitFailed}
	case tried == 0:
		return errors.New("no GPU was tried: jobs run on every shared one, or there is none; see gpuslot status")
	}
	return nil
}
