package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/gpu"
)

// File is what a pool file says.
type File struct {
	Pool Pool
	// Policies are the site's own, in the order of their names.
	Policies []Policy
	// Layouts are the static layouts by product, of groups that name one.
	Layouts map[string]string
	// Shares is how many jobs share a GPU, where all groups that say so say the same; else 0.
	Shares int
	// Work is what is usual of jobs that nothing is known of.
	Work Work
}

type poolFile struct {
	Nodes    map[string]groupFile  `toml:"nodes"`
	Matching matchingFile          `toml:"matching"`
	Model    modelFile             `toml:"model"`
	Jobs     workFile              `toml:"jobs"`
	Policies map[string]policyFile `toml:"policy"`
}

type groupFile struct {
	Count     *int           `toml:"count"`
	GPUs      int            `toml:"gpus"`
	Model     string         `toml:"model"`
	CPUs      int            `toml:"cpus"`
	Memory    int64          `toml:"memory"`
	Inventory string         `toml:"inventory"`
	Config    string         `toml:"config"`
	Sharing   map[string]any `toml:"sharing"`
	Speed     *float64       `toml:"speed"`
	Power     powerFile      `toml:"power"`
}

type powerFile struct {
	Host, Thread, Idle, Active, Full *float64
}

type matchingFile struct {
	Interval *span  `toml:"interval"`
	Start    *span  `toml:"start"`
	Worklife *span  `toml:"worklife"`
	Rank     string `toml:"rank"`
	Order    string `toml:"order"`
}

type modelFile struct {
	Slicing *float64 `toml:"time_slicing_loss"`
	MPS     *float64 `toml:"mps_loss"`
	MIG     *float64 `toml:"mig_loss"`
	Threads *int     `toml:"threads_per_core"`
}

type workFile struct {
	Kernel    *float64 `toml:"kernel"`
	SM        *float64 `toml:"sm"`
	Bandwidth *float64 `toml:"bandwidth"`
}

type policyFile struct {
	Config  string         `toml:"config"`
	Sharing map[string]any `toml:"sharing"`
	Slicing bool           `toml:"time_slicing"`
}

// OpenPool reads a pool file; the files that it names lie beside it.
func OpenPool(path string) (File, error) {
	t, err := open(path)
	if err != nil {
		return File{}, err
	}
	return ParsePool(t.name, t.raw, func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		return os.ReadFile(name)
	})
}

// ParsePool reads the text of a pool file; name stands in the errors, read gets the
// files that it names.
func ParsePool(name, raw string, read func(string) ([]byte, error)) (File, error) {
	t := text{name, raw}
	var p poolFile
	if err := t.decode(&p); err != nil {
		return File{}, err
	}
	f := File{Work: p.Jobs.work(), Layouts: map[string]string{}}
	f.Pool.Model, f.Pool.Matching = p.Model.model(), p.Matching.matching()
	for _, name := range slices.Sorted(maps.Keys(p.Nodes)) {
		if err := f.addGroup(t, name, p.Nodes[name], read); err != nil {
			return File{}, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Policies)) {
		one := p.Policies[name]
		if slices.Contains([]string{nameExclusive, nameSlicing, nameMPS, nameStatic, nameDynamic, nameMixed}, name) {
			return File{}, t.bad(fmt.Sprintf("policy %s: there is one of this name already", name), "policy", name)
		}
		config, err := t.config(read, one.Config, one.Sharing, "policy", name)
		if err != nil {
			return File{}, err
		}
		f.Policies = append(f.Policies, Policy{Name: name, Config: config, Slicing: one.Slicing})
	}
	return f, f.check(t)
}

// check says where something is that Pool.Check does not like.
func (f File) check(t text) error {
	if err := f.Pool.Matching.check(); err != nil {
		return t.bad(err.Error(), "matching")
	}
	if err := f.Pool.Model.check(); err != nil {
		return t.bad(err.Error(), "model")
	}
	if err := f.Work.check(); err != nil {
		return t.bad("jobs: "+err.Error(), "jobs")
	}
	if err := f.Pool.Check(); err != nil {
		return t.bad(err.Error())
	}
	return nil
}

func (f *File) addGroup(t text, name string, g groupFile, read func(string) ([]byte, error)) error {
	out, err := g.group(t, name, read)
	if err != nil {
		return err
	}
	if out.Config, err = t.config(read, g.Config, g.Sharing, "nodes", name); err != nil {
		return err
	}
	if err := (Pool{Groups: []Group{out}, Matching: DefaultMatching()}).Check(); err != nil {
		return t.bad(err.Error(), "nodes", name)
	}
	if layout, ok := g.Sharing["mig_layout"].(string); ok {
		f.Layouts[out.Inventory.GPUs[0].Name] = layout
	}
	if shares, ok := g.Sharing["shares"].(int64); ok && (f.Shares == 0 || f.Shares == int(shares)) {
		f.Shares = int(shares)
	}
	f.Pool.Groups = append(f.Pool.Groups, out)
	return nil
}

// group makes the nodes of a model or an inventory.
func (g groupFile) group(t text, name string, read func(string) ([]byte, error)) (out Group, err error) {
	count := or(g.Count, 1)
	if g.Inventory != "" {
		if g.Model != "" || g.GPUs != 0 || g.CPUs != 0 || g.Memory != 0 {
			return out, t.bad(fmt.Sprintf("nodes %s have an inventory, which says gpus, model, cpus and memory itself", name),
				"nodes", name, "inventory")
		}
		b, err := read(g.Inventory)
		if err != nil {
			return out, t.bad(err.Error(), "nodes", name, "inventory")
		}
		inv, err := gpu.DecodeInventory(strings.NewReader(string(b)))
		if err != nil {
			return out, t.bad(g.Inventory+": "+err.Error(), "nodes", name, "inventory")
		}
		out = Group{Name: name, Count: count, Inventory: inv, Power: powerOf(inv)}
	} else {
		out, err = NewGroup(name, count, g.GPUs, g.Model, cmp.Or(g.CPUs, 8*g.GPUs),
			cmp.Or(gpu.MiB(g.Memory), gpu.MiB(g.GPUs)<<16))
		if err != nil {
			return out, t.bad(fmt.Sprintf("nodes %s: %v", name, err), "nodes", name)
		}
	}
	out.Speed = or(g.Speed, 1)
	p := &out.Power
	p.Host, p.Thread = or(g.Power.Host, p.Host), or(g.Power.Thread, p.Thread)
	p.Idle, p.Active, p.Full = or(g.Power.Idle, p.Idle), or(g.Power.Active, p.Active), or(g.Power.Full, p.Full)
	return out, nil
}

// powerOf is that of the published model of the first GPU; of an unknown one 300 W.
func powerOf(inv gpu.Inventory) Power {
	for _, m := range models() {
		if len(inv.GPUs) > 0 && m.name == inv.GPUs[0].Name {
			return m.power()
		}
	}
	return model{limit: 300, idle: 30}.power()
}

// config is the gpuslot.toml of a group or policy: a file, or a [sharing] table in place.
func (t text) config(read func(string) ([]byte, error), file string, sharing map[string]any,
	kind, name string) (string, error) {
	if file != "" && len(sharing) > 0 {
		return "", t.bad(fmt.Sprintf("%s %s has both config and sharing; use one", kind, name), kind, name, "config")
	}
	if file != "" {
		b, err := read(file)
		if err != nil {
			return "", t.bad(err.Error(), kind, name, "config")
		}
		if _, err := config.Parse(file, b); err != nil {
			return "", err
		}
		return string(b), nil
	}
	if len(sharing) == 0 {
		return "", nil
	}
	var b strings.Builder
	e := toml.NewEncoder(&b)
	e.Indent = ""
	if err := e.Encode(map[string]any{"sharing": sharing}); err != nil {
		return "", t.bad(err.Error(), kind, name, "sharing")
	}
	if _, err := config.Parse("gpuslot.toml", []byte(b.String())); err != nil {
		return "", t.bad(fmt.Sprintf("%s %s: %v", kind, name, err), kind, name, "sharing")
	}
	return b.String(), nil
}

func (m matchingFile) matching() Matching {
	out := DefaultMatching()
	for _, v := range []struct {
		from *span
		to   *time.Duration
	}{{m.Interval, &out.Interval}, {m.Start, &out.Start}, {m.Worklife, &out.Worklife}} {
		if v.from != nil {
			*v.to = seconds(min(float64(*v.from), 1e9))
		}
	}
	out.Rank, out.Order = Rank(cmp.Or(m.Rank, string(out.Rank))), Order(cmp.Or(m.Order, string(out.Order)))
	return out
}

func (m modelFile) model() Model {
	d := DefaultModel()
	return Model{Slicing: or(m.Slicing, d.Slicing), MPS: or(m.MPS, d.MPS), MIG: or(m.MIG, d.MIG),
		ThreadsPerCore: or(m.Threads, d.ThreadsPerCore)}
}

func (w workFile) work() Work {
	d := DefaultWork()
	return Work{Kernel: or(w.Kernel, d.Kernel), SM: or(w.SM, d.SM), Bandwidth: or(w.Bandwidth, d.Bandwidth)}
}
