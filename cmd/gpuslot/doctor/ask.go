package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/condor"
)

// readOpenFiles asks the kernel about the processes that the agent names.
func readOpenFiles(s api.Status) []openFiles {
	var all []openFiles
	add := func(pid int, what string) {
		o := openFiles{pid: pid, what: what}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
		if o.err = err; err == nil {
			o.soft, o.err = parseOpenFiles(string(text))
		}
		all = append(all, o)
	}
	for _, g := range s.GPUs {
		if g.DaemonPID > 0 {
			add(g.DaemonPID, fmt.Sprintf("control daemon of GPU %d", g.Index))
		}
		for _, server := range g.Servers {
			add(server.PID, fmt.Sprintf("MPS server of GPU %d", g.Index))
		}
	}
	return all
}

// unlimitedFiles stands for no limit.
const unlimitedFiles = ^uint64(0)

// parseOpenFiles reads the soft limit out of /proc/<pid>/limits (proc(5)).
func parseOpenFiles(text string) (uint64, error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "Max open files")
		fields := strings.Fields(rest)
		switch {
		case !ok || len(fields) == 0:
		case fields[0] == "unlimited":
			return unlimitedFiles, nil
		default:
			return strconv.ParseUint(fields[0], 10, 64)
		}
	}
	return 0, errors.New(`its limits have no line "Max open files"`)
}

// startdGPUs asks the running startds how many GPUs they count, repeated ids
// each time.
func startdGPUs(ctx context.Context, n condor.Node) (total int64, err error) {
	for _, s := range condor.Startds(n) {
		if len(s.Devices) == 0 {
			continue
		}
		counted, err := gpusOf(ctx, s)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.Daemon(), err)
		}
		total += counted
	}
	return total, nil
}

func gpusOf(ctx context.Context, s condor.Startd) (int64, error) {
	out, err := condorCommand(ctx, s.Environment(), "condor_status", "-direct", "", "-af", "TotalGPUs")
	if err != nil {
		return 0, err
	}
	for word := range strings.FieldsSeq(out) {
		if n, err := strconv.ParseInt(word, 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, errors.New("the startd's slots tell no TotalGPUs")
}

// settingNames are the settings that the checks look at: some of all, three of
// each slot type.
func settingNames(types ...int) []string {
	names := append([]string{settingOpen, settingHook, settingScratch, settingSharedMemory, settingJobAttributes},
		siteSettings...)
	for _, i := range types {
		names = append(names, startOf(i), keywordOf(i), wrapperOf(i))
	}
	return names
}

// condorSettings asks for one setting after the other: a value may have lines.
func condorSettings(ctx context.Context, names []string) (map[string]string, error) {
	defined := map[string]string{}
	for _, name := range names {
		out, err := condorCommand(ctx, nil, "condor_config_val", name)
		var none undefined
		switch {
		case errors.As(err, &none):
		case err != nil:
			return nil, err
		default:
			defined[name] = strings.TrimSpace(out)
		}
	}
	return defined, nil
}

// slotUsers are the accounts that the site gives to single slots.
func slotUsers(ctx context.Context) (map[string]string, error) {
	out, err := condorCommand(ctx, nil, "condor_config_val", "-dump", slotUserPattern)
	if none := (undefined{}); errors.As(err, &none) {
		return nil, nil
	}
	return parseSlotUsers(out), err
}

// undefined is condor_config_val's word for a setting that is not there.
type undefined struct{ name string }

func (u undefined) Error() string { return u.name + " is not defined" }

// condorCommand runs one of HTCondor's programs that only read.
func condorCommand(ctx context.Context, env []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, doctorCondorTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	said := stdout.String() + stderr.String()
	switch {
	case err == nil:
		return stdout.String(), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s did not end in time: %w", name, ctx.Err())
	case strings.Contains(said, "Not defined:"): // warnings may stand before it
		return "", undefined{args[len(args)-1]}
	case said != "":
		first, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
		return "", fmt.Errorf("%s: %w: %.200s", name, err, first)
	}
	return "", fmt.Errorf("%s: %w", name, err)
}
