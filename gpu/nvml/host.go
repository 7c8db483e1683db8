package nvml

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/gpuslot/gpuslot/gpu"
)

// cpusOnline lists the machine's running logical CPUs (Documentation/ABI/testing/
// sysfs-devices-system-cpu). The affinity of this process may be narrower and
// says nothing about the node.
const cpusOnline = "/sys/devices/system/cpu/online"

// Host reads what HTCondor will find too: the machine's full name, its running
// logical CPUs and its main memory.
func Host(ctx context.Context) (gpu.Host, error) {
	name, err := os.Hostname()
	if err != nil {
		return gpu.Host{}, fmt.Errorf("read host name: %w", err)
	}
	text, err := os.ReadFile(cpusOnline)
	if err != nil {
		return gpu.Host{}, fmt.Errorf("count CPUs: %w", err)
	}
	cpus, err := countCPUs(string(text))
	if err != nil {
		return gpu.Host{}, fmt.Errorf("count CPUs: %s: %w", cpusOnline, err)
	}
	memory, err := mainMemory(procfs.DefaultMountPoint)
	if err != nil {
		return gpu.Host{}, err
	}
	return gpu.Host{Name: fullName(ctx, name), CPUs: cpus, Memory: memory}, nil
}

func mainMemory(proc string) (gpu.MiB, error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return 0, fmt.Errorf("read memory size: %w", err)
	}
	m, err := fs.Meminfo()
	if err != nil {
		return 0, fmt.Errorf("read memory size: %w", err)
	}
	if m.MemTotalBytes == nil {
		return 0, fmt.Errorf("read memory size: no MemTotal in %s/meminfo", proc)
	}
	return gpu.MiBFromBytes(*m.MemTotalBytes), nil
}

// maxListedCPUs is above any kernel's limit (CONFIG_NR_CPUS is at most 8192).
const maxListedCPUs = 1 << 16

// countCPUs counts the kernel's list format: "0-15,32-47".
func countCPUs(list string) (int, error) {
	total := 0
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 16)
		b, errB := strconv.ParseUint(last, 10, 16)
		if errA != nil || errB != nil || b < a {
			return 0, fmt.Errorf("%.40q is not a list of CPUs like 0-15,32-47", list)
		}
		total += int(b-a) + 1
		if total > maxListedCPUs {
			return 0, fmt.Errorf("%.40q lists more than %d CPUs", list, maxListedCPUs)
		}
	}
	return total, nil
}

// fullName asks the resolver for the name with its domain. Without an answer in
// time the short name stays: [host."…"] globs without a dot match it as well.
func fullName(ctx context.Context, name string) string {
	if strings.Contains(name, ".") {
		return name
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	full, err := net.DefaultResolver.LookupCNAME(ctx, name)
	full = strings.TrimSuffix(full, ".")
	if err != nil || !strings.HasPrefix(full, name+".") {
		return name
	}
	return full
}
