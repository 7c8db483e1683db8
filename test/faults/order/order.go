// Package order is how a test runs jobs below the stand-in for condor_starter
// (test/faults/starter): what the starter is told, what it tells, and the test's
// side of it. Start at Start; a Slot makes the order as HTCondor would.
package order

// Order is the first JSON value on a starter's standard input. After it come
// the commands, one to a line; the end of input is Kill.
type Order struct {
	// Hook is the PREPARE_JOB hook with its arguments, run as the job's account.
	Hook    []string
	HookEnv []string
	// JobAd is the hook's standard input.
	JobAd string
	UID   uint32
	// Cgroup is a directory to make for the job's processes; empty for none.
	Cgroup string
	// Env is what the job's processes have besides what the hook gives them;
	// Forged replaces variables after the hook, as the job's own script would.
	Env    []string
	Forged []string
	// Command is the job's program with its arguments, and the job wrapper
	// before it. Output is a file for what it says.
	Command []string
	Output  string
}

// The commands.
const (
	// Finish ends the job's standard input.
	Finish = "finish"
	// Term is HTCondor's soft kill, SIGTERM for the job's first process.
	Term = "term"
	// Kill is its hard one, SIGKILL for every process.
	Kill = "kill"
)

// Event is one line of a starter's standard output.
type Event struct {
	// Code and Message are the hook's refusal.
	Code    int64  `json:",omitempty"`
	Message string `json:",omitempty"`
	// PID is the first process of a job that runs.
	PID int `json:",omitempty"`
	// Ended is the exit status of a job that has ended; -1 for a signal.
	Ended *int `json:",omitempty"`
	// Failed is trouble of the starter's own.
	Failed string `json:",omitempty"`
}
