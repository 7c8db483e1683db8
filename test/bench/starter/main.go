// Command starter stands in for condor_starter in the bench: it is built under
// that name, and starts programs as HTCondor's starter starts a hook. It runs
// the programs of its standard input in turn, so that all of them meet the
// same noise, and prints how long each took.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/test/bench/order"
)

func main() {
	times, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "starter:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(times); err != nil {
		os.Exit(1)
	}
}

func run() (map[string][]time.Duration, error) {
	var o order.Order
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return nil, err
	}
	for o.Gate != "" {
		if _, err := os.Stat(o.Gate); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	times := map[string][]time.Duration{}
	for range o.Rounds {
		for _, p := range o.Programs {
			took, err := once(p)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.Name, err)
			}
			times[p.Name] = append(times[p.Name], took)
		}
	}
	return times, nil
}

func once(p order.Program) (time.Duration, error) {
	var out strings.Builder
	cmd := exec.Command(p.Args[0], p.Args[1:]...)
	cmd.Env = p.Env
	cmd.Stdin = strings.NewReader(p.Stdin)
	cmd.Stdout, cmd.Stderr = &out, &out
	begin := time.Now()
	err := cmd.Run()
	took := time.Since(begin)
	if err == nil && !strings.Contains(out.String(), p.Want) {
		err = fmt.Errorf("output has no %q", p.Want)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out.String())
	}
	return took, nil
}
