package mps

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestAdoptionAfterKill: the daemon lives on when the agent that started it is
// killed, and the next agent adopts it.
func TestAdoptionAfterKill(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		agent := exec.Command(exe)
		agent.Env = append(os.Environ(), starterEnv+"="+strings.Join([]string{r.Root, r.Logs, r.Program}, "\n"))
		in, err := agent.StdinPipe() // open until it is killed
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		out, err := agent.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.Start(); err != nil {
			t.Fatal(err)
		}
		word := make([]byte, 200)
		n, _ := out.Read(word)
		if got := string(word[:n]); got != "started\n" {
			t.Fatalf("the agent says %q", got)
		}
		if err := agent.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = agent.Wait()

		before := alive(t, mustDaemon(t, r, uuid0))
		res := set(t, daemonsOf(r), []Wanted{{uuid0, 2048, 100}})
		wantResults(t, res, Adopted, 1)
		if res[0].Checked.Process() != before {
			t.Errorf("process %v, want %v", res[0].Checked.Process(), before)
		}
		if err := r.Stop(t.Context(), uuid0); err != nil {
			t.Error(err)
		}
	})
}

func TestStartLeavesARunningDaemonAlone(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		d := started(t, r)
		before := alive(t, d)
		if err := r.Start(t.Context(), uuid0); err != nil {
			t.Error(err)
		}
		if after := alive(t, d); after != before {
			t.Errorf("%v became %v", before, after)
		}
		signal(t, before, syscall.SIGSTOP)
		wantFault(t, r.Start(t.Context(), uuid0), Suspended)
	})
}

// TestStartBesideADyingDaemon: a lock that is let go a moment later does not
// keep a daemon from starting.
func TestStartBesideADyingDaemon(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		real := r.Program
		flag := filepath.Join(tempDir(t), "tried")
		r.Program = writeProgram(t, filepath.Join(tempDir(t), "p"),
			"#!/bin/sh\n[ -e "+flag+" ] && exec "+real+" \"$@\"\n: >"+flag+"\necho An instance of this daemon is already running\nexit 1\n")
		started(t, r)
	})
}

// TestStartEnvironment: a daemon gets what it is given, but keeps its own
// directory and GPU.
func TestStartEnvironment(t *testing.T) {
	dir := tempDir(t)
	said := filepath.Join(dir, "said")
	r := Processes{
		Root: dir, Logs: dir, Program: writeProgram(t, filepath.Join(dir, "p"), "#!/bin/sh\nenv >"+said+"\nexit 1\n"),
		Environment: []string{"LD_LIBRARY_PATH=/opt/driver", "CUDA_MPS_PIPE_DIRECTORY=/elsewhere", "CUDA_VISIBLE_DEVICES=7"},
	}
	if err := r.Start(t.Context(), uuid0); err == nil {
		t.Fatal("it runs")
	}
	b, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"LD_LIBRARY_PATH=/opt/driver\n", "CUDA_MPS_PIPE_DIRECTORY=" + filepath.Join(dir, string(uuid0)) + "\n", "CUDA_VISIBLE_DEVICES=" + string(uuid0) + "\n"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in\n%s", want, b)
		}
	}
}

// TestStopEnds daemons in every state, and what is gone is gone.
func TestStopEnds(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		for _, state := range []string{"well", "suspended", "dead"} {
			t.Run(state, func(t *testing.T) {
				d := started(t, r)
				who := alive(t, d)
				switch state {
				case "suspended":
					signal(t, who, syscall.SIGSTOP)
				case "dead":
					signal(t, who, syscall.SIGKILL)
				}
				for range 2 { // the second time there is nothing to do
					if err := r.Stop(t.Context(), uuid0); err != nil {
						t.Fatal(err)
					}
				}
				if proc.Runs(who) {
					t.Errorf("process %d lives", who.PID)
				}
				if _, err := os.Lstat(d.dir); !os.IsNotExist(err) {
					t.Errorf("pipe directory: %v", err)
				}
			})
		}
	})
}

// TestFamily: only a daemon that leads a session of its own has its servers told from other processes.
func TestFamily(t *testing.T) {
	for _, how := range []syscall.SysProcAttr{{Setsid: true}, {Setpgid: true}, {}} {
		leads := how.Setsid
		how.Pdeathsig = syscall.SIGKILL
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr = &how
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s, err := proc.Stat(cmd.Process.Pid)
		if f := familyOf(s.ID); err != nil || f.leads != leads || f.head != s.ID {
			t.Errorf("%+v: %+v, %v", how, f, err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// TestQuit: the daemon is asked to end, in a turn of its own that is given back.
func TestQuit(t *testing.T) {
	dir := tempDir(t)
	said := filepath.Join(dir, "said")
	d := NewDaemon(uuid0, dir, writeProgram(t, filepath.Join(dir, "cli"), "#!/bin/sh\ncat >"+said+"\n"))
	d.quit(t.Context())
	if text := readFrom(said, 0); text != "quit -t 1\n" || len(d.turn) != 0 {
		t.Errorf("it was told %q; %d have the turn", text, len(d.turn))
	}
}

// TestStopOfAForeignDaemon, one that was started by hand and does not lead a
// session: it ends, and nobody else of its session does.
func TestStopOfAForeignDaemon(t *testing.T) {
	r := onDriver(t, "550")
	d := mustDaemon(t, r, uuid0)
	if err := d.Prepare(); err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("sh", "-c", `"$0" -f </dev/null >/dev/null 2>&1 & wait $!; exec sleep 600`, r.Program)
	shell.Env = append(clientEnvironment(d.dir), "CUDA_MPS_LOG_DIRECTORY="+d.dir)
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shell.Process.Kill(); _ = shell.Wait() }()
	eventually(t, "the daemon runs", func() bool { _, err := d.Alive(); return err == nil })
	if err := r.Stop(t.Context(), uuid0); err != nil {
		t.Error(err)
	}
	if s, err := proc.Stat(shell.Process.Pid); err != nil || s.Ended() {
		t.Errorf("the shell beside it is gone: %v", err)
	}
}

func TestStartFaults(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		// A file in place of the directory: the daemon's own words lead to the fault.
		if err := os.MkdirAll(r.Root, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.Root, string(uuid1)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		wantFault(t, r.Start(t.Context(), uuid1), Unwritable, "make it a directory")

		bad := r
		bad.Program = filepath.Join(r.Root, "no-such-program")
		wantFault(t, bad.Start(t.Context(), uuid0), NotInstalled, "install the package")
		bad.Program = writeProgram(t, filepath.Join(tempDir(t), "p"), "#!/bin/sh\necho good bye; exit 3\n")
		wantFault(t, bad.Start(t.Context(), uuid0), NotRunning, "good bye")
		bad.Logs = filepath.Join(r.Root, string(uuid1))
		wantFault(t, bad.Start(t.Context(), uuid0), Unwritable, "log file")

	})
}

// TestStartOfAHangingProgram: what was started and takes no lock is not left behind.
func TestStartOfAHangingProgram(t *testing.T) {
	tmp := tempDir(t)
	r := runnerWith(t, writeProgram(t, filepath.Join(tmp, "p"), "#!/bin/sh\necho $$ >"+tmp+"/pid; exec sleep 600\n"))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for ctx.Err() == nil && readFrom(tmp+"/pid", 0) == "" {
			time.Sleep(time.Millisecond)
		}
	}()
	wantFault(t, r.Start(ctx, uuid0), Wedged, "did not take its lock")
	pid, err := strconv.Atoi(strings.TrimSpace(readFrom(tmp+"/pid", 0)))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is gone", func() bool {
		s, err := proc.Stat(pid)
		return err != nil || s.Ended()
	})
}

// TestEnvironmentOfTheDaemon: it sees one GPU, may open many files, and keeps
// no terminal and no standard input.
func TestEnvironmentOfTheDaemon(t *testing.T) {
	r := onDriver(t, "550")
	d := started(t, r)
	who := alive(t, d)
	dir := "/proc/" + strconv.Itoa(who.PID)
	env, err := os.ReadFile(dir + "/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"CUDA_VISIBLE_DEVICES=" + string(uuid0), "CUDA_MPS_PIPE_DIRECTORY=" + d.dir,
		"PATH=" + r.ServerPath + ":/usr/sbin:/usr/bin:/sbin:/bin",
	} {
		if !strings.Contains("\x00"+string(env), "\x00"+want+"\x00") {
			t.Errorf("its environment lacks %s", want)
		}
	}
	if in, err := os.Readlink(dir + "/fd/0"); in != "/dev/null" {
		t.Errorf("standard input is %s, %v", in, err)
	}
	var l unix.Rlimit
	if err := unix.Prlimit(who.PID, unix.RLIMIT_NOFILE, nil, &l); err != nil || l.Cur < min(openFiles, l.Max) {
		t.Errorf("open files: %+v, %v", l, err)
	}
	if s, err := proc.Stat(who.PID); err != nil || s.Session != who.PID {
		t.Errorf("session %d, %v; want its own", s.Session, err)
	}
}

// TestOpenFilesAreRaised: the soft limit of a process rises to what NVIDIA asks for, and no
// higher one is lowered.
func TestOpenFilesAreRaised(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	for _, l := range []struct{ cur, max, want uint64 }{
		{openFiles + 100, openFiles + 100, openFiles + 100}, {100, openFiles + 100, openFiles}, {100, 200, 200}, // the hard limit falls only
	} {
		if l.max > own.Max {
			continue
		}
		at := unix.Rlimit{Cur: l.cur, Max: l.max}
		if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, &at, nil); err != nil {
			t.Fatal(err)
		}
		raiseOpenFiles(cmd.Process.Pid)
		if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_NOFILE, nil, &at); err != nil || at.Cur != l.want || at.Max != l.max {
			t.Errorf("%+v became %+v: %v", l, at, err)
		}
	}
}

func TestLargeLogIsPutAside(t *testing.T) {
	r := onDriver(t, "550")
	if err := os.MkdirAll(r.Logs, 0o755); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(r.Logs, string(uuid0)+".log")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, maxLog+1); err != nil {
		t.Fatal(err)
	}
	started(t, r)
	if st, err := os.Stat(name + ".1"); err != nil || st.Size() != maxLog+1 {
		t.Errorf("the old log: %v, %v", st, err)
	}
	if st, err := os.Stat(name); err != nil || st.Size() > 4096 {
		t.Errorf("the new log: %v, %v", st, err)
	}
}

// TestFamilyWithoutDescriptors: a daemon and its servers are not taken for ended where /proc cannot
// be read.
func TestFamilyWithoutDescriptors(t *testing.T) {
	self, err := proc.Stat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	server := Server{ID: self.ID}
	proctree.WithoutDescriptors(t, func() {
		for _, leads := range []bool{false, true} {
			if f := (family{head: self.ID, leads: leads}); len(f.alive(proc)) == 0 {
				t.Errorf("leads %t: all have ended", leads)
			}
		}
		if died := (&Daemon{dir: t.Name()}).QuickCheck(Checked{States: []Server{server}}).Died; len(died) > 0 {
			t.Errorf("servers have ended: %+v", died)
		}
	})
}

// TestFamilyOfUnknown: a process that cannot be read may be one of a daemon's family.
func TestFamilyOfUnknown(t *testing.T) {
	f := proctree.New(t)
	for _, pid := range []int{1, 200, 300} {
		f.Add(proctree.Process{PID: pid, Comm: "x"}) // all of one session, that of process 1
	}
	head := process.ID{PID: 1, Started: proctree.StartOf(1)}
	stat := filepath.Join(f.Root, "200/stat")
	if err := errors.Join(os.Remove(stat), os.Symlink(stat, stat)); err != nil {
		t.Fatal(err)
	}
	f.End(300)
	f.Add(proctree.Process{PID: 400, Comm: "nvidia-cuda-mps"})
	f.Hold(400, "stat") // it may be a server: root's group has it
	f.Add(proctree.Process{PID: 402, Comm: "x"})
	f.Hold(402, "stat") // another program of root's
	f.Add(proctree.Process{PID: 401, Comm: "x", UID: 1000})
	f.Hold(401, "stat") // any user can bring that about
	want := []process.ID{head, {PID: 200}, {PID: 400}}
	if left := (family{head, true}).alive(process.FS{Root: f.Root}); !slices.Equal(left, want) {
		t.Errorf("%+v", left)
	}
}
