package main

import (
	"fmt"
	"io"
	"os"

	"github.com/gpuslot/gpuslot/condor"
)

// defaultInventory is where gpuslotd writes the inventory ads.
const defaultInventory = "/run/gpuslot/condor/inventory.ad"

// maxInventory is far above the ads of any node: 16 GPUs of 48 shares take 40 kB.
const maxInventory = 1 << 20

// inventory prints the file that gpuslotd wrote. It never fails: a startd
// whose inventory program fails does not start, and with it go all jobs of the
// node, those without GPUs too. Without a usable file there are no GPUs.
func (p program) inventory(args []string) int {
	o, err := p.parse("inventory", args, 0)
	path := o.inventory()
	var ads []byte
	if err == nil {
		ads, err = readInventory(path)
	}
	if err != nil {
		fmt.Fprintf(p.stderr, "gpuslot-condor: %v; this node offers no GPU\n", err)
		ads = []byte(condor.NoInventory)
	}
	if _, err := p.stdout.Write(ads); err != nil {
		fmt.Fprintf(p.stderr, "gpuslot-condor: %v\n", err)
	}
	return 0
}

// inventory is the file named by the first argument.
func (o options) inventory() string {
	if len(o.args) > 0 {
		return o.args[0]
	}
	return defaultInventory
}

// readInventory returns the file if it names at least one GPU of ours.
func readInventory(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	ads, err := io.ReadAll(io.LimitReader(f, maxInventory+1))
	switch {
	case err != nil:
		return nil, err
	case len(ads) > maxInventory:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxInventory)
	case string(ads) == condor.NoInventory:
		return ads, nil
	case len(condor.InventoryUUIDs(ads)) == 0:
		return nil, fmt.Errorf("%s lists no GPU", path)
	}
	return ads, nil
}
