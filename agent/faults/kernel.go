package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/gpuslot/gpuslot/gpu"
)

// KernelLog is where the kernel's messages are read (Documentation/ABI/testing/
// dev-kmsg). Reading needs CAP_SYSLOG where kernel.dmesg_restrict is set.
const KernelLog = "/dev/kmsg"

// maxRecord is the longest record of /dev/kmsg, and of what is read from it.
const maxRecord = 8192

// FollowKernelLog tells each Xid line that the kernel writes from now on, until
// ctx ends; path is KernelLog. It returns nil then, and an error if the log
// cannot be read: XIDs are then told without the process.
func FollowKernelLog(ctx context.Context, path string, tell func(gpu.KernelXID)) error {
	// Without blocking, so that closing it ends the read.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("follow the kernel log: %w: give gpuslotd CAP_SYSLOG", err)
	case err != nil:
		return fmt.Errorf("follow the kernel log: %w: only the host has it, not a container", err)
	}
	defer context.AfterFunc(ctx, func() { _ = f.Close() })()
	_, _ = f.Seek(0, io.SeekEnd) // what was written before is history; a pipe has none
	r := bufio.NewReaderSize(records{f}, maxRecord)
	for {
		line, err := r.ReadSlice('\n')
		if x, ok := gpu.ParseKernelXID(string(line)); ok {
			tell(x)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			_ = f.Close()
			return fmt.Errorf("follow the kernel log %s: %w", path, err)
		}
	}
}

// records reads on after EPIPE, which says that records were overwritten before
// they were read.
type records struct{ f *os.File }

func (r records) Read(b []byte) (int, error) {
	for {
		n, err := r.f.Read(b)
		if !errors.Is(err, syscall.EPIPE) {
			return n, err
		}
	}
}
