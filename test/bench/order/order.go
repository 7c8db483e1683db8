// Package order is what the bench tells its starters: which programs to run,
// how often, and when.
package order

// Order is a starter's standard input.
type Order struct {
	Rounds   int
	Programs []Program
	// Gate is a file to wait for, so that many starters begin at once.
	Gate string
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
