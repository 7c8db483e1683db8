package mps

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/driver"
)

// cell is one column of the matrix: what may befall a control daemon, and what
// must come of it.
type cell struct {
	name string
	test func(t *testing.T, r Processes)
}

// matrix is what must hold with NVIDIA's control daemon of every driver branch.
var matrix = []cell{
	{"start", start},
	{"limits", limits},
	{"read-back", foreignLimits},
	{"wedge", wedge},
	{"kill", kill},
	{"stale files", staleFiles},
	{"full log pipe", fullLogPipe},
	{"no server binary", noServerBinary},
}

// TestMatrix names every cell: go test ./mps -run Matrix -v.
func TestMatrix(t *testing.T) {
	for _, branch := range driver.Branches() {
		for _, c := range matrix {
			t.Run(branch+"/"+c.name, func(t *testing.T) { c.test(t, onDriver(t, branch)) })
		}
	}
}

// start: it holds its lock, listens, has its limits, and one is enough.
func start(t *testing.T, r Processes) {
	s := daemonsOf(r)
	w := []Wanted{{uuid0, 4096, 100}}
	first := set(t, s, w)
	wantResults(t, first, Started, 1)
	d := mustDaemon(t, r, uuid0)
	if who := alive(t, d); who != first[0].Checked.Process() {
		t.Errorf("the proof is of %v, the lock is held by %v", first[0].Checked.Process(), who)
	}
	for _, name := range []string{"control", "control_privileged"} {
		if st, err := os.Lstat(filepath.Join(d.dir, name)); err != nil || st.Mode().Type() != os.ModeSocket {
			t.Errorf("%s: %v, %v; want a socket", name, st, err)
		}
	}
	again := set(t, s, w)
	wantResults(t, again, Adopted, 1)
	if again[0].Checked.Process() != first[0].Checked.Process() {
		t.Errorf("%v was started beside %v", again[0].Checked.Process(), first[0].Checked.Process())
	}
}

func limits(t *testing.T, r Processes) {
	tests := []struct {
		limit      gpu.MiB
		percentage float64
		want       [2]string
	}{
		{1, 0.1, [2]string{"1M", "0.1"}},
		{500, 100, [2]string{"500M", "100.0"}},
		{1023, 12.35, [2]string{"1023M", "12.3"}},
		{1024, 12.36, [2]string{"1G", "12.4"}},
		{1500, 50, [2]string{"1G", "50.0"}},
		{2047, 99.94, [2]string{"1G", "99.9"}},
		{2048, 99.96, [2]string{"2G", "100.0"}},
		{32256, 33.333333, [2]string{"31G", "33.3"}},
		{143771, 6.25, [2]string{"140G", "6.2"}},
		{largestLimit, 100, [2]string{"1048576G", "100.0"}},
	}
	d := started(t, r)
	who := alive(t, d)
	for _, tt := range tests {
		w := Wanted{GPU: uuid0, Limit: tt.limit, ThreadPercentage: tt.percentage}
		set, err := d.Set(t.Context(), w)
		if err != nil {
			t.Errorf("set %v, %v: %v", tt.limit, tt.percentage, err)
			continue
		}
		checked, err := d.Check(t.Context(), w)
		if err != nil {
			t.Errorf("prove %v, %v: %v", tt.limit, tt.percentage, err)
		}
		for _, p := range []Checked{set, checked} {
			if got := [2]string{p.Limit, p.ThreadPercentage}; got != tt.want || p.Process() != who || len(p.Servers) != 0 {
				t.Errorf("set %v, %v: %+v, want %v of %v", tt.limit, tt.percentage, p, tt.want, who)
			}
		}
	}
}

func foreignLimits(t *testing.T, r Processes) {
	d := started(t, r)
	w := Wanted{GPU: uuid0, Limit: 16000, ThreadPercentage: 100}
	_, err := d.Check(t.Context(), w)
	wantFault(t, err, WrongLimits, "reads nothing", "want 15G")
	if _, err := d.Set(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	exchange(t, d, "set_default_device_pinned_mem_limit 0 14G")
	_, err = d.Check(t.Context(), w)
	wantFault(t, err, WrongLimits, `its memory-limit reads "14G"`, "want 15G")
	exchange(t, d, "set_default_device_pinned_mem_limit 0 15G")
	exchange(t, d, "set_default_active_thread_percentage 50")
	_, err = d.Check(t.Context(), w)
	wantFault(t, err, WrongLimits, `thread-percentage reads "50.0", want 100.0`)
}

// wedge: a stranger's connection without a handshake blocks the daemon,
// which then lives but does not answer, until the stranger leaves.
func wedge(t *testing.T, r Processes) {
	d := started(t, r)
	w := Wanted{GPU: uuid0, Limit: 4096, ThreadPercentage: 100}
	if _, err := d.Set(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	stranger, err := net.Dial("unixpacket", filepath.Join(d.dir, "control"))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	d.patience = 300 * time.Millisecond
	_, err = d.Check(t.Context(), w)
	wantFault(t, err, Wedged, "did not answer")
	if _, err := d.Alive(); err != nil {
		t.Errorf("a wedged daemon lives: %v", err)
	}
	stranger.Close()
	d.patience = 30 * time.Second
	if _, err := d.Check(t.Context(), w); err != nil {
		t.Error(err)
	}
}

// kill: between two commands, during one, and replaced during one.
func kill(t *testing.T, r Processes) {
	d := started(t, r)
	w := Wanted{GPU: uuid0, Limit: 4096, ThreadPercentage: 100}
	checked, err := d.Set(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	signal(t, checked.Process(), syscall.SIGKILL)
	_, err = d.Command(t.Context(), "get_server_list")
	wantFault(t, err, NotRunning, "it is not running", d.dir)
	wantFault(t, d.StillRuns(checked), NotRunning)

	// The sockets of the dead one are still there, and do no harm.
	if _, err := os.Lstat(filepath.Join(d.dir, "control")); err != nil {
		t.Fatal(err)
	}
	d = started(t, r)
	wantFault(t, d.StillRuns(checked), Gone)
	_, err = d.Check(t.Context(), w)
	wantFault(t, err, WrongLimits) // the new one knows nothing of our limits

	kill := fmt.Sprintf("#!/bin/sh\nexec 2>/dev/null\nkill -9 %d\n", alive(t, d).PID)
	d.program = writeProgram(t, filepath.Join(tempDir(t), "cli"), kill+"exec "+r.Program+"\n")
	_, err = d.Command(t.Context(), "get_server_list")
	wantFault(t, err, Gone, "ended while it was asked")

	d = started(t, r)
	kill = fmt.Sprintf("#!/bin/sh\nexec 2>/dev/null\nkill -9 %d\n", alive(t, d).PID)
	d.program = writeProgram(t, filepath.Join(tempDir(t), "cli"),
		kill+fmt.Sprintf("CUDA_MPS_LOG_DIRECTORY=%s %s -d </dev/null\nexec %s\n", r.Logs, r.Program, r.Program))
	_, err = d.Command(t.Context(), "get_server_list")
	wantFault(t, err, Gone)
}

// staleFiles: whatever a killed daemon leaves, and a pid file that lies, does
// not keep the next one from serving, nor pass for a daemon.
func staleFiles(t *testing.T, r Processes) {
	d := started(t, r)
	dead := alive(t, d)
	signal(t, dead, syscall.SIGKILL)
	for _, name := range []string{"control", "control_privileged", controlLock, "log"} {
		if _, err := os.Lstat(filepath.Join(d.dir, name)); err != nil {
			t.Errorf("a killed daemon does not leave %s: %v", name, err)
		}
	}
	// Opened without truncation: the next daemon writes over its first digits only.
	lie := fmt.Sprintf("%d", os.Getpid())
	if err := os.WriteFile(filepath.Join(d.dir, "nvidia-cuda-mps-control.pid"), []byte(lie+lie+lie), 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := d.Alive()
	wantFault(t, err, NotRunning)
	if running, err := r.Running(t.Context()); len(running) != 0 || err != nil {
		t.Errorf("running: %v, %v", running, err)
	}
	next := set(t, daemonsOf(r), []Wanted{{uuid0, 3000, 50}})
	wantResults(t, next, Started, 1)
	if who := alive(t, d); who == dead || who != next[0].Checked.Process() || next[0].Checked.Limit != "2G" {
		t.Errorf("proof %+v, the lock is held by %v", next[0].Checked, who)
	}
}

// fullLogPipe: rubbish in its log pipe makes a daemon hang in its own next
// line. It counts as wedged, is ended in bounded time, and the next one serves.
func fullLogPipe(t *testing.T, r Processes) {
	d := started(t, r)
	who := alive(t, d)
	f, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rubbish(t, f)
	w := Wanted{GPU: uuid0, Limit: 4096, ThreadPercentage: 100}
	d.patience = 300 * time.Millisecond
	// What it writes before it answers goes in as long as some bytes are free.
	eventually(t, "the daemon hangs", func() bool {
		_, err = d.Check(t.Context(), w)
		return FaultOf(err) == Wedged
	})
	if after := alive(t, d); after != who {
		t.Errorf("%v became %v", who, after)
	}
	if err := r.Stop(t.Context(), uuid0); err != nil {
		t.Fatal(err)
	}
	res := set(t, daemonsOf(r), []Wanted{w})
	wantResults(t, res, Started, 1)
	if res[0].Checked.Process() == who {
		t.Errorf("%v still runs", who)
	}
}

// rubbish fills a pipe until it takes nothing more.
func rubbish(t *testing.T, f *os.File) {
	t.Helper()
	junk := make([]byte, 64<<10)
	eventually(t, "the log pipe is full", func() bool {
		_ = f.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		_, err := f.Write(junk)
		return os.IsTimeout(err)
	})
}

// noServerBinary: the command succeeds, as every one does; that no server comes
// is told by the log, and the daemon goes on to answer.
func noServerBinary(t *testing.T, r Processes) {
	d := started(t, r)
	who := alive(t, d)
	if err := d.StartServer(t.Context(), uint32(os.Geteuid())); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log tells that a server exited", func() bool {
		lines, err := r.Log(t.Context(), uuid0, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(lines, func(l string) bool {
			e, ok := ParseEvent(l)
			return ok && e.Kind == ServerExited && e.Status == 1
		})
	})
	checked, err := d.Set(t.Context(), Wanted{GPU: uuid0, Limit: 4096, ThreadPercentage: 100})
	if err != nil || len(checked.Servers) != 0 || checked.Process() != who {
		t.Errorf("proof %+v, %v; want no servers of %v", checked, err, who)
	}
}

// TestRubbishOnItsSocket: a stranger that speaks another language is put out, or
// blocks the daemon until it leaves; either way the same daemon serves on.
func TestRubbishOnItsSocket(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		d := started(t, r)
		who := alive(t, d)
		for i, words := range []string{"rubbish", "\x00\xff\xff\xff\xff", "OUTBCRED\x00", strings.Repeat("A", 60_000)} {
			stranger, err := net.Dial("unixpacket", filepath.Join(d.dir, "control"))
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				_ = stranger.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
				_, _ = stranger.Write([]byte(words)) // it may be gone, or not read
			}
			stranger.Close()
			d.patience = 30 * time.Second
			word := fmt.Sprintf("word-%d", i)
			if got, want := exchange(t, d, word), fmt.Sprintf("Unknown command %q", word); got != want {
				t.Errorf("after %.10q: %q, want %q", words, got, want)
			}
		}
		if now := alive(t, d); now != who {
			t.Errorf("%v became %v", who, now)
		}
	})
}
