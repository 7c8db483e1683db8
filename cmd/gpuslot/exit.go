package main

import (
	"errors"

	"github.com/gpuslot/gpuslot/agent/here"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// The exit codes of all programs. docs/operations.md has them as a table.
const (
	exitOK     = 0
	exitFailed = 1
	// exitUsage: the command line is wrong, and nothing was done.
	exitUsage = 2
	// exitFound: the command did its work and reports a difference or a finding.
	exitFound = 3
	// exitErrors: the worst finding of doctor is an error.
	exitErrors = 4
	// exitJobsRemain: jobs run, or still run at the deadline.
	exitJobsRemain = 5
	exitNoJob      = here.ExitNoJob // 6
)

// quits ends the program with a code of its own. With a nil error all is printed already.
type quits struct {
	error
	code int
}

func (q quits) Unwrap() error { return q.error }

func (q quits) Error() string {
	if q.error == nil {
		return "a difference or a finding is printed above"
	}
	return q.error.Error()
}

// codeOf is the exit code of a program that ends with err.
func codeOf(err error) int {
	var q quits
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &q):
		return q.code
	case show.IsUsage(err):
		return exitUsage
	}
	return exitFailed
}

// needs is an error of the command line for a flag that was not given.
func needs(flag, what string) error {
	return show.Usage(errors.New(flag + " is missing; " + what))
}
