package main

import (
	"flag"

	"github.com/gpuslot/gpuslot/agent/api"
)

// parse reads the one flag that verbs have and returns the socket and the
// other arguments. The socket cannot come from the environment: that is the job's.
func (p program) parse(name string, args []string) (socket string, rest []string, err error) {
	flags := flag.NewFlagSet("gpuslot-condor "+name, flag.ContinueOnError)
	flags.SetOutput(p.stderr)
	flags.StringVar(&socket, "socket", api.DefaultSocket, "the `path` on which gpuslotd listens")
	err = flags.Parse(args)
	return socket, flags.Args(), err
}

// usage is the exit status for arguments that nobody can mean.
const usage = 2
