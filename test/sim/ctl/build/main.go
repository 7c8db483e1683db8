// Command build compiles the simulated GPU node and prints the directory that
// holds its lib and bin.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/gpuslot/gpuslot/test/sim"
)

func main() {
	dir, err := sim.Build(context.Background())
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "build the simulated node:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
