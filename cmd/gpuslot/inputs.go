package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/nvml"
)

// loadConfig reads the configuration. Only the default file may be missing: a
// file that somebody named must be there.
func loadConfig(c *cobra.Command, path string) (config.Config, error) {
	cfg, err := config.Load(path)
	if errors.Is(err, fs.ErrNotExist) && !c.Flags().Changed("config") {
		return config.Default(), nil
	}
	return cfg, err
}

// inventoryFlag lets a verb read recorded inventories.
func inventoryFlag(c *cobra.Command, into *[]string) {
	c.Flags().StringArrayVar(into, "inventory", nil,
		"a recorded inventory `file` instead of this node, written by \"gpuslot inventory --json\"")
}

// readInventory reads the recorded file, or this node if there is none.
// Unreadable are sentences about GPUs that do not answer.
func readInventory(ctx context.Context, files []string) (inv gpu.Inventory, unreadable []string, err error) {
	switch len(files) {
	case 0:
		return readNode(ctx)
	case 1:
		inv, err := gpu.ReadInventory(files[0])
		return inv, nil, err
	}
	return gpu.Inventory{}, nil, show.Usage(show.Hint(errors.New("one inventory at a time"),
		"only gpuslot condor-config --for access-point takes several --inventory"))
}

// hostSettings are HTCondor's on this node, for a plan as the agent makes it; nil for a
// recorded node, and where they cannot be read, which bounds nothing.
func hostSettings(ctx context.Context, files []string) condor.Settings {
	if len(files) > 0 {
		return nil
	}
	settings, err := condor.InstalledSettings(ctx)
	if err != nil {
		return nil
	}
	return settings
}

func readNode(ctx context.Context) (inv gpu.Inventory, unreadable []string, err error) {
	l, err := nvml.Open()
	if err != nil {
		return gpu.Inventory{}, nil, show.Hint(err,
			"a node is planned anywhere from its recorded inventory: "+
				"on the node gpuslot inventory --json > node.json, here --inventory node.json")
	}
	inv, errs, err := l.Inventory(ctx)
	for _, e := range errs {
		unreadable = append(unreadable, fmt.Sprintf("left out: %v", e))
	}
	// The error of a read says more than that of closing after it.
	if closeErr := l.Close(context.WithoutCancel(ctx)); err == nil {
		err = closeErr
	}
	return inv, unreadable, err
}
