package given

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
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
	n := &node{t: t, gpu: instances.New(testGPU, chip), says: func() api.Status { return api.Status{} }}
	socket := filepath.Join(t.TempDir(), "agent.sock")
	n.Executor = mig.Executor{
		Hardware: New(n.gpu, socket, &n.warns),
		Dir:      t.TempDir(), Boot: "test", Proc: mig.Proc{Root: t.TempDir()},
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
// undivided GPU, whether or not the job has opened it.
func TestHeldByJobs(t *testing.T) {
	job := []api.StatusJob{{Slot: "slot1_1"}}
	n := newNode(t)
	n.says = func() api.Status { return api.Status{GPUs: []api.StatusGPU{{UUID: string(testGPU), Jobs: job}}} }
	if why := n.apply("3g.20gb@0,3g.20gb@4"); !strings.Contains(why, "enable-mig") || !strings.Contains(why, "held by a slot (slot1_1)") {
		t.Errorf("undivided: %q", why)
	}
	n.says = func() api.Status { return api.Status{} }
	if why := n.apply("3g.20gb@0,3g.20gb@4"); why != "" {
		t.Fatal(why)
	}
	device := string(n.gpu.Devices()[0].UUID)
	n.gpu.Happens = func(what string) { t.Error(what) }
	for name, g := range map[string]api.StatusGPU{
		"a device": {UUID: device, Jobs: job}, "both": {UUID: device, Device: device, Jobs: job},
		"a place": {UUID: "MIG-place", Place: "3g.20gb@0", Device: device, Jobs: job},
	} {
		n.says = func() api.Status { return api.Status{GPUs: []api.StatusGPU{g, {UUID: "GPU-other", Jobs: job}}} }
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

// TestWithoutAgent: where gpuslotd does not answer the layout is made. That it does not is said once, if it is there.
func TestWithoutAgent(t *testing.T) {
	n := newNode(t)
	socket := filepath.Join(t.TempDir(), "agent.sock")
	n.Hardware = New(n.gpu, socket, &n.warns)
	if why := n.apply("7g.40gb@0"); why != "" || n.warns.Len() > 0 {
		t.Errorf("%q, warns %q", why, n.warns.String())
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	n.Hardware = New(n.gpu, socket, &n.warns)
	if why := n.apply("3g.20gb@0"); why != "" || strings.Count(n.warns.String(), "no process listens") != 1 {
		t.Errorf("%q, warns %q", why, n.warns.String())
	}
}

// unread is a GPU that cannot be read.
type unread struct{ *instances.GPU }

func (unread) State(context.Context, gpu.UUID) (gpu.MIGState, error) {
	return gpu.MIGState{}, errors.New("no")
}

// TestUnread: the error of the hardware is that of the state.
func TestUnread(t *testing.T) {
	if _, err := New(unread{}, "", nil).State(t.Context(), testGPU); err == nil || err.Error() != "no" {
		t.Error(err)
	}
}
