package access

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// uuid is the UUID of the n-th test GPU.
func uuid(n int) gpu.UUID {
	return gpu.UUID(fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", n))
}

// fakeDirectories are pipe directories that remember who is in.
type fakeDirectories struct {
	mu    sync.Mutex
	in    map[Entry]bool
	err   error
	calls int
}

func (d *fakeDirectories) change(e Entry, in bool) error {
	runtime.Gosched() // as files take time
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	if d.err == nil {
		d.in[e] = in
	}
	return d.err
}

func (d *fakeDirectories) Admit(u gpu.UUID, uid uint32) error  { return d.change(Entry{u, uid}, true) }
func (d *fakeDirectories) Revoke(u gpu.UUID, uid uint32) error { return d.change(Entry{u, uid}, false) }

func (d *fakeDirectories) Admitted() ([]Entry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.in)), d.err
}

func (d *fakeDirectories) has(u gpu.UUID, uid uint32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.in[Entry{u, uid}]
}

// fakeServers are the servers of one control daemon; asked counts the questions.
type fakeServers struct {
	servers []mps.Server
	err     error
	asked   int
}

func (s *fakeServers) Servers(context.Context, gpu.UUID) ([]mps.Server, error) {
	s.asked++
	return s.servers, s.err
}

func noJob(gpu.UUID, uint32) bool { return false }

// turning are directories in whose changes another call of the list begins. With the
// list's turn that call waits until the change is over; here it has some time to come first.
type turning struct {
	*fakeDirectories
	during func()
	ended  chan struct{}
}

func (d *turning) begin() {
	if d.during == nil {
		return
	}
	during := d.during
	d.during = nil
	go func() {
		defer close(d.ended)
		during()
	}()
	select {
	case <-d.ended:
	case <-time.After(20 * time.Millisecond):
	}
}

func (d *turning) Admit(u gpu.UUID, uid uint32) error {
	d.begin()
	return d.fakeDirectories.Admit(u, uid)
}

func (d *turning) Revoke(u gpu.UUID, uid uint32) error {
	d.begin()
	return d.fakeDirectories.Revoke(u, uid)
}

// TestTurns: a change of access that comes while another one is under way has the last word.
func TestTurns(t *testing.T) {
	always := func(gpu.UUID, uint32) bool { return true }
	for name, c := range map[string]struct {
		first, then func(l *List) error
		has         bool
	}{
		"a job comes while its account is shut out": {
			func(l *List) error { return l.Sweep(noJob) }, func(l *List) error { return l.Give(uuid(0), 1000) }, true},
		"the last job ends while its account is let in again": {
			func(l *List) error { return l.Reopen(uuid(0)) }, func(l *List) error { return l.Sweep(noJob) }, false},
		"a job comes while access is given back": {
			func(l *List) error { return l.Reopen(uuid(0)) }, func(l *List) error { return l.Give(uuid(0), 1000) }, true},
		"no job ends": {
			func(l *List) error { return l.Reopen(uuid(0)) }, func(l *List) error { return l.Sweep(always) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			dirs := &turning{fakeDirectories: &fakeDirectories{in: map[Entry]bool{}}, ended: make(chan struct{})}
			list := NewList(dirs, &fakeServers{})
			if err := list.Give(uuid(0), 1000); err != nil {
				t.Fatal(err)
			}
			dirs.during = func() {
				if err := c.then(list); err != nil {
					t.Error(err)
				}
			}
			if err := c.first(list); err != nil {
				t.Error(err)
			}
			<-dirs.ended
			if dirs.has(uuid(0), 1000) != c.has || list.openToOthers(uuid(0), 0) != c.has {
				t.Errorf("it has access: %t, by the list: %t; want %t", dirs.has(uuid(0), 1000), list.openToOthers(uuid(0), 0), c.has)
			}
		})
	}
}

// TestAccessOfANewJob: an account's next job is let in while a sweep shuts the account out
// after the job before. The job has its access from its admission to its end.
func TestAccessOfANewJob(t *testing.T) {
	dirs := &fakeDirectories{in: map[Entry]bool{}}
	list := NewList(dirs, &fakeServers{})
	var runs atomic.Bool
	needs := func(gpu.UUID, uint32) bool { return runs.Load() }
	stop, swept := make(chan struct{}), sync.WaitGroup{}
	swept.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := list.Sweep(needs); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for i := range 300 {
		runs.Store(true)
		if err := list.Give(uuid(0), 1000); err != nil {
			t.Fatal(err)
		}
		if err := list.Sweep(needs); err != nil || !dirs.has(uuid(0), 1000) {
			t.Fatalf("job %d was admitted and has no access (%v)", i, err)
		}
		runs.Store(false)
	}
	close(stop)
	swept.Wait()
	if err := list.Sweep(needs); err != nil || dirs.has(uuid(0), 1000) {
		t.Errorf("the account keeps its access after its last job (%v)", err)
	}
}

// TestErrors: what fails is returned with its cause, and tried again.
// TestGiven: each job that has access counts, and who is in is known until the sweep.
func TestGiven(t *testing.T) {
	l := NewList(&fakeDirectories{in: map[Entry]bool{}}, nil)
	says := func(want int) {
		t.Helper()
		if got := l.Given(uuid(0)); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
	says(0)
	for range 2 {
		if err := errors.Join(l.Give(uuid(0), 1000), l.Give(uuid(1), 1000)); err != nil {
			t.Fatal(err)
		}
	}
	says(-1)
	if err := l.Sweep(noJob); err != nil {
		t.Fatal(err)
	}
	says(2)
}

func TestErrors(t *testing.T) {
	dirs := &fakeDirectories{in: map[Entry]bool{{uuid(0), 1000}: true}}
	list := NewList(dirs, &fakeServers{})
	if err := list.Read(); err != nil {
		t.Fatal(err)
	}
	if err := list.Give(uuid(0), 1000); err != nil || dirs.calls != 0 {
		t.Errorf("%v, and an account that is in was let in %d times", err, dirs.calls)
	}
	dirs.err = errors.New("file system without POSIX ACLs")
	for name, err := range map[string]error{
		"give": list.Give(uuid(1), 1000), "sweep": list.Sweep(noJob), "reopen": list.Reopen(uuid(0)), "read": list.Read(),
	} {
		if !errors.Is(err, dirs.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	dirs.err = nil
	if err := list.Sweep(noJob); err != nil || dirs.has(uuid(0), 1000) {
		t.Errorf("not tried again: %v", err)
	}
}

// TestReopen: a new control daemon's directory is opened to the accounts of its GPU.
func TestReopen(t *testing.T) {
	dirs := &fakeDirectories{in: map[Entry]bool{}}
	list := NewList(dirs, &fakeServers{})
	for i := range 2 {
		if err := list.Give(uuid(i), 1000); err != nil {
			t.Fatal(err)
		}
	}
	clear(dirs.in)
	if err := list.Reopen(uuid(1)); err != nil || dirs.has(uuid(0), 1000) || !dirs.has(uuid(1), 1000) {
		t.Errorf("%v: %v", err, dirs.in)
	}
}

// TestStranger: what a GPU's next account hears. Its directory was open to uid 1000.
func TestStranger(t *testing.T) {
	client := []mps.Server{{UID: 1000, Clients: []int{51}}}
	idle := []mps.Server{{UID: 1000}}
	for _, c := range []struct {
		name  string
		ended bool // the other account's job has ended
		// proof is the servers of a proof made after that; nil for a proof from before.
		proof   []mps.Server
		servers []mps.Server
		err     error
		says    string
		asked   int
	}{
		{"its job runs", false, nil, nil, nil, "a job of another account has just ended there", 0},
		{"a proof after it shows no client", true, idle, idle, nil, "", 0},
		{"a proof after it shows a client", true, client, client, nil, "process 51 of uid 1000", 1},
		{"the daemon has a client", true, nil, client, nil, "process 51 of uid 1000", 1},
		{"the daemon has none", true, nil, idle, nil, "", 1},
		{"the daemon does not answer", true, nil, nil, errors.New("it hangs"), "is not known: it hangs", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			servers := &fakeServers{servers: c.servers, err: c.err}
			list := NewList(&fakeDirectories{in: map[Entry]bool{}}, servers)
			if err := list.Give(uuid(0), 1000); err != nil {
				t.Fatal(err)
			}
			checked := mps.Checked{At: time.Now()}
			sweep := func() {
				if err := list.Sweep(func(gpu.UUID, uint32) bool { return !c.ended }); err != nil {
					t.Error(err)
				}
				if c.proof != nil {
					checked.At = time.Now().Add(time.Second)
				}
			}
			if c.proof != nil {
				checked.States = c.proof
				sweep()
			}
			says := list.Stranger(t.Context(), uuid(0), 1001, checked, sweep)
			if !strings.Contains(says, c.says) || (says == "") != (c.says == "") || servers.asked != c.asked {
				t.Errorf("%q after %d questions", says, servers.asked)
			}
			if says == "" {
				if again := list.Stranger(t.Context(), uuid(0), 1001, mps.Checked{}, sweep); again != "" {
					t.Errorf("asked again: %q", again)
				}
			}
		})
	}
}

// TestLeftBehind: START hears of a client whose account has no access any more.
func TestLeftBehind(t *testing.T) {
	list := NewList(&fakeDirectories{in: map[Entry]bool{}}, &fakeServers{})
	if err := list.Give(uuid(0), 1000); err != nil {
		t.Fatal(err)
	}
	checked := mps.Checked{At: time.Now().Add(time.Hour), States: []mps.Server{{UID: 1000, Clients: []int{51}}}}
	if why := list.LeftBehind(uuid(0), 0, checked); why != "" {
		t.Errorf("its job runs: %q", why)
	}
	if err := list.Sweep(noJob); err != nil {
		t.Fatal(err)
	}
	if why := list.LeftBehind(uuid(0), 0, checked); !strings.Contains(why, "process 51 of uid 1000") {
		t.Errorf("its job has ended: %q", why)
	}
	if why := list.LeftBehind(uuid(0), 1000, checked); why != "" {
		t.Errorf("the agent's own: %q", why)
	}
	checked.At = time.Now().Add(-time.Hour)
	if why := list.LeftBehind(uuid(0), 0, checked); why != "" {
		t.Errorf("by a proof from before: %q", why)
	}
}
