package systemd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/systemd"
	"github.com/gpuslot/gpuslot/test/driver"
	"github.com/gpuslot/gpuslot/test/node"
)

const (
	root = "/run/gpuslot/mps"

	uuidA gpu.UUID = "GPU-aaaaaaaa-0000-4000-8000-000000000000"
	uuidB gpu.UUID = "MIG-bbbbbbbb-1111-4111-8111-111111111111"
)

// lab is a booted node with our units and the real control daemon.
type lab struct {
	*node.Node
	t *testing.T
}

func boot(t *testing.T, branch string) (context.Context, lab) {
	t.Helper()
	if err := node.Available(); err != nil {
		t.Skip(err)
	}
	dir := driver.Dir(t, branch)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := node.Options{
		Name: "units",
		Binds: []node.Bind{
			{Host: exe, Guest: "/usr/sbin/gpuslotd"},
			{Host: driver.Control(dir), Guest: "/usr/bin/nvidia-cuda-mps-control"},
		},
		Files: map[string]node.File{
			// In the place of NVIDIA's: what a server would be, and the maker of device files.
			"/usr/sbin/nvidia-cuda-mps-server": {Data: fakeServer, Mode: 0o755},
			"/usr/bin/nvidia-modprobe":         {Data: "#!/bin/sh\necho \"$*\" >/run/modprobe\n", Mode: 0o755},
			"/etc/gpuslot/gpuslot.toml":        {Data: ""},
		},
	}
	o.Files[systemd.JournalConfigFile] = node.File{Data: systemd.JournalConfig}
	units := os.DirFS("units")
	err = fs.WalkDir(units, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(units, name)
		o.Files["/usr/lib/systemd/system/"+name] = node.File{Data: string(b)}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	n, err := node.Boot(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(ctx, 2*node.Patience)
	t.Cleanup(cancel)
	return ctx, lab{n, t}
}

const fakeServer = `#!/bin/sh
trap 'exit 0' TERM INT
echo x >"$CUDA_MPS_PIPE_DIRECTORY/log"
while :; do sleep 0.05; done
`

func (l lab) run(ctx context.Context, args ...string) string {
	l.t.Helper()
	res, err := l.Run(ctx, args...)
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.TrimSpace(res.Stdout)
}

// tell gives the small agent an order over its socket, from outside the node.
func (l lab) tell(do string, uid uint32, gpus ...gpu.UUID) answer {
	l.t.Helper()
	a, err := l.ask(order{Do: do, GPUs: gpus, UID: uid})
	if err != nil || a.Err != "" {
		l.t.Fatalf("%s %v: %v %s", do, gpus, err, a.Err)
	}
	return a
}

func (l lab) ask(o order) (a answer, err error) {
	c, err := net.Dial("unix", fmt.Sprintf("/proc/%d/root/run/gpuslot/agent.sock", l.Leader()))
	if err != nil {
		return a, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		return a, err
	}
	if err := json.NewEncoder(c).Encode(o); err != nil {
		return a, err
	}
	return a, json.NewDecoder(c).Decode(&a)
}

func (l lab) wait(ctx context.Context, what string, cond func() bool) {
	l.t.Helper()
	if err := l.Wait(ctx, what, cond); err != nil {
		l.t.Fatal(err)
	}
}

// set makes control daemons the wanted ones. A slow machine may need more than one round of gpuslotd's for that.
func (l lab) set(ctx context.Context, gpus ...gpu.UUID) {
	l.t.Helper()
	l.wait(ctx, "control daemons have their limits", func() bool {
		return !slices.ContainsFunc(l.tell("set", 0, gpus...).Results, func(r result) bool { return r.Err != "<nil>" || r.PID == 0 })
	})
}

func (l lab) show(ctx context.Context, unit, property string) string {
	l.t.Helper()
	return l.run(ctx, "systemctl", "show", "--value", "-p", property, unit)
}

func state(l lab, u gpu.UUID, s *systemd.State) {
	l.t.Helper()
	b, err := json.Marshal(l.tell("state", 0, u).State)
	if err == nil {
		err = json.Unmarshal(b, s)
	}
	if err != nil {
		l.t.Fatal(err)
	}
}
