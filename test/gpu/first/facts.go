package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// looks are commands that say what the machine is. None of them changes anything.
var looks = []struct{ name, command string }{
	{"nvidia-smi", "nvidia-smi; nvidia-smi -L; nvidia-smi -q"},
	{"mig", "nvidia-smi mig -lgip; nvidia-smi mig -lgipp; nvidia-smi mig -lgi; nvidia-smi mig -lci"},
	{"inventory", `"$PROGRAMS/gpuslot" inventory --json`},
	{"plan", `"$PROGRAMS/gpuslot" plan`},
	{"driver", "cat /proc/driver/nvidia/version; ls -l /dev/nvidia* /proc/driver/nvidia/capabilities; " +
		"ldconfig -p | grep -E 'lib(cuda|nvidia-ml)\\.so'; " +
		"for p in nvidia-cuda-mps-control nvidia-cuda-mps-server nvidia-smi nvcc python3; do command -v $p; done; " +
		"nvidia-cuda-mps-control -v </dev/null"},
	{"system", "date -u; uname -a; cat /etc/os-release; nproc; free -m; " +
		"id; ldd --version | head -n1; ps -o pid,comm 1; df -h /dev/shm /tmp /var/tmp"},
	{"cgroups", "grep cgroup /proc/self/mounts; cat /proc/self/cgroup /sys/fs/cgroup/cgroup.controllers; " +
		"ls -ld /sys/fs/cgroup; ls /sys/fs/cgroup"},
	{"environment", "env | grep -E '^(CUDA|NVIDIA|LD_LIBRARY|PATH|GPUSLOT)'"},
	{"torch", `timeout 40 python3 -c 'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available(), torch.cuda.get_device_name(0))'`},
}

// lookTime bounds one of them.
const lookTime = 20 * time.Second

// facts writes each to facts/NAME-CALL.txt. One that fails says so in its file.
func facts(ctx context.Context, c *call, t trying) error {
	ctx, cancel := context.WithTimeout(ctx, t.budget)
	defer cancel()
	dir := filepath.Join(c.raw, "facts")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	errs := []error{c.driver.Write(c.raw)}
	for _, l := range looks {
		errs = append(errs, c.look(ctx, l.command, filepath.Join(dir, fmt.Sprintf("%s-%d.txt", l.name, c.state.Calls))))
		_ = c.save()
	}
	return errors.Join(errs...)
}

func (c *call) look(ctx context.Context, command, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = c.raw, f, f, time.Second
	cmd.Env = append(os.Environ(), "PROGRAMS="+c.programs, marker+"="+c.state.ID)
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(f, "ended with:", err)
	}
	return nil
}
