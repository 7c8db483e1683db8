package config

import (
	"fmt"
	"path"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gpuslot/gpuslot/gpu"
)

// draft is a configuration while it is read.
type draft struct {
	Config
	src *source
	// tables are all sharing tables in the order in which they were read.
	tables   []placed
	findings []finding
}

// placed is a sharing table and its key.
type placed struct {
	key   toml.Key
	table table
}

// finding is an error or a warning before it has its line.
type finding struct {
	key     toml.Key
	value   any
	problem string
	warning bool
}

func (d *draft) bad(key toml.Key, value any, format string, args ...any) {
	d.findings = append(d.findings, finding{key: key, value: value, problem: fmt.Sprintf(format, args...)})
}

func (d *draft) warn(key toml.Key, value any, format string, args ...any) {
	d.findings = append(d.findings, finding{key: key, value: value, problem: fmt.Sprintf(format, args...), warning: true})
}

// fill reads every key of the file into the configuration.
func (d *draft) fill() {
	for _, name := range d.src.sorted(nil, d.src.root) {
		key, value := toml.Key{name}, d.src.root[name]
		entries, isTable := value.(map[string]any)
		switch {
		case !d.known(key, value):
		case !isTable:
			d.bad(key, value, "write a table: %s", header(name))
		case named(name):
			d.fillNamed(name, entries)
		case name == "sharing":
			d.sharing = d.readTable(key, entries, keysOf("sharing"))
		default:
			d.readKeys(key, entries, keysOf(name), nil)
		}
	}
	sortHosts(d.hosts)
	if !d.src.has(dotted("paths", "condor_config")) {
		d.Paths.CondorConfig = condorConfigIn(d.Paths.Run)
	}
}

// named reports whether a table holds tables that carry names.
func named(table string) bool { return table == "model" || table == "host" || table == "gpu" }

// header prints how a table begins.
func header(table string) string {
	switch table {
	case "model":
		return `[model."Tesla V100S-PCIE-32GB"]`
	case "host":
		return `[host."wn-gpu*"]`
	case "gpu":
		return `[gpu."GPU-…"]`
	}
	return "[" + table + "]"
}

// known reports whether a key of the top level is a table's name.
func (d *draft) known(key toml.Key, value any) bool {
	var names []string
	for _, t := range Tables() {
		names = append(names, t.Name)
	}
	names = append(names, "model", "host", "gpu")
	for _, n := range names {
		if key[0] == n {
			return true
		}
	}
	for _, k := range Keys() {
		if key[0] == k.Name {
			d.bad(key, value, "the key stands outside any table; write it below %s", header(k.Table))
			return false
		}
	}
	d.bad(key, value, "there is no such table%s", suggest(key[0], names))
	return false
}

// fillNamed reads [model."…"], [host."…"] or [gpu."…"].
func (d *draft) fillNamed(kind string, entries map[string]any) {
	for _, name := range d.src.sorted(toml.Key{kind}, entries) {
		key, value := toml.Key{kind, name}, entries[name]
		table, ok := value.(map[string]any)
		if !ok {
			d.bad(key, value, "write this key below a table that carries a name, such as %s", header(kind))
			continue
		}
		switch kind {
		case "model":
			d.addModel(key, table)
		case "host":
			d.addHost(key, table)
		case "gpu":
			d.addGPU(key, table)
		}
	}
}

func (d *draft) addModel(key toml.Key, entries map[string]any) {
	t := d.readTable(key, entries, keysOf("sharing"))
	if strings.TrimSpace(key[1]) == "" {
		d.bad(key, nil, "write the product name as gpuslot inventory prints it: %s", header("model"))
	}
	d.models[key[1]] = t
}

func (d *draft) addHost(key toml.Key, entries map[string]any) {
	h := hostTable{glob: strings.ToLower(key[1]), table: d.readTable(key, entries, keysOf("sharing"))}
	if _, err := path.Match(h.glob, ""); err != nil || strings.TrimSpace(h.glob) == "" {
		d.bad(key, nil, "the host name is not a glob; write a name with * and ? such as %s", header("host"))
		return
	}
	for _, other := range d.hosts {
		if other.glob == h.glob {
			d.bad(key, nil, "a second table for the same hosts, upper and lower case being the same; keep one")
			return
		}
	}
	d.hosts = append(d.hosts, h)
}

func (d *draft) addGPU(key toml.Key, entries map[string]any) {
	keys := keysOf("sharing")
	for name, k := range keys {
		if k.notInGPU {
			delete(keys, name)
		}
	}
	t := d.readTable(key, entries, keys)
	uuid, err := gpu.ParseUUID(key[1])
	switch {
	case err != nil:
		d.bad(key, nil, "%v; write the whole UUID as nvidia-smi -L prints it", err)
		return
	case uuid.IsMIG():
		d.bad(key, nil, "this is a MIG device; name the GPU it is part of: %s", header("gpu"))
		return
	}
	if _, twice := d.gpus[uuid]; twice {
		d.bad(key, nil, "a second table for the same GPU, upper and lower case being the same; keep one")
		return
	}
	d.gpus[uuid] = t
}

// readTable reads a sharing table and remembers where it stands.
func (d *draft) readTable(key toml.Key, entries map[string]any, keys map[string]Key) table {
	var t table
	d.readKeys(key, entries, keys, &t)
	d.tables = append(d.tables, placed{key: key, table: t})
	return t
}

// readKeys reads the entries of one table.
func (d *draft) readKeys(at toml.Key, entries map[string]any, keys map[string]Key, t *table) {
	for _, name := range d.src.sorted(at, entries) {
		key, value := below(at, name), entries[name]
		k, ok := keys[name]
		if !ok {
			d.bad(key, value, "%s", unknown(at, name, value, keys))
		} else if problem := k.set(&d.Config, t, value); problem != "" {
			d.bad(key, value, "%s", problem)
		}
	}
}
