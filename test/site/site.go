// Package site boots a worker node as a site runs it: a test/node with gpuslot
// installed by "make install", the agent and HTCondor under systemd. The demo
// and the end-to-end tests stand on it.
//
// The GPUs are not real: they are simulated below NVML (test/sim), or read from
// an inventory file (gpuslotd --inventory). Hence two legs, which the caller
// chooses and the product does not know of: Real has NVIDIA's control daemons,
// which get no server up without a GPU; Sim has simulated ones, with servers
// and a libcuda, so that jobs allocate and are limited. Start at Start.
package site

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
)

// Where the site's own files are, inside.
const (
	InventoryFile = "/etc/gpuslot/inventory.json"
	ConfigFile    = "/etc/gpuslot/gpuslot.toml"
	condorConfig  = "/etc/condor/config.d/"
)

// Options says what a site is made of.
type Options struct {
	// Name is the node's host name. Default: "wn1".
	Name string
	// Leg is whose control daemons run. Default: Real.
	Leg Leg
	// Inventory is what the node has; nil leaves the file out, as on a node
	// whose driver is not loaded yet.
	Inventory *gpu.Inventory
	// Recorded gives the agent the inventory as a file. Otherwise its GPUs,
	// CPUs and memory are simulated, and the agent finds them as on any node:
	// through NVML, /sys and /proc.
	Recorded bool
	// Config is the text of gpuslot.toml; empty means the file that "make install" brings.
	Config string
	// Branch is the driver branch of NVIDIA's control daemon. Default: "550".
	// The simulated one is of the Inventory's driver.
	Branch string
	// Package is a .deb of gpuslot for the node to install, in the place of what
	// "make install" brings: see Boot.
	Package string
	// NoControlDaemon leaves nvidia-cuda-mps-control out.
	NoControlDaemon bool
	// Condor is HTCondor configuration of the site, read after everything else.
	Condor string
	// NoAccessPoint leaves out the access point's transforms and submit
	// requirements, as in a pool whose access points cannot be changed.
	NoAccessPoint bool
	// Binds are programs of the site's own, such as its Prometheus.
	Binds []node.Bind
	// Systemd is a Debian suite whose systemd the node boots; see node.Options.
	Systemd string
	// Race runs an agent with the race detector: see Site.Races.
	Race bool
	// Progress takes one line for each long step.
	Progress io.Writer
}

// Site is a running site. It must be ended with Stop.
type Site struct {
	*node.Node
	Leg Leg
	// DriverVersion is the version of the control daemon; empty without one.
	DriverVersion string
}

// Start boots a node, installs gpuslot, and starts the agent and HTCondor.
func Start(ctx context.Context, o Options) (*Site, error) {
	s, err := Boot(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx, o); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Boot boots the node, with its GPUs, and starts neither the agent nor HTCondor.
// With a Package gpuslot is not installed; the file lies at PackageFile.
func Boot(ctx context.Context, o Options) (*Site, error) {
	if o.Name == "" {
		o.Name = "wn1"
	}
	if o.Leg == "" {
		o.Leg = Real
	}
	if o.Branch == "" {
		o.Branch = "550"
	}
	s := &Site{Leg: o.Leg}
	opts, err := s.nodeOptions(ctx, o)
	if err != nil {
		return nil, err
	}
	if s.Node, err = node.Boot(ctx, opts); err != nil {
		return nil, err
	}
	if o.simulated() {
		if err := s.Simulate(ctx, *o.Inventory); err != nil {
			return nil, errors.Join(fmt.Errorf("simulate the node: %w", err), s.Stop())
		}
	}
	return s, nil
}

func (s *Site) start(ctx context.Context, o Options) error {
	say(o.Progress, "start gpuslotd")
	if _, err := s.Run(ctx, "systemctl", "start", "gpuslotd.socket", "gpuslotd.service"); err != nil {
		log, _ := s.Journal(ctx, "gpuslotd.service")
		return fmt.Errorf("start gpuslotd: %w\n%s", err, log)
	}
	if !o.NoAccessPoint && o.Inventory != nil {
		text, err := s.Run(ctx, "gpuslot", "condor-config", "--for", "access-point", "--inventory", InventoryFile)
		if err != nil {
			return err
		}
		file := node.File{Data: text.Stdout}
		if err := s.WriteFile(ctx, condorConfig+"60-gpuslot-access-point.config", file); err != nil {
			return err
		}
	}
	say(o.Progress, "start HTCondor")
	return s.StartCondor(ctx)
}

// nodeOptions is straight wiring: what "make install" staged, the programs of
// the leg, and the site's own files.
func (s *Site) nodeOptions(ctx context.Context, o Options) (node.Options, error) {
	opts := node.Options{Name: o.Name, Files: map[string]node.File{}, Binds: o.Binds, Systemd: o.Systemd, Progress: o.Progress}
	err := addProduct(ctx, &opts, o)
	if err != nil {
		return opts, err
	}
	if s.DriverVersion, err = addLeg(ctx, &opts, o); err != nil {
		return opts, err
	}
	if o.simulated() {
		if err := addSimulation(ctx, &opts); err != nil {
			return opts, err
		}
	} else {
		opts.Files["/etc/systemd/system/gpuslotd.service.d/inventory.conf"] = node.File{
			Data: "[Service]\nExecStart=\nExecStart=/usr/sbin/gpuslotd --inventory " + InventoryFile + "\n"}
	}
	if o.Inventory != nil {
		text, err := o.Inventory.Encode()
		if err != nil {
			return opts, err
		}
		opts.Files[InventoryFile] = node.File{Data: string(text)}
	}
	if o.Race {
		if err := addRace(ctx, &opts); err != nil {
			return opts, err
		}
	}
	if o.Config != "" {
		opts.Files[ConfigFile] = node.File{Data: o.Config}
	}
	if o.Condor != "" {
		opts.Files[condorConfig+"90-site.config"] = node.File{Data: o.Condor}
	}
	return opts, nil
}

// PackageFile is where a node finds Options.Package: under a name like those of "make packages".
const PackageFile = "/root/gpuslot_0.1.0-1_amd64.deb"

// addProduct brings gpuslot: staged, or as a package that is not installed yet.
func addProduct(ctx context.Context, opts *node.Options, o Options) error {
	if o.Package != "" {
		opts.Binds = append(opts.Binds, node.Bind{Host: o.Package, Guest: PackageFile})
		return nil
	}
	stage, err := Staged(ctx, o.Progress)
	if err != nil {
		return err
	}
	return addStage(opts, stage)
}

// addStage binds programs and copies the small text files of a staged tree.
func addStage(opts *node.Options, stage string) error {
	for _, p := range []string{"/usr/sbin/gpuslotd", "/usr/bin/gpuslot", "/usr/libexec/gpuslot"} {
		opts.Binds = append(opts.Binds, node.Bind{Host: stage + p, Guest: p})
	}
	for _, top := range []string{"/usr/lib/systemd", "/usr/share/condor/config.d", "/etc/gpuslot"} {
		err := filepath.WalkDir(stage+top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			opts.Files[strings.TrimPrefix(path, stage)] = node.File{Data: string(text)}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

var staged = struct {
	sync.Mutex
	// dir is what Staged returns, race the agent with the race detector in it.
	dir, race string
}{}

// Staged is a directory with what "make build install-node" makes of this checkout,
// made once per process. Unstage removes it.
func Staged(ctx context.Context, progress io.Writer) (string, error) {
	staged.Lock()
	defer staged.Unlock()
	if staged.dir != "" {
		return staged.dir, nil
	}
	say(progress, "build gpuslot")
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	dir, err := os.MkdirTemp("", "gpuslot-stage-")
	if err != nil {
		return "", err
	}
	// Not into the checkout's bin/: others build there at the same time.
	make := exec.CommandContext(ctx, "make", "-s", "-C", strings.TrimSpace(string(root)), "build", "install-node", "BIN="+dir+"/bin", "DESTDIR="+dir)
	if out, err := make.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("build gpuslot: %w\n%s", err, out), os.RemoveAll(dir))
	}
	// MkdirTemp's 0700 would hide the programs from the node's users.
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	staged.dir = dir
	return dir, nil
}

// Unstage removes what Staged made.
func Unstage() error {
	staged.Lock()
	defer staged.Unlock()
	dir := staged.dir
	staged.dir, staged.race = "", ""
	if dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}

// Status is what "gpuslot status --json" prints, without the program: many tests ask again and again.
func (s *Site) Status(ctx context.Context) (api.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	reply, err := api.Call(ctx, s.Socket(api.DefaultSocket), api.Request{Op: api.OpStatus})
	if err != nil {
		return api.Status{}, err
	}
	return *reply.Status, nil
}

// WaitAccept waits until the startd's own ads say that so many shared GPUs and MIG
// devices accept jobs.
func (s *Site) WaitAccept(ctx context.Context, count int) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	asked := time.Now()
	return s.Wait(ctx, fmt.Sprintf("%d GPUs that accept", count), func() bool {
		// The agent first, which costs no program.
		if st, err := s.Status(ctx); err == nil && accepting(st) != count && time.Since(asked) < node.AskAnyway {
			return false
		}
		asked = time.Now()
		out, err := s.Run(ctx, "condor_status", "-constraint", `SlotType == "Partitionable" && GPUAccept =?= true && GPUSlotUUID isnt undefined`, "-af", "Name")
		return err == nil && len(strings.Fields(out.Stdout)) == count
	})
}

// accepting is how many GPUs and MIG devices accept jobs.
func accepting(st api.Status) (count int) {
	for _, g := range st.GPUs {
		if g.Accept {
			count++
		}
	}
	return count
}

func say(w io.Writer, line string) {
	if w != nil {
		fmt.Fprintln(w, "  "+line)
	}
}
