package nvml

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"github.com/gpuslot/gpuslot/gpu"
)

// cpusOnline lists the machine's running logical CPUs (Documentation/ABI/testing/
// sysfs-devices-system-cpu). The affinity of this process may be narrower and
// says nothing about the node.
const cpusOnline = "/sys/devices/system/cpu/online"

// readHost reads what HTCondor will find too: the machine's full name, its
// running logical CPUs and its main memory.
func readHost(ctx context.Context, names *fullNames) (gpu.Host, error) {
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
	return gpu.Host{Name: names.of(ctx, name, lookUpName), CPUs: cpus, Memory: memory}, nil
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

// fullNames remembers the host's full name once the resolver has told it, so
// that a resolver that comes and goes does not change the plan.
type fullNames struct {
	mu          sync.Mutex
	short, full string
}

// of is the full name of this host, or name itself until one is known: globs of
// [host."…"] tables without a dot match that as well.
func (f *fullNames) of(ctx context.Context, name string, lookUp func(context.Context, string) (string, error)) string {
	if strings.Contains(name, ".") {
		return name
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.short == name {
		return f.full
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	full, err := lookUp(ctx, name)
	full = strings.TrimSuffix(full, ".")
	if err != nil || !strings.HasPrefix(full, name+".") {
		return name
	}
	f.short, f.full = name, full
	return full
}

func lookUpName(ctx context.Context, name string) (string, error) {
	return net.DefaultResolver.LookupCNAME(ctx, name)
}
