package mps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

func uuidN(n int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", n))
}

func wantedN(n int, limit gpu.MiB) []Wanted {
	var w []Wanted
	for i := range n {
		w = append(w, Wanted{GPU: uuidN(i), Limit: limit + gpu.MiB(i*1024), ThreadPercentage: 100 - float64(i)})
	}
	return w
}

// daemonsOf are those of a runner, which have the time that a machine under load takes.
func daemonsOf(r Processes) *Daemons {
	s := New(r.Root, r.Program, r)
	s.patience = time.Minute
	return s
}

func set(t *testing.T, s *Daemons, wanted []Wanted) []Result {
	t.Helper()
	results, err := s.Set(t.Context(), wanted)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func wantResults(t *testing.T, results []Result, action Action, n int) {
	t.Helper()
	if len(results) != n {
		t.Fatalf("%d results, want %d", len(results), n)
	}
	for _, r := range results {
		if r.Err != nil || r.Action != action {
			t.Errorf("%s: %s, %v; want %s", r.GPU, r.Action, r.Err, action)
		}
	}
}

// TestDaemonsSet goes with one node through its life: everything is started,
// adopted with other limits, and stopped.
func TestDaemonsSet(t *testing.T) {
	const n = 16
	onEachDriver(t, func(t *testing.T, r Processes) {
		s := daemonsOf(r)
		first := set(t, s, wantedN(n, 1024))
		wantResults(t, first, Started, n)
		for i, res := range first {
			if want := fmt.Sprintf("%dG", i+1); res.Checked.Limit != want {
				t.Errorf("daemon %d has limit %s, want %s", i, res.Checked.Limit, want)
			}
		}

		// Another agent, as after a restart.
		second := set(t, daemonsOf(r), wantedN(n, 4096))
		wantResults(t, second, Adopted, n)
		for i, res := range second {
			if res.Checked.Process() != first[i].Checked.Process() {
				t.Errorf("daemon %d was restarted: %v, then %v", i, first[i].Checked, res.Checked)
			}
			if want := fmt.Sprintf("%dG", i+4); res.Checked.Limit != want {
				t.Errorf("daemon %d has limit %s, want %s", i, res.Checked.Limit, want)
			}
		}

		last := set(t, s, wantedN(3, 4096))
		wantResults(t, last[:3], Adopted, 3)
		wantResults(t, last[3:], Stopped, n-3)
		running, err := r.Running(t.Context())
		if want := []gpu.UUID{uuidN(0), uuidN(1), uuidN(2)}; !slices.Equal(running, want) || err != nil {
			t.Errorf("running: %v, %v; want %v", running, err, want)
		}
		wantResults(t, set(t, s, nil), Stopped, 3)
		if left, err := os.ReadDir(r.Root); len(left) != 0 || err != nil {
			t.Errorf("left in the run directory: %v, %v", left, err)
		}
	})
}

// TestSetIsRepeatable: what hangs between the GiB that the daemon prints is set
// again all the same.
func TestSetIsRepeatable(t *testing.T) {
	r := onDriver(t, "550")
	s := daemonsOf(r)
	one := []Wanted{{uuid0, 1500, 100}}
	wantResults(t, set(t, s, one), Started, 1)
	a := set(t, s, one)
	b := set(t, s, one)
	wantResults(t, a, Adopted, 1)
	if a[0].Checked.Process() != b[0].Checked.Process() {
		t.Errorf("not the same daemon: %v, %v", a, b)
	}
}

// TestOneTroubleDoesNotHinderOthers: a suspended daemon is not restarted, a
// blocked directory is reported, and their neighbours come up.
func TestOneTroubleDoesNotHinderOthers(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		s := daemonsOf(r)
		first := set(t, s, wantedN(2, 1024))
		wantResults(t, first, Started, 2)
		suspended := first[0].Checked.Process()
		signal(t, suspended, syscall.SIGSTOP)
		if err := os.WriteFile(filepath.Join(r.Root, string(uuidN(2))), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		wanted := wantedN(5, 1024)
		wanted[3].Limit = 0
		results := set(t, s, wanted)
		wantFault(t, results[0].Err, Suspended, "is suspended", "SIGCONT")
		wantResults(t, results[1:2], Adopted, 1)
		wantFault(t, results[2].Err, Unwritable, "not a directory")
		wantFault(t, results[3].Err, Invalid)
		wantResults(t, results[4:], Started, 1)

		signal(t, suspended, syscall.SIGCONT)
		wantResults(t, set(t, s, wantedN(1, 1024))[:1], Adopted, 1)
	})
}

func TestSetWantsEachGPUOnce(t *testing.T) {
	_, err := New("/nonexistent", Program, Processes{}).Set(t.Context(), []Wanted{{uuid0, 1, 1}, {uuid1, 1, 1}, {uuid0, 2, 1}})
	wantFault(t, err, Invalid, string(uuid0), "twice")
}

// oddRunner is a runner of whose daemons nothing can be seen.
type oddRunner struct{ running error }

func (o oddRunner) Start(context.Context, gpu.UUID) error { return nil }
func (o oddRunner) Stop(context.Context, gpu.UUID) error  { return errors.New("will not stop") }
func (o oddRunner) Running(context.Context) ([]gpu.UUID, error) {
	return []gpu.UUID{uuid1}, o.running
}
func (o oddRunner) Log(context.Context, gpu.UUID, time.Time) ([]string, error) { return nil, nil }

// TestSetDoesNotBelieveTheRunner: a started daemon counts when it holds its lock.
func TestSetDoesNotBelieveTheRunner(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	s := New(tempDir(t), "true", oddRunner{errors.New("no bus")})
	results, err := s.Set(ctx, []Wanted{{uuid0, 1024, 100}})
	if err == nil || len(results) != 2 {
		t.Fatalf("%v, %v", results, err)
	}
	wantFault(t, results[0].Err, NotRunning)
	if results[1].Action != Stopped || results[1].Err == nil {
		t.Errorf("%+v, want an error from Stop", results[1])
	}
}

// TestAwait: a daemon that is not there yet is looked for until the time is over.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantFault(t, NewDaemon(uuid0, "/nonexistent", "/nonexistent").await(ctx), NotRunning)
		if ctx.Err() == nil {
			t.Error("it was given up early")
		}
	})
}

// fakeServer stands in for nvidia-cuda-mps-server, which ends at once without a
// GPU. The daemon treats it as a server that never becomes ready.
const fakeServer = `#!/bin/sh
trap 'exit 0' TERM INT
[ -z "$FAKE_REPORT" ] || { id -u; id -g; echo x >"$CUDA_MPS_PIPE_DIRECTORY/log" && echo reached; } >"$FAKE_REPORT" 2>&1
while :; do sleep 0.05; done
`

// TestServerThatIsNeverReady: it is listed, nothing is known of its limits, and
// it does not keep its daemon from being stopped.
func TestServerThatIsNeverReady(t *testing.T) {
	needsRoot(t)
	onEachDriver(t, func(t *testing.T, r Processes) {
		writeProgram(t, filepath.Join(r.ServerPath, "nvidia-cuda-mps-server"), fakeServer)
		s := daemonsOf(r)
		wanted := []Wanted{{uuid0, 8192, 100}}
		wantResults(t, set(t, s, wanted), Started, 1)
		d, err := s.Daemon(uuid0)
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, d, "start_server -uid 4711")
		eventually(t, "the server is listed", func() bool { return exchange(t, d, "get_server_list") != "" })
		same := set(t, s, wanted)[0]
		if len(same.Checked.States) != 1 || len(same.Stale) != 0 || same.Checked.States[0].Answers() {
			t.Errorf("servers %+v, stale %v; want one that does not answer", same.Checked.States, same.Stale)
		}
		wanted[0].Limit = 4096
		if other := set(t, s, wanted)[0]; len(other.Stale) != 0 || !slices.Equal(other.Checked.Servers, same.Checked.Servers) {
			t.Errorf("stale %v of %v: it takes its limits when it is ready", other.Stale, other.Checked.Servers)
		}
		pid := same.Checked.Servers[0]
		wantResults(t, set(t, s, nil), Stopped, 1)
		if st, err := proc.Stat(pid); err == nil && !st.Ended() {
			t.Errorf("server %d outlived its daemon", pid)
		}
	})
}
