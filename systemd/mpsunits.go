package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/gpuslot/gpuslot/gpu"
)

// MPSUnits starts and stops control daemons as instances of
// gpuslot-mps@.service. It connects again for every call (2 ms), so that
// nothing has to be mended when systemd or D-Bus is restarted. The zero value
// is ready.
type MPSUnits struct{}

// jobTimeout bounds one start or stop. A stop takes at most the unit's
// TimeoutStopSec=10s and the time for a kill; 30 ms is usual.
const jobTimeout = 30 * time.Second

const (
	mpsPrefix = "gpuslot-mps@"
	mpsSuffix = ".service"
)

// MPSUnit is the unit of a GPU's control daemon. A UUID needs no escaping.
func MPSUnit(u gpu.UUID) string { return mpsPrefix + string(u) + mpsSuffix }

// directoryUnit has the pipe directory of a GPU's control daemon. That of the daemon
// requires it.
func directoryUnit(u gpu.UUID) string { return "gpuslot-mps-dir@" + string(u) + mpsSuffix }

// gpuOf is the reverse of MPSUnit.
func gpuOf(unit string) (gpu.UUID, bool) {
	name, ok := strings.CutPrefix(unit, mpsPrefix)
	if !ok {
		return "", false
	}
	name, ok = strings.CutSuffix(name, mpsSuffix)
	if !ok {
		return "", false
	}
	u, err := gpu.ParseUUID(name)
	return u, err == nil && string(u) == name
}

// Start starts the unit and waits until its program runs; it may not listen
// yet. A unit that runs is left alone.
func (MPSUnits) Start(ctx context.Context, u gpu.UUID) error {
	return withUnit(ctx, u, func(ctx context.Context, c *dbus.Conn, unit string) error {
		result, err := wait(ctx, func(done chan<- string) error {
			_, err := c.StartUnitContext(ctx, unit, "replace", done)
			return err
		})
		if err != nil || result == "done" {
			return hint(err, "start "+unit)
		}
		if result == "dependency" {
			unit = directoryUnit(u)
		}
		s, stateErr := state(ctx, c, unit)
		return errors.Join(s.failed("start", unit, result), stateErr)
	})
}

// Stop stops the unit, its servers included, then that of its pipe directory, and
// waits until all are gone.
func (MPSUnits) Stop(ctx context.Context, u gpu.UUID) error {
	return withUnit(ctx, u, func(ctx context.Context, c *dbus.Conn, unit string) error {
		// systemd ends the directory's unit by itself, but at some later time.
		if err := stop(ctx, c, unit); err != nil {
			return err
		}
		return stop(ctx, c, directoryUnit(u))
	})
}

func stop(ctx context.Context, c *dbus.Conn, unit string) error {
	result, err := wait(ctx, func(done chan<- string) error {
		_, err := c.StopUnitContext(ctx, unit, "replace", done)
		return err
	})
	if err != nil {
		return hint(err, "stop "+unit)
	}
	s, err := state(ctx, c, unit)
	if err != nil {
		return err
	}
	if result != "done" || s.active() {
		return s.failed("stop", unit, result)
	}
	// A past failure must not show as one when nothing is wanted any more.
	_ = c.ResetFailedUnitContext(ctx, unit)
	return nil
}

// Running lists the GPUs whose unit runs, starts, stops or waits for a restart.
func (MPSUnits) Running(ctx context.Context) ([]gpu.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	c, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	units, err := c.ListUnitsByPatternsContext(ctx, nil, []string{mpsPrefix + "*" + mpsSuffix})
	if err != nil {
		return nil, fmt.Errorf("list the units %s*: %w", mpsPrefix, err)
	}
	return running(units), nil
}

func running(units []dbus.UnitStatus) []gpu.UUID {
	var uuids []gpu.UUID
	for _, s := range units {
		if u, ok := gpuOf(s.Name); ok && isActive(s.ActiveState) {
			uuids = append(uuids, u)
		}
	}
	slices.Sort(uuids)
	return uuids
}

// isActive: a unit that waits for its restart is "activating".
func isActive(activeState string) bool { return activeState != "inactive" && activeState != "failed" }

// State is what the service manager says of one unit, in its own words.
type State struct {
	ActiveState string // active, activating, deactivating, inactive, failed, …
	SubState    string // running, auto-restart, dead, …
	// Result is "success", or how the program ended last: exit-code, signal, …
	Result string
	// NRestarts counts the automatic restarts since the last start by hand.
	NRestarts uint32
	// MainPID is 0 when no program runs.
	MainPID uint32
	// ExecMainStatus is the exit status or signal of the last program that ended.
	ExecMainStatus int32
}

func (s State) active() bool { return isActive(s.ActiveState) }

func (s State) failed(verb, unit, result string) error {
	return fmt.Errorf("%s %s: the job ended with %q, the unit is %s (%s, status %d): see %s",
		verb, unit, result, s.ActiveState, s.Result, s.ExecMainStatus, JournalCommand(unit))
}

// State asks for the state of a GPU's unit; one that was never started is inactive.
func (MPSUnits) State(ctx context.Context, u gpu.UUID) (State, error) {
	var s State
	err := withUnit(ctx, u, func(ctx context.Context, c *dbus.Conn, unit string) (err error) {
		s, err = state(ctx, c, unit)
		return err
	})
	return s, err
}

func state(ctx context.Context, c *dbus.Conn, unit string) (State, error) {
	p, err := c.GetAllPropertiesContext(ctx, unit)
	if err != nil {
		return State{}, fmt.Errorf("ask for the state of %s: %w", unit, err)
	}
	var s State
	s.ActiveState, _ = p["ActiveState"].(string)
	s.SubState, _ = p["SubState"].(string)
	s.Result, _ = p["Result"].(string)
	s.NRestarts, _ = p["NRestarts"].(uint32)
	s.MainPID, _ = p["MainPID"].(uint32)
	s.ExecMainStatus, _ = p["ExecMainStatus"].(int32)
	return s, nil
}

// withUnit checks the name, connects and bounds the time.
func withUnit(ctx context.Context, u gpu.UUID, do func(context.Context, *dbus.Conn, string) error) error {
	unit := MPSUnit(u)
	if _, ok := gpuOf(unit); !ok {
		return fmt.Errorf("%q is no GPU UUID", string(u))
	}
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	c, err := connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return do(ctx, c, unit)
}

// connect prefers systemd's own socket, which only root may use, and which
// works without a D-Bus daemon and early in the boot.
func connect(ctx context.Context) (*dbus.Conn, error) {
	dial := dbus.NewSystemConnectionContext
	if os.Geteuid() == 0 {
		dial = dbus.NewSystemdConnectionContext
	}
	c, err := dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to systemd: %w", err)
	}
	return c, nil
}

// wait enqueues a job and waits for its result.
func wait(ctx context.Context, enqueue func(done chan<- string) error) (string, error) {
	done := make(chan string, 1)
	if err := enqueue(done); err != nil {
		return "", err
	}
	select {
	case result := <-done:
		return result, nil
	case <-ctx.Done():
		return "", fmt.Errorf("the job did not end: %w", ctx.Err())
	}
}

// hint adds to an error what the operator was doing.
func hint(err error, what string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: see systemctl status and systemctl list-jobs", what, err)
}
