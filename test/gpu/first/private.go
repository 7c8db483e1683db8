package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/gpu/evidence"
	"github.com/gpuslot/gpuslot/test/gpu/node"
	"github.com/gpuslot/gpuslot/test/gpu/truth"
)

// private are files that describe the machine around the GPU: whose it is, its
// environment, how it was reached. They stay in results.tgz and out of the page.
var private = []string{
	"logs", "*/logs", "machine.txt", "first-*.txt", "first.json",
	"facts/environment-*.txt", "facts/system-*.txt", "facts/cgroups-*.txt", "facts/driver-*.txt",
}

// dropPrivate leaves out what names a machine or its owner, and what only fills room.
func dropPrivate(dir string) error {
	var errs []error
	for _, pattern := range private {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		errs = append(errs, err)
		for _, f := range found {
			errs = append(errs, os.RemoveAll(f))
		}
	}
	return errors.Join(append(errs, dropHost(dir), dropSerials(dir), dropPlaces(dir), dropRoutine(dir))...)
}

// rewrite changes each file of a pattern.
func rewrite(dir, pattern string, change func(string) string) error {
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	for _, f := range files {
		b, e := os.ReadFile(f)
		if e == nil {
			e = os.WriteFile(f, []byte(change(string(b))), 0o644)
		}
		err = errors.Join(err, e)
	}
	return err
}

// dropHost writes "node" for the host's name.
func dropHost(dir string) error {
	f, err := os.Open(filepath.Join(dir, "inventory.json"))
	if err != nil {
		return nil // no part read it
	}
	defer f.Close()
	inv, err := gpu.DecodeInventory(f)
	if err != nil || inv.Host.Name == "" {
		return err
	}
	host := strings.NewReplacer(`"name": "`+inv.Host.Name+`"`, `"name": "node"`)
	begin := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(inv.Host.Name) + `:`)
	return errors.Join(
		rewrite(dir, "inventory.json", host.Replace), rewrite(dir, "*/bench.json", host.Replace),
		rewrite(dir, "facts/inventory-*.txt", host.Replace),
		rewrite(dir, "facts/plan-*.txt", func(s string) string { return begin.ReplaceAllString(s, "node:") }),
	)
}

var serial = regexp.MustCompile(`(?mi)^.*\b(serial|part) number\b.*\n`)

func dropSerials(dir string) error {
	return rewrite(dir, "facts/nvidia-smi-*.txt", func(s string) string { return serial.ReplaceAllString(s, "") })
}

// dropPlaces keeps of the driver's files their names, versions and sums.
func dropPlaces(dir string) error {
	name := filepath.Join(dir, evidence.FileName)
	var d evidence.Driver
	if err := decode(name, &d); err != nil {
		return err
	}
	for key, f := range d.Files {
		f.Path, f.Real = filepath.Base(f.Path), ""
		d.Files[key] = f
	}
	return encode(name, d)
}

// telling are the lines of a log that a claim is about; most others are the harness's own
// questions.
var telling = regexp.MustCompile(`fatal|torn down|trigging|eardown|sticky|exited|pinned|limit|Insufficient|` +
	`hutting down|not shutdown|Starting new server|Failed|failed with|Destroy`)

// dropRoutine drops the other lines from the outcomes, whose findings become those of
// today's claims, as on the page.
func dropRoutine(dir string) error {
	var errs []error
	for part, trials := range map[string][]truth.Trial{"truth": truth.Trials(), "node": (&node.Node{}).Trials()} {
		outcomes, err := truth.Read(filepath.Join(dir, part), trials)
		errs = append(errs, err)
		for _, o := range outcomes {
			o.Records = slices.DeleteFunc(o.Records, func(r truth.Record) bool {
				return r.Who == "log" && (!telling.MatchString(r.Said) || strings.Contains(r.Said, "Cmd:"))
			})
			errs = append(errs, encode(filepath.Join(dir, part, o.ID+".json"), o))
		}
	}
	return errors.Join(errs...)
}

func encode(file string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}
