// Package order is what the bench tells its starters: which programs to run,
// how often, and when.
package order

import "time"

// Order is a starter's standard input.
type Order struct {
	Rounds   int
	Programs []Program
	// Gate is a file to wait for, so that many starters begin at once.
	Gate string
	// Job are the processes of a job that stays: the starter starts them when its
	// programs have run, tells their PIDs and waits for the end of its input.
	Job [][]string
}

// Report is what a starter prints: how long each program took, its CPU time, and the PIDs
// of a job that stays.
type Report struct {
	Times, CPU map[string][]time.Duration
	PIDs       []int
}

// Program is one program to be timed from start to exit.
type Program struct {
	Name  string
	Args  []string
	Env   []string
	Stdin string
	// Want must be in the output of every run.
	Want string
}
