package starter

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/process"
)

// chain is what each of the benchmark's processes starts; the last waits for the end of its input.
var chain = map[string]string{"condor_startd": "condor_starter", "condor_starter": "prepare"}

// someUser is the account of the job.
const someUser = 4711

func TestMain(m *testing.M) {
	at := os.Getenv("GPUSLOT_TEST_CHAIN")
	if at == "" {
		os.Exit(m.Run())
	}
	if next, ok := chain[filepath.Base(os.Args[0])]; ok {
		cmd := exec.Command(filepath.Join(at, next), "-f", "-local-name", "slot_type_101", "-a", "slot1_1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		if next == "prepare" {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: someUser, Gid: someUser}}
		}
		if err := cmd.Run(); err != nil {
			os.Exit(1)
		}
		return
	}
	_, _ = os.Stdout.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// BenchmarkHook is how long it takes to find out, in the kernel's own /proc, that a caller is a
// starter's hook.
func BenchmarkHook(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("a job's processes are told from HTCondor's only where HTCondor is root's")
	}
	dir := b.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the job's account executes what is there
		b.Fatal(err)
	}
	for _, name := range []string{"condor_startd", "condor_starter", "prepare"} {
		text, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	cmd := exec.CommandContext(b.Context(), filepath.Join(dir, "condor_startd"))
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "GPUSLOT_TEST_CHAIN="+dir)
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if errIn != nil || errOut != nil {
		b.Fatal(errIn, errOut)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	line := make([]byte, 32)
	n, err := out.Read(line)
	if err != nil {
		b.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	if err != nil {
		b.Fatal(err)
	}
	node := Node{FS: process.FS{Root: "/proc"}}
	before := cpuTime(b)
	for b.Loop() {
		c, err := node.identifyHeld(-1, Peer{UID: someUser, PID: pid})
		if err != nil || !node.IsHook(c, filepath.Join(dir, "prepare")) {
			b.Fatalf("it is no hook: %+v, %v", c, err)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// cpuTime is what this process used up to now, in user and kernel mode.
func cpuTime(b *testing.B) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
