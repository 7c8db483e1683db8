package mps

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/driver"
	"github.com/gpuslot/gpuslot/test/sim"
)

// probed are what the branches can do.
var probed = map[string]string{
	"535": "none",
	"550": "server-status, privilege-checks, pid-file",
	"555": "server-status, privilege-checks, pid-file, multi-user",
}

// strangerUID is an account without processes.
const strangerUID = 4242

// probing runs a test with each control program where every account can run it.
func probing(t *testing.T, test func(t *testing.T, branch, program string, device gpu.UUID)) {
	for _, branch := range driver.Branches() {
		t.Run("real "+branch, func(t *testing.T) {
			test(t, branch, publicCopy(t, driver.Control(driver.Dir(t, branch))), uuid0)
		})
		t.Run("sim "+branch, func(t *testing.T) {
			n := sim.New(t, branch+".1", "V100S")
			test(t, branch, onNode(t, n, branch, publicCopy(t, filepath.Join(n.Dir, "bin/nvidia-cuda-mps-control"))), onlyGPU(t, n))
		})
	}
}

func TestProbe(t *testing.T) {
	needsRoot(t)
	probing(t, func(t *testing.T, branch, program string, device gpu.UUID) {
		run := tempDir(t)
		writeProgram(t, filepath.Join(run, "probe/1/control"), "left by a killed agent")
		c, err := Probe(t.Context(), program, run, device, strangerUID)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.String(); got != probed[branch] || c.Version != "" {
			t.Errorf("%s (version %q), want %s: %+v", got, c.Version, probed[branch], c)
		}
		for _, a := range c.All() {
			if !a.Known || a.How == "" {
				t.Errorf("%s: known %v, how %q", a.Name, a.Known, a.How)
			}
		}
		if left, err := os.ReadDir(run); len(left) != 0 || err != nil {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
}

// TestProbeDisturbsNobody: a daemon in the default directory of the probing
// process is not asked and not changed.
func TestProbeDisturbsNobody(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		d := started(t, r)
		w := Wanted{GPU: uuid0, Limit: 4096, ThreadPercentage: 40}
		before, err := d.Set(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("CUDA_MPS_PIPE_DIRECTORY", d.PipeDirectory())
		exchange(t, d, "before")
		if _, err := Probe(t.Context(), r.Program, tempDir(t), uuid0, strangerUID); err != nil {
			t.Fatal(err)
		}
		exchange(t, d, "after")
		var meanwhile string
		eventually(t, "all of it is in the log", func() bool {
			b, _ := os.ReadFile(filepath.Join(r.Logs, string(uuid0)+".log"))
			_, meanwhile, _ = strings.Cut(string(b), "Cmd:before")
			var all bool
			meanwhile, _, all = strings.Cut(meanwhile, "Cmd:after")
			return all
		})
		if n := strings.Count(meanwhile, "NEW UI"); n != 1 {
			t.Errorf("the daemon was asked %d times, want once, by this test: %s", n, meanwhile)
		}
		after, err := d.Check(t.Context(), w)
		if err != nil || after.Process() != before.Process() {
			t.Errorf("%+v, %v; before %+v", after, err, before)
		}
	})
}

// Newer programs, by what NVIDIA documents of them.
const newer = `case "$*" in
-v) echo "CUDA MPS Control 13040"; exit 0 ;;
"-p 3 -f") [ "$CUDA_MPS_PROTOCOL_VERSION" = 3 ] || exit 1; set -- -f ;;
"-S -f") set -- -f ;;
esac
`

func TestProbeOfNewerPrograms(t *testing.T) {
	needsRoot(t)
	real := publicCopy(t, driver.Control(driver.Dir(t, "555")))
	program := writeProgram(t, filepath.Join(tempDir(t), "cli"), "#!/bin/sh\n"+newer+"exec "+real+" \"$@\"\n")
	c, err := Probe(t.Context(), program, tempDir(t), uuid0, strangerUID)
	want := "server-status, privilege-checks, pid-file, multi-user, static-partitions, protocol-v3"
	if err != nil || c.String() != want || c.Version != "CUDA MPS Control 13040" {
		t.Errorf("%s (version %q), %v; want %s", c, c.Version, err, want)
	}
}

// TestProbeOfSimulatedDrivers: the simulated ones know -S and -p 3 themselves.
func TestProbeOfSimulatedDrivers(t *testing.T) {
	needsRoot(t)
	for driver, more := range map[string]string{"590.48.01": ", static-partitions", "615.71.09": ", static-partitions, protocol-v3"} {
		n := sim.New(t, driver, "H200")
		program := onNode(t, n, driver, publicCopy(t, filepath.Join(n.Dir, "bin/nvidia-cuda-mps-control")))
		c, err := Probe(t.Context(), program, tempDir(t), onlyGPU(t, n), strangerUID)
		if want := probed["555"] + more; err != nil || c.String() != want {
			t.Errorf("%s: %s, %v; want %s: %+v", driver, c, err, want, c)
		}
	}
}

// TestProbeSaysWhatItDoesNotKnow: a refusal that nobody has seen before is no answer.
func TestProbeSaysWhatItDoesNotKnow(t *testing.T) {
	real := publicCopy(t, driver.Control(driver.Dir(t, "550")))
	program := writeProgram(t, filepath.Join(tempDir(t), "cli"), "#!/bin/sh\n[ \"$1\" != -S ] || { echo no such luck; exit 3; }\nexec "+real+" \"$@\"\n")
	c, err := Probe(t.Context(), program, tempDir(t), uuid0, strangerUID)
	if err != nil || c.StaticPartitions.Known || !strings.Contains(c.StaticPartitions.How, "no such luck") || !strings.Contains(c.String(), "static-partitions?") {
		t.Errorf("%s, %v: %+v", c, err, c.StaticPartitions)
	}
}

// TestProbeWithoutAnotherAccount: a program that nobody else can run, or for which there is no
// other account, is judged by its own words; 535 has none.
func TestProbeWithoutAnotherAccount(t *testing.T) {
	want := map[string]Answer{"535": {}, "550": {Has: true, Known: true}, "555": {Has: true, Known: true}}
	for _, branch := range driver.Branches() {
		program := publicCopy(t, driver.Control(driver.Dir(t, branch)))
		for stranger, mode := range map[uint32]os.FileMode{strangerUID: 0o700, 0: 0o755} {
			if err := os.Chmod(program, mode); err != nil {
				t.Fatal(err)
			}
			c, err := Probe(t.Context(), program, tempDir(t), uuid0, stranger)
			if strings.Contains(c.PrivilegeChecks.How, "uid ") {
				t.Errorf("%s: %+v", branch, c.PrivilegeChecks)
			}
			c.PrivilegeChecks.How = ""
			if diff := cmp.Diff(want[branch], c.PrivilegeChecks); err != nil || diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", branch, err, diff)
			}
		}
	}
}

func TestProbeFails(t *testing.T) {
	_, err := Probe(t.Context(), "/nonexistent/nvidia-cuda-mps-control", tempDir(t), uuid0, strangerUID)
	wantFault(t, err, NotInstalled, "install the package")
	_, err = Probe(t.Context(), writeProgram(t, filepath.Join(tempDir(t), "cli"), "#!/bin/sh\necho broken; exit 1\n"), tempDir(t), uuid0, strangerUID)
	wantFault(t, err, NotRunning, "broken")
	real := publicCopy(t, driver.Control(driver.Dir(t, "550")))
	_, err = Probe(t.Context(), writeProgram(t, filepath.Join(tempDir(t), "cli"), "#!/bin/sh\n"+
		"[ $# -gt 0 ] || until kill -9 $(cat \"$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid\"); do sleep 0.01; done\nexec "+real+" \"$@\"\n"), tempDir(t), uuid0, strangerUID)
	if err == nil {
		t.Error("a daemon that was killed was probed")
	}
	_, err = Probe(t.Context(), real, filepath.Join(tempDir(t), strings.Repeat("d", 90)), uuid0, strangerUID)
	wantFault(t, err, PathTooLong, "shorter run directory")
	longest := tempDir(t)
	longest = filepath.Join(longest, strings.Repeat("d", MaxPipeDirectory-len(longest)-len("//probe/1")))
	_, err = Probe(t.Context(), writeProgram(t, filepath.Join(tempDir(t), "cli"), "#!/bin/sh\necho broken; exit 1\n"), longest, uuid0, strangerUID)
	wantFault(t, err, NotRunning, "broken")
}

// TestProbeIsClosed: nobody but the one other account that the probe tries gets to its
// daemons, which run as root and have no limits.
func TestProbeIsClosed(t *testing.T) {
	needsRoot(t)
	onEachDriver(t, func(t *testing.T, r Processes) {
		run := tempDir(t)
		tmp := tempDir(t)
		if err := os.Chmod(tmp, 0o777); err != nil {
			t.Fatal(err)
		}
		// The command line of the other account waits for this test's looks.
		asked, went := filepath.Join(tmp, "asked"), filepath.Join(tmp, "went")
		program := writeProgram(t, filepath.Join(tmp, "cli"), "#!/bin/sh\n"+
			"[ $# -gt 0 ] || [ $(id -u) = 0 ] || { echo \"$CUDA_MPS_PIPE_DIRECTORY\" >"+asked+"; while [ ! -e "+went+" ]; do sleep 0.01; done; }\n"+
			"exec "+r.Program+" \"$@\"\n")
		done := make(chan error)
		go func() {
			_, err := Probe(t.Context(), program, run, uuid0, strangerUID)
			done <- err
		}()
		eventually(t, "the probe tries another account", func() bool { return readFrom(asked, 0) != "" })
		if st, err := os.Stat(filepath.Join(run, "probe")); err != nil || st.Mode().Perm()&0o007 != 0 {
			t.Errorf("%v, %v", st.Mode(), err)
		}
		if uids, err := Admitted(filepath.Join(run, "probe")); !slices.Equal(uids, []uint32{strangerUID}) || err != nil {
			t.Errorf("admitted: %v, %v", uids, err)
		}
		dir := strings.TrimSpace(readFrom(asked, 0))
		if out, _ := as(t, 4711, 4711, clientEnvironment(dir), "get_server_list\neof-x\n", r.Program); strings.Contains(out, "eof-x") {
			t.Errorf("a third account was answered: %s", out)
		}
		writeProgram(t, went, "")
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestProbeOfAMachineWithGPUs: a control daemon that sees no device ends at once there, without
// a word. This one stands for it.
func TestProbeOfAMachineWithGPUs(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		program := writeProgram(t, filepath.Join(tempDir(t), "cli"), "#!/bin/sh\n"+
			"[ $# = 0 ] || [ \"$1\" = -v ] || [ \"$CUDA_VISIBLE_DEVICES\" = "+string(uuid0)+" ] || exit 1\n"+
			"exec "+r.Program+" \"$@\"\n")
		if _, err := Probe(t.Context(), program, tempDir(t), uuid0, 0); err != nil {
			t.Error(err)
		}
	})
}

// TestProbeLeavesNoProcess: a program that starts and takes no lock is ended.
func TestProbeLeavesNoProcess(t *testing.T) {
	tmp := tempDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil && readFrom(tmp+"/pids", 0) == "" {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	program := writeProgram(t, tmp+"/p", "#!/bin/sh\necho $$ >>"+tmp+"/pids; exec sleep 600\n")
	if _, err := Probe(ctx, program, tempDir(t), uuid0, strangerUID); err == nil {
		t.Error("a program that takes no lock was probed")
	}
	for _, text := range strings.Fields(readFrom(tmp+"/pids", 0)) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := proc.Stat(pid); err == nil && !s.Ended() {
			t.Errorf("process %d is left", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func TestClientCeiling(t *testing.T) {
	for cuda, want := range map[string]int{"11.5": 48, "12.4": 48, "13.0": 48, "13.1": 60, "13.10": 60, "14.0": 60, "": 0, "13": 0, "x.y": 0, "0.1": 0, "1.0": 48} {
		if got, ok := ClientCeiling(cuda); got != want || ok != (want != 0) {
			t.Errorf("CUDA %q: %d, %v; want %d", cuda, got, ok, want)
		}
	}
}

func BenchmarkProbe(b *testing.B) {
	program, run := publicCopy(b, driver.Control(driver.Dir(b, "555"))), tempDir(b)
	for b.Loop() {
		if _, err := Probe(b.Context(), program, run, uuid0, strangerUID); err != nil {
			b.Fatal(err)
		}
	}
}
