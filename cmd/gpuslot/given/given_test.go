package given

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
	"github.com/gpuslot/gpuslot/test/instances"
)

const testGPU gpu.UUID = "GPU-00000000-0000-4000-8000-000000000000"

// node is a GPU with a layout that mig apply made, and a gpuslotd that says its status.
type node struct {
	t    *testing.T
	gpu  *instances.GPU
	says func() api.Status
	mig.Executor
	warns strings.Builder
}

func newNode(t *testing.T) *node {
	t.Helper()
	chip, err := mig.Model("A100-40GB", 550)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, gpu: instances.New(testGPU, chip), says: func() api.Status { return holding() }}
	socket := filepath.Join(t.TempDir(), "agent.sock")
	n.Executor = mig.Executor{
		Hardware: New(n.gpu, Options{Sockets: []string{socket}, Warn: &n.warns}),
		Dir:      t.TempDir(), Boot: "test", Proc: mig.Proc{Root: t.TempDir()},
		Patience: mig.Patience{Tries: 2, First: 1},
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go n.serve(l)
	return n
}

func (n *node) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
			s := n.says()
			_ = json.NewEncoder(c).Encode(api.Reply{Version: api.Version, Status: &s})
		}
		c.Close()
	}
}

// holding is the status of a gpuslotd with these entries of its job table.
func holding(all ...api.StatusEntry) api.Status {
	return api.Status{JobTable: append([]api.StatusEntry{}, all...)}
}

// apply makes a layout, and returns why not.
func (n *node) apply(layout string) string {
	n.t.Helper()
	want, err := mig.ParseWant(n.gpu.S.Chip, layout)
	if err != nil {
		n.t.Fatal(err)
	}
	_, err = n.Apply(n.t.Context(), testGPU, mig.Wanted{Enabled: true, Layout: want.Placed})
	if err != nil {
		return err.Error()
	}
	return ""
}

// TestHeldByJobs: what gpuslotd has given to a job is in use, by the device's name, by that of its place, or as an
// undivided GPU, whether or not the job has opened it and the plan still has it.
func TestHeldByJobs(t *testing.T) {
	n := newNode(t)
	n.says = func() api.Status { return holding(api.StatusEntry{Slot: "slot1_1", GPU: string(testGPU)}) }
	if why := n.apply("3g.20gb@0,3g.20gb@4"); !strings.Contains(why, "enable-mig") || !strings.Contains(why, "held by a slot (slot1_1)") {
		t.Errorf("undivided: %q", why)
	}
	n.says = func() api.Status { return holding() }
	if why := n.apply("3g.20gb@0,3g.20gb@4"); why != "" {
		t.Fatal(why)
	}
	device := string(n.gpu.Devices()[0].UUID)
	n.gpu.Happens = func(what string) { t.Error(what) }
	for name, e := range map[string]api.StatusEntry{
		"a device": {GPU: device}, "both": {GPU: device, Device: device}, "a place": {GPU: "MIG-place", Device: device},
		"a place alone": {GPU: string(gpu.PlaceID(testGPU, "3g.20gb@0"))},
	} {
		e.Slot = "slot1_1"
		n.says = func() api.Status { return holding(e, api.StatusEntry{Slot: "slot1_2", GPU: "GPU-other"}) }
		if why := n.apply("7g.40gb@0"); !strings.HasSuffix(why, "held by a slot (slot1_1)") {
			t.Errorf("%s: %q", name, why)
		}
	}
	n.gpu.Happens = func(string) {}
	if why := n.apply("3g.20gb@0"); why != "" {
		t.Errorf("the other device goes: %q", why)
	}
	if n.warns.Len() > 0 {
		t.Error(n.warns.String())
	}
}

// TestUnknownJobs: while gpuslotd does not know the GPU of a job, says nothing of its jobs or does not answer, no device
// goes. One that boots with the node has no jobs yet.
func TestUnknownJobs(t *testing.T) {
	n := newNode(t)
	if why := n.apply("3g.20gb@0"); why != "" {
		t.Fatal(why)
	}
	o := n.Hardware.(*Hardware).Options
	for name, c := range map[string]struct {
		says func() api.Status
		want string
	}{
		"a job": {func() api.Status {
			return api.Status{JobTable: holding().JobTable, UnknownJob: "slot1_1 runs since before"}
		}, "slot1_1 runs since"},
		"partial": {func() api.Status { return api.Status{Partial: true} }, "answered without its jobs"},
	} {
		n.says = c.says
		n.Hardware = New(n.gpu, o)
		n.gpu.Happens = func(what string) { t.Error(name, what) }
		for _, layout := range []string{"7g.40gb@0", "3g.20gb@4"} {
			if why := n.apply(layout); !strings.Contains(why, c.want) {
				t.Errorf("%s: %q", name, why)
			}
		}
		n.gpu.Happens = func(string) {}
		if why := n.apply("3g.20gb@0"); why != "" {
			t.Errorf("%s: what is there stays: %q", name, why)
		}
	}
	n.says = func() api.Status { return api.Status{} }
	o.Boot = true
	n.Hardware = New(n.gpu, o)
	if why := n.apply("7g.40gb@0"); why != "" || strings.Count(n.warns.String(), "answered without its jobs") != 1 {
		t.Errorf("at boot: %q, warns %q", why, n.warns.String())
	}
}

// TestSilentAgent: after an error gpuslotd is not asked again, and all counts as used.
func TestSilentAgent(t *testing.T) {
	n := newNode(t)
	if why := n.apply("3g.20gb@0"); why != "" {
		t.Fatal(why)
	}
	asked := 0
	n.says = func() api.Status { asked++; return api.Status{} }
	for range 2 {
		if why := n.apply("7g.40gb@0"); !strings.Contains(why, "which jobs have GPUs is not known") || asked != 1 {
			t.Errorf("%q, asked %d times", why, asked)
		}
	}
}

// TestLateJob: a job that comes after the last look keeps its device, and the GPU.
func TestLateJob(t *testing.T) {
	n := newNode(t)
	if why := n.apply("3g.20gb@0,3g.20gb@4"); why != "" {
		t.Fatal(why)
	}
	place := string(gpu.PlaceID(testGPU, "3g.20gb@4"))
	n.gpu.Happens = func(string) { // the first device has gone
		n.says = func() api.Status { return holding(api.StatusEntry{Slot: "slot1_1", GPU: place}) }
	}
	device := n.gpu.Devices()[1].UUID
	if why := n.apply("7g.40gb@0"); !strings.Contains(why, "held by a slot (slot1_1)") || !slices.ContainsFunc(n.gpu.Devices(), func(d gpu.MIGDevice) bool { return d.UUID == device }) {
		t.Errorf("%q, there is %+v", why, n.gpu.Devices())
	}
	h := n.Hardware.(*Hardware)
	at := n.gpu.S.Instances[len(n.gpu.S.Instances)-1].Place
	for _, i := range n.gpu.S.Instances {
		if u, _ := i.UUID(); u == device {
			at = i.Place
		}
	}
	n.gpu.Happens = func(what string) { t.Error(what) }
	if err := h.Destroy(t.Context(), testGPU, at); !errors.Is(err, gpu.ErrInUse) {
		t.Error(err)
	}
	if err := h.SetMode(t.Context(), testGPU, false); !errors.Is(err, gpu.ErrInUse) {
		t.Error(err)
	}
}

// TestWithoutAgent: where no gpuslotd listens the layout is made. That none listens any more is said once.
func TestWithoutAgent(t *testing.T) {
	n := newNode(t)
	socket := filepath.Join(t.TempDir(), "agent.sock")
	o := Options{Sockets: []string{socket, socket + ".other"}, Warn: &n.warns}
	n.Hardware = New(n.gpu, o)
	if why := n.apply("7g.40gb@0"); why != "" || n.warns.Len() > 0 {
		t.Errorf("%q, warns %q", why, n.warns.String())
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	n.Hardware = New(n.gpu, o)
	if why := n.apply("3g.20gb@0"); why != "" || strings.Count(n.warns.String(), "no process listens") != 1 {
		t.Errorf("%q, warns %q", why, n.warns.String())
	}
}

// TestTwoSockets: the jobs of each gpuslotd that listens count.
func TestTwoSockets(t *testing.T) {
	n := newNode(t)
	if why := n.apply("3g.20gb@0"); why != "" {
		t.Fatal(why)
	}
	o := n.Hardware.(*Hardware).Options
	o.Sockets = append([]string{filepath.Join(t.TempDir(), "agent.sock")}, o.Sockets...)
	n.Hardware = New(n.gpu, o)
	n.says = func() api.Status {
		return holding(api.StatusEntry{Slot: "slot1_1", GPU: string(gpu.PlaceID(testGPU, "3g.20gb@0"))})
	}
	if why := n.apply("7g.40gb@0"); !strings.HasSuffix(why, "held by a slot (slot1_1)") {
		t.Error(why)
	}
}

// unread is a GPU that cannot be read.
type unread struct{ *instances.GPU }

func (unread) State(context.Context, gpu.UUID) (gpu.MIGState, error) {
	return gpu.MIGState{}, errors.New("no")
}

// TestUnread: the error of the hardware is that of the state.
func TestUnread(t *testing.T) {
	if _, err := New(unread{}, Options{}).State(t.Context(), testGPU); err == nil || err.Error() != "no" {
		t.Error(err)
	}
}

// TestSockets: systemd's socket and that of the configuration, or the one that is asked for.
func TestSockets(t *testing.T) {
	for _, c := range []struct {
		named bool
		run   string
		want  []string
	}{
		{false, "/srv/run", []string{api.DefaultSocket, "/srv/run/agent.sock"}}, {true, "/srv/run", []string{api.DefaultSocket}},
		{false, "/run/gpuslot", []string{api.DefaultSocket}},
	} {
		if got := Sockets(api.DefaultSocket, c.named, c.run); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
