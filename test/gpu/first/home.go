package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/gpu/evidence"
	"github.com/gpuslot/gpuslot/test/gpu/report"
)

const (
	hardware  = "docs/hardware"
	rehearsed = "dist/simulated"
)

// bringHome makes the page of a results.tgz, in a directory named after the GPU and
// its driver. Simulated results do not go to docs/hardware.
func (c *call) bringHome() error {
	dir, err := os.MkdirTemp("", "first-home-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := unpack(c.home, dir); err != nil {
		return err
	}
	var d evidence.Driver
	if err := decode(filepath.Join(dir, evidence.FileName), &d); err != nil {
		return fmt.Errorf("the results do not name their driver, so it is not known what they are of: %w", err)
	}
	if err := decode(filepath.Join(dir, stateFile), &c.state); err != nil {
		return err
	}
	doubts := union(d.Doubts, c.state.Doubts)
	if c.state.Scale != 1 {
		doubts = append(doubts, fmt.Sprintf("it was a rehearsal: all limits times %g", c.state.Scale))
	}
	name, err := machineName(dir, d)
	if err != nil {
		return err
	}
	into := c.into
	switch {
	case into == "" && len(doubts) == 0:
		into = hardware
	case into == "":
		into = rehearsed
	case len(doubts) > 0 && strings.HasSuffix(filepath.Clean(into), hardware):
		return fmt.Errorf("these results are not of hardware (%s): they do not belong in %s", strings.Join(doubts, "; "), hardware)
	}
	into = filepath.Join(into, name)
	if _, err := os.Stat(into); err == nil {
		return fmt.Errorf("%s is there already: move it away first", into)
	}
	return errors.Join(report.Write(dir), report.WritePage(dir, name, doubts), dropPrivate(dir), copyTo(into, dir), c.tell(into))
}

func (c *call) tell(into string) error {
	_, err := fmt.Fprintf(c.log, "%s\n", filepath.Join(into, report.PageName))
	return err
}

func copyTo(into, dir string) error {
	if err := os.MkdirAll(filepath.Dir(into), 0o755); err != nil {
		return err
	}
	return os.CopyFS(into, os.DirFS(dir))
}

func decode(file string, into any) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, into)
}

// machineName is <model>-<driver>; the model is unknown where no part read it.
func machineName(dir string, d evidence.Driver) (string, error) {
	model, driver := "unknown", d.Kernel
	if f, err := os.Open(filepath.Join(dir, "inventory.json")); err == nil {
		defer f.Close()
		inv, err := gpu.DecodeInventory(f)
		if err != nil {
			return "", err
		}
		if len(inv.GPUs) > 0 {
			model, driver = inv.GPUs[0].Name, inv.Driver
		}
	}
	plain := strings.NewReplacer(" ", "-", "/", "-").Replace(strings.TrimPrefix(model, "NVIDIA "))
	return strings.Trim(plain+"-"+driver, "-."), nil
}
