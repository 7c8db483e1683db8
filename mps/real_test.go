package mps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/alone"
	"github.com/gpuslot/gpuslot/test/driver"
	"github.com/gpuslot/gpuslot/test/poll"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if os.Getenv(starterEnv) != "" {
		os.Exit(starter())
	}
	if os.Getenv(thiefEnv) != "" {
		os.Exit(thief())
	}
	if os.Getenv(keeperEnv) != "" {
		os.Exit(keeper())
	}
	alone.Enter() // control daemons and servers are looked for in /proc
	goleak.VerifyTestMain(m)
}

// uuid0 is a GPU of the machine where GPUSLOT_GPU names one: a control daemon of another
// ends at once there.
var uuid0 = gpu.UUID(cmp.Or(os.Getenv("GPUSLOT_GPU"), "GPU-00000000-0000-4000-8000-000000000000"))

const uuid1 gpu.UUID = "GPU-11111111-1111-4111-8111-111111111111"

// onEachDriver runs a test against the real control daemon of each branch.
func onEachDriver(t *testing.T, test func(t *testing.T, r Processes)) {
	for _, branch := range driver.Branches() {
		t.Run(branch, func(t *testing.T) { test(t, onDriver(t, branch)) })
	}
}

// onDriver is a runner of a branch's real control daemons in a short temporary
// directory: t.TempDir is often too long for a pipe directory. Whatever it
// started is gone, with its servers, after the test.
func onDriver(t *testing.T, branch string) Processes {
	t.Helper()
	return runnerWith(t, publicCopy(t, driver.Control(driver.Dir(t, branch))))
}

func runnerWith(t testing.TB, program string) Processes {
	t.Helper()
	tmp := tempDir(t)
	r := Processes{
		Root: filepath.Join(tmp, "mps"), Logs: filepath.Join(tmp, "log"),
		Program: program, ServerPath: filepath.Join(tmp, "bin"),
	}
	t.Cleanup(func() { endAll(t, r) })
	return r
}

func tempDir(t testing.TB) string {
	t.Helper()
	tmp, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(tmp); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	return tmp
}

// publicCopy puts a program where other accounts can run it, too.
func publicCopy(t testing.TB, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return writeProgram(t, filepath.Join(tempDir(t), filepath.Base(file)), string(b))
}

func writeProgram(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// endAll kills what holds the control locks below a root, and their servers.
func endAll(t testing.TB, r Processes) {
	t.Helper()
	running, err := r.Running(context.Background())
	if err != nil {
		t.Error(err)
	}
	for _, u := range running {
		who, err := mustDaemon(t, r, u).Alive()
		if who.PID == 0 {
			t.Errorf("%s: %v", u, err)
			continue
		}
		if f := familyOf(who); !f.endBy(context.Background(), unix.SIGKILL, killTimeout) {
			t.Errorf("process %d of %s survives", who.PID, u)
		}
	}
}

func mustDaemon(t testing.TB, r Processes, u gpu.UUID) *Daemon {
	t.Helper()
	d, err := r.daemon(u)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// started starts the control daemon of uuid0 and waits until it listens.
func started(t *testing.T, r Processes) *Daemon {
	t.Helper()
	d := mustDaemon(t, r, uuid0)
	if err := d.Prepare(); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context(), uuid0); err != nil {
		t.Fatal(err)
	}
	exchange(t, d, "get_server_list")
	return d
}

func alive(t testing.TB, d *Daemon) process.ID {
	t.Helper()
	p, err := d.Alive()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// signal signals a process and waits, by what /proc says of it, until it took effect.
func signal(t testing.TB, p process.ID, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(p.PID, sig); err != nil {
		t.Fatal(err)
	}
	eventually(t, fmt.Sprintf("%v reaches process %d", sig, p.PID), func() bool {
		s, err := proc.Stat(p.PID)
		switch sig {
		case syscall.SIGSTOP:
			return err == nil && s.State == 'T'
		case syscall.SIGCONT:
			return err == nil && s.State != 'T'
		default:
			return err != nil || s.ID != p || s.Ended()
		}
	})
}

func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	if !poll.Until(5*time.Minute, time.Millisecond, done) {
		t.Fatalf("waited five minutes for: %s", what)
	}
}

func wantFault(t testing.TB, err error, want Fault, texts ...string) {
	t.Helper()
	if got := FaultOf(err); got != want {
		t.Fatalf("error %v is %q, want %q", err, got, want)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not say %q", err, text)
		}
	}
}

func exchange(t testing.TB, d *Daemon, command string) string {
	t.Helper()
	reply, err := d.Command(t.Context(), command)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return reply
}

func needsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("becoming another account needs root")
	}
}

// as runs a command as another account and returns what it printed.
func as(t *testing.T, uid, gid uint32, env []string, stdin, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(env, "PATH="+os.Getenv("PATH"), "LC_ALL=C")
	cmd.Dir = "/"
	cmd.Stdin = strings.NewReader(stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// starterEnv makes the test binary start a daemon and then wait to be killed.
const starterEnv = "GPUSLOT_MPS_STARTER"

func starter() int {
	f := strings.Split(os.Getenv(starterEnv), "\n")
	r := Processes{Root: f[0], Logs: f[1], Program: f[2]}
	d, err := r.daemon(uuid0)
	if err == nil {
		err = errors.Join(d.Prepare(), r.Start(context.Background(), uuid0))
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("started")
	_, _ = io.Copy(io.Discard, os.Stdin) // until killed
	return 0
}

// thiefEnv makes the test binary hold a write lock on a file until its
// standard input ends. Its files in /proc are root's then, which anybody can have.
const (
	thiefEnv = "GPUSLOT_MPS_THIEF"
	thiefHow = "GPUSLOT_MPS_THIEF_HOW"
)

func thief() int {
	how := os.Getenv(thiefHow)
	f, err := os.OpenFile(os.Getenv(thiefEnv), os.O_RDWR, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	if err == nil {
		command := unix.F_SETLK
		if how == "open file description" {
			command = unix.F_OFD_SETLK
		}
		err = unix.FcntlFlock(f.Fd(), command, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	if err == nil && how == "shared files" {
		// The kernel knows the number of an ended process in a PID namespace only while it is that of a session.
		if _, err = unix.Setsid(); err == nil {
			err = shareFiles()
		}
	}
	fmt.Println(err)
	if how == "shared files" {
		return 0
	}
	if how == "leader ended" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // this goroutine is on the first thread: see onFirstThread
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// shareFiles starts a process that has the same table of open files and lives until the standard input ends. It calls
// nothing of Go's, of whose threads it has one only.
//
//go:norace
//go:nosplit
func shareFiles() error {
	var b [1]byte
	child, _, errno := unix.RawSyscall(unix.SYS_CLONE, unix.CLONE_FILES|uintptr(unix.SIGCHLD), 0, 0)
	if errno != 0 {
		return errno
	}
	for child == 0 {
		if n, _, _ := unix.RawSyscall(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&b)), 1); n == 0 {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	return nil
}

// What runs before main is on the first thread.
var _ = onFirstThread(os.Getenv(thiefEnv) != "")

// onFirstThread keeps the main goroutine there.
func onFirstThread(is bool) bool {
	if is {
		runtime.LockOSThread()
	}
	return is
}
