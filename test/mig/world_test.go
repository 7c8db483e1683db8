package mig

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
	"github.com/gpuslot/gpuslot/test/sim"
)

// world is a node, its state directory, the process that applies, and the jobs.
type world struct {
	t    *testing.T
	r    *rand.Rand
	node *sim.Node
	dir  string
	gpus []gpu.UUID
	boot string
	hand *hand
	// eye looks while hand is at work.
	eye  *hand
	jobs map[gpu.UUID]*job // by MIG UUID
	cat  mig.Catalogue
}

// hand is one applier process.
type hand struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out *json.Decoder
	end io.Closer
}

func newWorld(t *testing.T, r *rand.Rand) *world {
	t.Helper()
	w := &world{t: t, r: r, node: sim.New(t, "550.163.01", "A100-40", "H100-80"), dir: t.TempDir(), boot: "0", jobs: map[gpu.UUID]*job{}}
	for line := range strings.Lines(w.simgpu("show", "--json")) {
		if _, uuid, ok := strings.Cut(line, `"GPU-`); ok {
			w.gpus = append(w.gpus, gpu.UUID("GPU-"+uuid[:36]))
		}
	}
	if len(w.gpus) != 2 {
		t.Fatalf("GPUs of the node: %v", w.gpus)
	}
	w.eye = w.start()
	return w
}

func (w *world) close() {
	for u := range w.jobs {
		w.endJob(u)
	}
	for _, h := range []*hand{w.hand, w.eye} {
		if h != nil {
			_ = h.end.Close()
			_ = h.cmd.Wait()
		}
	}
}

func (w *world) simgpu(args ...string) string {
	w.t.Helper()
	out, code := w.trySimgpu(args...)
	if code != 0 {
		w.t.Fatalf("simgpu %v: exit code %d: %s", args, code, out)
	}
	return out
}

func (w *world) trySimgpu(args ...string) (string, int) {
	return w.node.Run(w.t.Context(), filepath.Join(w.node.Dir, "bin/simgpu"), args...)
}

func (w *world) start() *hand {
	w.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(w.node.Env(), applierDir+"="+w.dir)
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		w.t.Fatal(err)
	}
	return &hand{cmd: cmd, in: json.NewEncoder(in), out: json.NewDecoder(bufio.NewReader(out)), end: in}
}

// order has the applier do one thing; died says that it was killed over it.
func (w *world) order(o order) (a answer, died bool) {
	w.t.Helper()
	if w.hand == nil {
		w.hand = w.start()
	}
	o.Boot = w.boot
	if err := w.hand.in.Encode(o); err != nil {
		w.t.Fatal(err)
	}
	if err := w.hand.out.Decode(&a); err == nil {
		return a, false
	}
	w.reap()
	return answer{}, true
}

// reap waits for an applier that was killed, and for nothing else.
func (w *world) reap() {
	w.t.Helper()
	err := w.hand.cmd.Wait()
	if code := w.hand.cmd.ProcessState; code.ExitCode() != -1 {
		w.t.Fatalf("the applier ended by itself: %v", err)
	}
	w.hand = nil
}

func (h *hand) ask(o order) (a answer, err error) {
	return a, errors.Join(h.in.Encode(o), h.out.Decode(&a))
}

// see reads one GPU with owners.
func (w *world) see(gpu int) gpu.MIGState {
	w.t.Helper()
	a, err := w.eye.ask(order{Verb: "state", GPU: w.gpus[gpu], Boot: w.boot})
	if err != nil || a.Err != "" {
		w.t.Fatal(err, a.Err)
	}
	return *a.Outcome.State
}

// job is a simjob on a MIG device; it runs until its input ends.
type job struct {
	cmd *exec.Cmd
	in  io.Closer
}

// startJob puts a job on a MIG device and waits until it has its memory.
func (w *world) startJob(u gpu.UUID) {
	w.t.Helper()
	// Not with the test's context: that ends before the clean-up.
	cmd := exec.CommandContext(context.WithoutCancel(w.t.Context()), filepath.Join(w.node.Dir, "bin/simjob"), "alloc", "64", "until", "eof", "alloc", "1")
	cmd.Env = append(w.node.Env(), "CUDA_VISIBLE_DEVICES="+u.String())
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		w.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "alloc 64 MiB: ok") {
			w.jobs[u] = &job{cmd, in}
			return
		}
	}
	w.t.Fatalf("a job on %s did not start: %v", u, cmd.Wait())
}

// endJob lets a job allocate once more and end well: it was never disturbed.
func (w *world) endJob(u gpu.UUID) {
	w.t.Helper()
	_ = w.jobs[u].in.Close()
	if err := w.jobs[u].cmd.Wait(); err != nil {
		w.t.Errorf("the job on %s was disturbed: %v", u, err)
	}
	delete(w.jobs, u)
}

func (w *world) book(gpu int) mig.Journal {
	w.t.Helper()
	b, err := mig.ReadJournal(w.dir, w.gpus[gpu])
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}
