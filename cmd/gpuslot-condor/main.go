// Command gpuslot-condor is what HTCondor calls: the inventory of the startd,
// its monitor, the hook before a job starts, the job wrapper, and the schedd's demand. It holds no
// state and decides nothing; it carries words between HTCondor and gpuslotd.
//
// Every GPU job waits for it, so it is one static binary without cgo and
// imports nothing that takes long to start. Where HTCondor accepts no
// arguments it is called through a symbolic link with the name of a verb.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// version and commit are set by the linker.
var version, commit = "unknown", "unknown"

// program is the process as a verb sees it.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
}

// verb is one thing that the program does. It returns the exit status.
type verb struct {
	name, args, about string
	run               func(program, []string) int
}

func verbs() []verb {
	return []verb{
		{"inventory", "[FILE]", "print the GPUs for MACHINE_RESOURCE_INVENTORY_GPUs; none if there is no FILE",
			program.inventory},
		{"monitor", "[FLAGS] [FILE]", "print for STARTD_CRON which GPUs of FILE take jobs and which jobs to hold; " +
			"-follow goes on", program.monitor},
		{"usage", "[FLAGS]", "print for a STARTD_CRON job with METRICS what each running job used; -follow goes on",
			program.reportUsage},
		{"demand", "[-timeout DURATION]", "print for SCHEDD_CRON what the idle GPU jobs of this access point wait for",
			program.demand},
		{"prepare", "[FLAGS]", "the PREPARE_JOB hook: job ad in, environment or refusal out", program.prepare},
		{"wrap", "[FLAGS] COMMAND…", "the USER_JOB_WRAPPER: set the environment, become COMMAND", program.wrap},
		{"supervise", "[FLAGS] COMMAND…", "the USER_JOB_WRAPPER of shared GPUs: " +
			"run COMMAND, and let its MPS clients leave before it is ended", program.supervise},
		{"here", "[FLAGS]", "inside a job: print the job's own part of a GPU; -json", program.tellHere},
		{"version", "", "print the version", program.printVersion},
		{"help", "", "print this text", program.help},
	}
}

func main() {
	p := program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv}
	os.Exit(p.main(os.Args))
}

// main chooses the verb: by the name of the link, then by the first argument.
func (p program) main(args []string) int {
	if len(args) == 0 {
		args = []string{"gpuslot-condor"}
	}
	called := args[0][strings.LastIndexByte(args[0], '/')+1:]
	if v, ok := find(called); ok {
		// Behind a link all arguments belong to the job, which must not be
		// able to say "-socket" and bring its own agent.
		return v.run(p, append([]string{"--"}, args[1:]...))
	}
	if len(args) < 2 {
		p.help(nil)
		return 2
	}
	if v, ok := find(strings.TrimLeft(args[1], "-")); ok {
		return v.run(p, args[2:])
	}
	fmt.Fprintf(p.stderr, "gpuslot-condor: unknown verb %q; see gpuslot-condor help\n", args[1])
	return 2
}

func find(name string) (verb, bool) {
	for _, v := range verbs() {
		if v.name == name {
			return v, true
		}
	}
	return verb{}, false
}

func (p program) printVersion([]string) int {
	fmt.Fprintf(p.stdout, "gpuslot-condor %s (commit %s)\n", version, commit)
	return 0
}

func (p program) help([]string) int {
	fmt.Fprintln(p.stdout, "gpuslot-condor: what HTCondor calls to share GPUs; see gpuslot(1) for people.")
	for _, v := range verbs() {
		fmt.Fprintf(p.stdout, "\n  gpuslot-condor %s\n      %s\n", strings.TrimSpace(v.name+" "+v.args), v.about)
	}
	fmt.Fprintln(p.stdout, "\nFLAGS: -socket PATH of gpuslotd, -timeout DURATION to wait for it.\n"+
		"Through a symbolic link named like a verb, all arguments are the verb's own and none is a flag.")
	return 0
}
