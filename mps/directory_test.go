package mps

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"golang.org/x/sys/unix"
)

func TestPipeDirectory(t *testing.T) {
	if dir, err := PipeDirectory("/run/gpuslot/mps", uuid0); err != nil || dir != "/run/gpuslot/mps/"+string(uuid0) || len(dir) != 57 {
		t.Errorf("%q (%d bytes), %v", dir, len(dir), err)
	}
	_, err := PipeDirectory("run/gpuslot", uuid0)
	wantFault(t, err, Invalid, "not absolute")
	root := "/" + strings.Repeat("r", MaxPipeDirectory-len(uuid0)-2)
	if dir, err := PipeDirectory(root, uuid0); err != nil || len(dir) != 87 {
		t.Errorf("%d bytes: %v", len(dir), err)
	}
	_, err = PipeDirectory(root+"r", uuid0)
	wantFault(t, err, PathTooLong, "88 bytes", "at most 87", "1 bytes shorter")
}

// TestNoPipeDirectory: without a path that can be one nothing is started or stopped.
func TestNoPipeDirectory(t *testing.T) {
	r := Processes{Root: "run"}
	s := daemonsOf(r)
	res, err := s.Set(t.Context(), []Wanted{{uuid0, 1024, 50}})
	if err != nil || len(res) != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	_, end := s.EndClients(t.Context(), uuid0, []int{1}, DefaultEndRules)
	for name, err := range map[string]error{
		"end clients": end, "start": r.Start(t.Context(), uuid0), "stop": r.Stop(t.Context(), uuid0),
		"set": res[0].Err, "restart": s.Restart(t.Context(), Wanted{uuid0, 1024, 50}).Err,
	} {
		if FaultOf(err) != Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLongestPath: the real daemons take 87 bytes, and at 88 end without a word.
func TestLongestPath(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		tmp := tempDir(t)
		r.Root = filepath.Join(tmp, strings.Repeat("r", MaxPipeDirectory-len(tmp)-1-len(uuid0)-1))
		t.Cleanup(func() { endAll(t, r) })
		d := started(t, r)
		if len(d.dir) != MaxPipeDirectory {
			t.Fatalf("%d bytes", len(d.dir))
		}
		exchange(t, d, "get_server_list")

		// 88, past our own check.
		long := d.dir + "r"
		if err := os.Mkdir(long, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), r.Program, "-f")
		cmd.Env = append(clientEnvironment(long), "CUDA_MPS_LOG_DIRECTORY="+tmp)
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("a daemon ran with 88 bytes: %s", out)
		}
	})
}

func TestPrepare(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	root := filepath.Join(tempDir(t), "a", "b")
	d := NewDaemon(uuid0, filepath.Join(root, string(uuid0)), Program)
	for range 2 {
		if err := d.Prepare(); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]os.FileMode{d.dir: 0o750, root: 0o755, filepath.Dir(root): 0o755} {
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", dir, st.Mode(), err, want)
		}
	}
	if left, err := os.ReadDir(d.dir); len(left) != 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestPrepareFaults(t *testing.T) {
	tmp := tempDir(t)
	file := filepath.Join(tmp, "file")
	link := filepath.Join(tmp, "link")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(tmp, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), link, "/proc/sys/pipe"} {
		wantFault(t, NewDaemon(uuid0, dir, Program).Prepare(), Unwritable, "make it a directory")
	}
}

// TestForeignLock: a job that takes the control lock after the daemon's death
// is not believed to be the daemon, however it holds the lock and whatever became of
// its process, and it does not keep the next daemon from starting.
func TestForeignLock(t *testing.T) {
	needsRoot(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	exe = publicCopy(t, exe)
	for _, tt := range []struct {
		how  string
		uid  uint32
		says string
	}{
		{"posix", 4711, "it is of uid 4711): end that process"},
		{"stopped", 4711, "it is of uid 4711): end that process"},
		{"leader ended", 4711, "it is of uid 4711): end that process"},
		{"open file description", 4711, "no process is known to hold"},
		{"shared files", 4711, "no process is known to hold"},
		// As below a setuid program that the job started with the lock.
		{"posix", 0, `its program is "mps.test"): end that process`},
	} {
		t.Run(fmt.Sprintf("%s by uid %d", tt.how, tt.uid), func(t *testing.T) {
			onEachDriver(t, func(t *testing.T, r Processes) {
				s := daemonsOf(r)
				one := []Wanted{{uuid0, 2048, 100}}
				first := set(t, s, one)
				wantResults(t, first, Started, 1)
				d, err := s.Daemon(uuid0)
				if err != nil {
					t.Fatal(err)
				}
				if err := Admit(d.dir, 4711); err != nil {
					t.Fatal(err)
				}
				signal(t, first[0].Checked.Process(), syscall.SIGKILL)
				end := steal(t, exe, filepath.Join(d.dir, controlLock), tt.how, tt.uid)
				who, err := d.Alive()
				wantFault(t, err, Foreign, tt.says)
				wantFault(t, d.StillRuns(Checked{PID: who.PID, Started: who.Started}), Foreign)
				wantFault(t, d.StillRuns(first[0].Checked), Foreign)
				wantResults(t, set(t, s, one), Started, 1)
				if uids, err := Admitted(d.dir); len(uids) != 0 || err != nil {
					t.Errorf("admitted to the new directory: %v, %v", uids, err)
				}
				end()
				if err := r.Stop(t.Context(), uuid0); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// steal has another process take a lock; the function it returns ends that process.
func steal(t *testing.T, exe, lock, how string, uid uint32) (end func()) {
	t.Helper()
	thief := exec.Command(exe)
	thief.Env = []string{thiefEnv + "=" + lock, thiefHow + "=" + how}
	thief.Dir = "/"
	thief.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	in, err := thief.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := thief.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := thief.Start(); err != nil {
		t.Fatal(err)
	}
	if said, err := bufio.NewReader(out).ReadString('\n'); said != "<nil>\n" {
		t.Fatalf("the thief says %q, %v", said, err)
	}
	switch how {
	case "stopped":
		signal(t, process.ID{PID: thief.Process.Pid}, syscall.SIGSTOP)
	case "leader ended":
		eventually(t, "its first thread has ended", func() bool {
			s, err := proc.Stat(thief.Process.Pid)
			return err == nil && s.State == 'Z' && s.Threads > 1
		})
	case "shared files":
		if _, err := thief.Process.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if how == "stopped" {
			signal(t, process.ID{PID: thief.Process.Pid}, syscall.SIGCONT)
		}
		in.Close()
		if err := thief.Wait(); err != nil && how != "shared files" {
			t.Error(err)
		}
	}
}

// TestLockTakenMeanwhile: a job takes the lock between the look at it and the start of
// the daemon, which then finds it taken.
func TestLockTakenMeanwhile(t *testing.T) {
	needsRoot(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	exe = publicCopy(t, exe)
	onEachDriver(t, func(t *testing.T, r Processes) {
		one := []Wanted{{uuid0, 2048, 100}}
		d := mustDaemon(t, r, uuid0)
		var end func()
		s := daemonsOf(r)
		s.runner = meanwhile{r, func() {
			if end == nil {
				writeProgram(t, filepath.Join(d.dir, controlLock), "")
				if err := errors.Join(os.Chmod(filepath.Join(d.dir, controlLock), 0o666), Admit(d.dir, 4711)); err != nil {
					t.Error(err)
				}
				end = steal(t, exe, filepath.Join(d.dir, controlLock), "posix", 4711)
			}
		}}
		wantResults(t, set(t, s, one), Started, 1)
		end()
	})
}

// meanwhile lets something happen just before a daemon is started.
type meanwhile struct {
	Processes
	happens func()
}

func (m meanwhile) Start(ctx context.Context, u gpu.UUID) error {
	d, err := m.daemon(u)
	if err != nil {
		return err
	}
	if err := d.Prepare(); err != nil {
		return err
	}
	m.happens()
	return m.Processes.Start(ctx, u)
}
