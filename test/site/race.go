package site

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/gpuslot/gpuslot/test/node"
)

// allowsRaces is a drop-in of the agent's unit. The race detector turns off the random
// layout of addresses, which the unit's sandbox forbids.
const allowsRaces = "[Service]\nLockPersonality=no\n"

// addRace puts an agent with the race detector in the place of the staged one.
func addRace(ctx context.Context, opts *node.Options) error {
	program, err := raceAgent(ctx)
	if err != nil {
		return err
	}
	opts.Binds = append(opts.Binds, node.Bind{Host: program, Guest: "/usr/sbin/gpuslotd"})
	opts.Files["/etc/systemd/system/gpuslotd.service.d/race.conf"] = node.File{Data: allowsRaces}
	return nil
}

// raceAgent builds it, once per process. Staged must have been called.
func raceAgent(ctx context.Context) (string, error) {
	staged.Lock()
	defer staged.Unlock()
	if staged.race != "" {
		return staged.race, nil
	}
	program := filepath.Join(staged.dir, "race", "gpuslotd")
	build := exec.CommandContext(ctx, "go", "build", "-race", "-trimpath", "-o", program, "github.com/gpuslot/gpuslot/cmd/gpuslotd")
	build.Env = append(build.Environ(), "CGO_CFLAGS=-O2 -Wno-deprecated-declarations")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build gpuslotd with the race detector: %w\n%s", err, out)
	}
	staged.race = program
	return program, nil
}

// Races is what the race detector of the agent reported; empty if it found nothing. An
// agent without the detector is an error.
func (s *Site) Races(ctx context.Context) (string, error) {
	if _, err := s.Run(ctx, "grep", "-q", "WARNING: DATA RACE", "/usr/sbin/gpuslotd"); err != nil {
		return "", fmt.Errorf("the agent has no race detector: %w", err)
	}
	log, err := s.Journal(ctx, "gpuslotd.service")
	if err != nil {
		return "", err
	}
	_, found, ok := strings.Cut(log, "WARNING: DATA RACE")
	if !ok {
		return "", nil
	}
	return "WARNING: DATA RACE" + found, nil
}
