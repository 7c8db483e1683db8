package main

import (
	"context"
	"flag"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
)

// options are the flags that all verbs share. They are no environment
// variables: the environment is the job's.
type options struct {
	socket  string
	timeout time.Duration
	// follow is of monitor and usage: go on until no process listens.
	follow bool
	// starts is of monitor: say whether jobs without a GPU start.
	starts bool
	// json is of here.
	json bool
	args []string
	// startd is the local name of the startd that asks; empty for HTCondor's own.
	startd string
}

func (p program) parse(name string, args []string, timeout time.Duration) (options, error) {
	var o options
	flags := flag.NewFlagSet("gpuslot-condor "+name, flag.ContinueOnError)
	flags.SetOutput(p.stderr)
	flags.StringVar(&o.socket, "socket", api.DefaultSocket, "the `path` on which gpuslotd listens")
	flags.DurationVar(&o.timeout, "timeout", timeout, "how long to wait for gpuslotd")
	if name == "monitor" || name == "usage" {
		flags.BoolVar(&o.follow, "follow", false, "go on, and print what changes")
		flags.StringVar(&o.startd, "startd", "", "the local `name` of the startd that asks, where it is a GPU's own")
	}
	if name == "monitor" {
		flags.BoolVar(&o.starts, "starts", false, "print whether jobs without a GPU start, too")
	}
	if name == "here" {
		flags.BoolVar(&o.json, "json", false, "print JSON")
	}
	err := flags.Parse(args)
	o.args = flags.Args()
	return o, err
}

// call asks the agent.
func (o options) call(req api.Request) (api.Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	return api.Call(ctx, o.socket, req)
}

// usage is the exit status for wrong arguments.
const usage = 2
