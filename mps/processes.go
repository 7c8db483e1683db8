package mps

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/gpuslot/gpuslot/gpu"
)

// Processes runs control daemons as plain processes, where there is no
// systemd: a personal pool, a container. Each has a session of its own and
// outlives the program that started it; whoever comes next finds it by its
// control lock.
type Processes struct {
	// Root is the directory above the pipe directories.
	Root string
	// Program is the path or name of nvidia-cuda-mps-control.
	Program string
	// Logs is the directory of the log files, <GPU UUID>.log.
	Logs string
	// ServerPath is put before the PATH of the daemons, which look there for
	// nvidia-cuda-mps-server; the standard directories are always on it.
	ServerPath string
	// Flags are for all daemons, such as "-multiuser-server" or "-S": only what
	// Probe found, because an unknown flag silently means client mode.
	Flags []string
	// Environment is put before the daemons' own variables, for what a driver in
	// an unusual place needs (LD_LIBRARY_PATH).
	Environment []string
	// FlagsOf are more flags for the daemon of one GPU; nil if there are none.
	FlagsOf func(u gpu.UUID) []string
}

// openFiles is what NVIDIA asks for a server and its clients (ulimit -n).
const openFiles = 16384

func (p Processes) daemon(u gpu.UUID) (*Daemon, error) {
	dir, err := PipeDirectory(p.Root, u)
	if err != nil {
		return nil, err
	}
	return NewDaemon(u, dir, p.Program), nil
}

// readFrom is what was written to a log file from an offset on, cut short.
func readFrom(name string, offset int64) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, offset, maxReply))
	if err != nil {
		return ""
	}
	return string(b)
}

// Running lists the GPUs in Root whose control lock is held, whoever started
// the daemon and whatever its state.
func (p Processes) Running(context.Context) ([]gpu.UUID, error) {
	entries, err := os.ReadDir(p.Root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var running []gpu.UUID
	for _, e := range entries {
		u, err := gpu.ParseUUID(e.Name())
		if err != nil || string(u) != e.Name() {
			continue // not ours
		}
		d, err := p.daemon(u)
		if err != nil {
			continue // too long a path: nothing can run there
		}
		if _, err := d.Alive(); FaultOf(err) != NotRunning {
			running = append(running, u)
		}
	}
	return running, nil
}
