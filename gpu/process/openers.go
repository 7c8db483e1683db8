package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
)

// A look at all processes is bounded, because a job may have very many open files in very many processes. After
// mostFiles, fewFiles of each process are looked at. It ends with mostUnclear processes that have more.
const (
	mostFiles   = 1 << 19
	fewFiles    = 256
	mostUnclear = 8
)

// Opener is a process that has a file open.
type Opener struct {
	PID int // 0 where it is not known
	// Devices are those among its files that fit, each once; 0 stands for files that are none.
	Devices []uint64
	// Unclear is why it only may have one open; empty if it has.
	Unclear string
}

// Openers are the processes with an open file that fits, without this one. What cannot be read may be one, and so
// may what is not looked at.
func Openers(ctx context.Context, fs FS, fits func(File) bool) []Opener {
	return openersAmong(ctx, fs, mostFiles, fits)
}

func openersAmong(ctx context.Context, fs FS, left int, fits func(File) bool) (found []Opener) {
	unclear, most, mostOf := 0, 0, 0
	pids, err := fs.PIDs()
	for _, pid := range pids {
		if unclear == mostUnclear {
			break
		}
		if no := ctx.Err(); no != nil {
			err = fmt.Errorf("not all processes were looked at: %w; pid %d has %d files open", no, mostOf, most)
			break
		}
		if pid == os.Getpid() {
			continue
		}
		its, looked, no := Opens(fs, pid, max(left, fewFiles), fits)
		if left -= looked; looked > most {
			most, mostOf = looked, pid
		}
		switch {
		case len(its) > 0:
			found = append(found, Opener{PID: pid, Devices: its})
		case errors.Is(no, ErrManyFiles):
			why := fmt.Sprintf("%q has more than %d open files and threads", fs.Comm(pid), looked)
			found = append(found, Opener{PID: pid, Unclear: why})
			unclear++
		default:
			err = cmp.Or(err, no)
		}
	}
	if err != nil {
		found = append(found, Opener{Unclear: err.Error()})
	}
	return found
}
