package partitions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/jobs"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/starter"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// fakeDaemon is the control daemon of one GPU: a GPU of so many chunks, of two multiprocessors each.
type fakeDaemon struct {
	ids     []string
	used    int
	chunks  int
	clients []int
	// same: each partition gets the id of the first. err is the answer to what the name says.
	same bool
	err  map[string]error
}

func (d *fakeDaemon) Partitions(context.Context, gpu.UUID) ([]mps.Partition, error) {
	free := d.chunks - d.used*len(d.ids)
	all := []mps.Partition{{GPU: string(uuid(0))[:12] + "...", FreeChunks: &free}, {GPU: "GPU-elsewh...", Name: "x"}}
	for _, id := range d.ids {
		_, name, _ := strings.Cut(id, "/")
		sms := 2 * d.used
		all = append(all, mps.Partition{GPU: string(uuid(0))[:12] + "...", Name: name, UsedChunks: &d.used, UsedSMs: &sms})
	}
	return all, d.err["list"]
}

func (d *fakeDaemon) AddPartition(_ context.Context, u gpu.UUID, chunks int) (string, error) {
	d.used = chunks
	id := fmt.Sprintf("%s/p%d", u, len(d.ids))
	if d.same {
		id = string(u) + "/p0"
	}
	d.ids = append(d.ids, id)
	return id, d.err["add"]
}

func (d *fakeDaemon) Servers(context.Context, gpu.UUID) ([]mps.Server, error) {
	return []mps.Server{{Clients: d.clients}}, d.err["servers"]
}

// TestHave: what is missing is made once, and a GPU that has not all of them says why.
func TestHave(t *testing.T) {
	daemon := process.ID{PID: 7, Started: 9}
	no := func(what string) map[string]error { return map[string]error{what: errors.New("it does not answer")} }
	for name, c := range map[string]struct {
		daemon fakeDaemon
		file   string // another than one that can be written
		why    string
		other  bool
		made   int
	}{
		"all are made":       {daemon: fakeDaemon{chunks: 8}, made: 4},
		"too few chunks":     {daemon: fakeDaemon{chunks: 7}, why: "has 7 free chunks of multiprocessors, too few for 4 static SM partitions of 2: set shares to 3 or less"},
		"one chunk":          {daemon: fakeDaemon{chunks: 1}, why: "set shares to 1 or less"},
		"it has clients":     {daemon: fakeDaemon{chunks: 8, clients: []int{1, 2}}, why: "no MPS clients, and it has 2"},
		"servers unknown":    {daemon: fakeDaemon{chunks: 8, err: no("servers")}, why: "only while it has no MPS clients"},
		"a stranger's":       {daemon: fakeDaemon{chunks: 8, used: 2, ids: []string{"x/y"}}, why: "are not the plan's (one was not made by gpuslot)", other: true},
		"no list":            {daemon: fakeDaemon{chunks: 8, err: no("list")}, why: "are not known: "},
		"none can be made":   {daemon: fakeDaemon{chunks: 8, err: no("add")}, why: "cannot be made: "},
		"one id twice":       {daemon: fakeDaemon{chunks: 8, same: true}, why: "gave the id", made: 1},
		"they are not noted": {daemon: fakeDaemon{chunks: 8}, file: "/dev/null/partitions", why: "cannot be kept: ", made: 1},
	} {
		p := New(Options{File: filepath.Join(t.TempDir(), "p"), Daemons: &c.daemon, Jobs: jobs.New(starter.Node{}), Processes: runs{},
			Log: slog.New(slog.DiscardHandler)})
		if c.file != "" {
			p.file = c.file
		}
		g := &plan.GPU{UUID: uuid(0), Shares: 4}
		g.Threads.Partition.Chunks = 2
		why, other := p.Have(t.Context(), g, daemon, time.Minute)
		if other != c.other || (why == "") != (c.why == "") || !strings.Contains(why, c.why) || len(p.made[uuid(0)].IDs) != c.made {
			t.Errorf("%s: %q, other %t, made %q", name, why, other, p.made[uuid(0)].IDs)
		}
		if c.why != "" {
			continue
		}
		before := p.made[uuid(0)]
		if before.SMs != 4 || before.Daemon != daemon {
			t.Errorf("%s: %+v", name, before)
		}
		if why, other := p.Have(t.Context(), g, daemon, time.Minute); why != "" || other || len(c.daemon.ids) != 4 {
			t.Errorf("%s: the second time %q, %t, %q", name, why, other, c.daemon.ids)
		}
		next := at(p.file)
		if err := next.Read(); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(before, next.made[uuid(0)]); d != "" {
			t.Errorf("%s: the next agent reads (-want +got):\n%s", name, d)
		}
		if next.of(uuid(0), process.ID{PID: 8, Started: 9}).IDs != nil {
			t.Errorf("%s: another daemon has them", name)
		}
		for fault, fine := range map[mps.Fault]bool{mps.Busy: true, mps.Wedged: true, mps.NotRunning: false} {
			c.daemon.err = map[string]error{"list": &mps.Error{Fault: fault}}
			if why, _ := p.Have(t.Context(), g, daemon, time.Minute); (why == "") != fine {
				t.Errorf("%s: %v: %q", name, fault, why)
			}
		}
	}
}

func TestSizeOf(t *testing.T) {
	row := func(sms int) mps.Partition { return mps.Partition{Name: "x", UsedSMs: &sms} }
	for name, c := range map[string]struct {
		listed []mps.Partition
		want   int
	}{
		"none": {nil, 0}, "free ones": {[]mps.Partition{{}}, 0}, "one": {[]mps.Partition{{}, row(8)}, 8}, "two": {[]mps.Partition{row(8), row(8)}, 8},
		"different": {[]mps.Partition{row(8), row(6)}, 0}, "one is unknown": {[]mps.Partition{row(8), {Name: "x"}}, 0},
	} {
		if got := sizeOf(c.listed); got != c.want {
			t.Errorf("%s: %d", name, got)
		}
	}
}

// TestFileRefused: what Write does not write is not read.
func TestFileRefused(t *testing.T) {
	made := func(change func(*set)) saved {
		s := set{GPU: uuid(0), Daemon: process.ID{PID: 7}, IDs: []string{"a", "b"}}
		change(&s)
		return saved{Made: []set{s}}
	}
	held := func(change func(*owned)) saved {
		o := owned{Starter: starter.Starter{ID: process.ID{PID: 8, Started: 1}}, GPU: uuid(0), ID: "a"}
		other := owned{Starter: starter.Starter{ID: process.ID{PID: 9, Started: 1}}, GPU: uuid(0), ID: "b"}
		change(&o)
		return saved{Held: []owned{o, other}}
	}
	for name, c := range map[string]struct {
		all  saved
		good bool
	}{
		"nothing":            {saved{}, true},
		"made":               {made(func(*set) {}), true},
		"made, of no GPU":    {made(func(s *set) { s.GPU = "x" }), false},
		"made, no daemon":    {made(func(s *set) { s.Daemon.PID = 0 }), false},
		"made, a size":       {made(func(s *set) { s.SMs = 1 }), true},
		"made, no size":      {made(func(s *set) { s.SMs = -1 }), false},
		"made, one id twice": {made(func(s *set) { s.IDs = []string{"b", "a", "b"} }), false},
		"made twice":         {saved{Made: []set{{GPU: uuid(0), Daemon: process.ID{PID: 7}}, {GPU: uuid(0), Daemon: process.ID{PID: 8}}}}, false},
		"made on two":        {saved{Made: []set{{GPU: uuid(0), Daemon: process.ID{PID: 7}}, {GPU: uuid(1), Daemon: process.ID{PID: 7}}}}, true},
		"held":               {held(func(*owned) {}), true},
		"held, of no GPU":    {held(func(o *owned) { o.GPU = "x" }), false},
		"held, no starter":   {held(func(o *owned) { o.Starter.PID = 0 }), false},
		"held, no id":        {held(func(o *owned) { o.ID = "" }), false},
		"held twice":         {held(func(o *owned) { o.ID = "b" }), false},
		"held on two GPUs":   {held(func(o *owned) { o.ID, o.GPU = "b", uuid(1) }), true},
		"one slot, two ids":  {held(func(o *owned) { o.Starter.PID = 9 }), false},
	} {
		if err := c.all.check(); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
