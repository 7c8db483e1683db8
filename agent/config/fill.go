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
	globs    map[string]bool
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
	tables := map[string]Table{}
	for _, t := range Tables() {
		tables[t.Name] = t
	}
	for _, name := range d.src.sorted(nil, d.src.root) {
		t, ok := tables[name]
		if !ok {
			d.bad(toml.Key{name}, d.src.root[name], "%s", unknownTable(name))
			continue
		}
		d.fillTable(t, d.src.root[name])
	}
	sortHosts(d.hosts)
}

// fillTable reads one table, or the tables of one kind.
func (d *draft) fillTable(t Table, value any) {
	key, keys := toml.Key{t.Name}, keysOf(t)
	entries, ok := d.asTable(key, value, t.Header)
	switch {
	case !ok:
	case t.Named:
		for _, name := range d.src.sorted(key, entries) {
			if table, ok := d.asTable(below(key, name), entries[name], t.Header); ok {
				d.add(toml.Key{t.Name, name}, d.readTable(below(key, name), table, keys))
			}
		}
	case t.Name == "sharing":
		d.sharing = d.readTable(key, entries, keys)
	default:
		d.readKeys(key, entries, keys, nil)
	}
}

// asTable wants a table where the file may have something else.
func (d *draft) asTable(key toml.Key, value any, header string) (map[string]any, bool) {
	switch v := value.(type) {
	case map[string]any:
		return v, true
	case []map[string]any:
		d.bad(key, nil, "write the table once, in single brackets: %s", header)
	default:
		if len(key) == 1 {
			d.bad(key, value, "this is a table: write %s and the keys below it", header)
		} else {
			d.bad(key, value, "write the key below a table that carries a name: %s", header)
		}
	}
	return nil, false
}

// add takes a table that carries a name.
func (d *draft) add(key toml.Key, t table) {
	switch kind, name := key[0], key[1]; kind {
	case "model":
		if strings.TrimSpace(name) == "" {
			d.bad(key, nil, "the name is empty; write the product name as gpuslot inventory prints it")
		}
		if _, err := path.Match(name, ""); err != nil {
			d.bad(key, nil, "the name is no glob; write the product name as gpuslot inventory prints it, with * and ?")
			return
		}
		d.models[name] = t
	case "host":
		d.addHost(key, hostTable{glob: strings.ToLower(name), table: t})
	case "gpu":
		d.addGPU(key, t)
	}
}

func (d *draft) addHost(key toml.Key, h hostTable) {
	if problem := badGlob(h.glob); problem != "" {
		d.bad(key, nil, "%s", problem)
		return
	}
	if d.globs[h.glob] {
		d.bad(key, nil, "a second table for the same hosts, upper and lower case being the same; keep one")
		return
	}
	d.globs[h.glob] = true
	d.hosts = append(d.hosts, h)
}

func (d *draft) addGPU(key toml.Key, t table) {
	uuid, err := gpu.ParseUUID(key[1])
	if begin, ok := beginning(key[1]); ok {
		uuid, err = begin, nil
	}
	switch {
	case err != nil:
		d.bad(key, nil, "%v; write the UUID as nvidia-smi -L prints it, or its first 8 digits: GPU-5a1e0c11", err)
		return
	case uuid.IsMIG():
		d.bad(key, nil, "this is a MIG device; name the GPU it is part of")
		return
	}
	if _, twice := d.gpus[uuid]; twice {
		d.bad(key, nil, "a second table for the same GPU, upper and lower case being the same; keep one")
		return
	}
	d.gpus[uuid] = t
}

// beginning reads the first digits of a GPU's UUID, at least 8.
func beginning(text string) (gpu.UUID, bool) {
	const whole, least = "GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001", len("GPU-5a1e0c11")
	if len(text) < least || len(text) >= len(whole) || !strings.EqualFold(text[:4], whole[:4]) {
		return "", false
	}
	u, err := gpu.ParseUUID(text + whole[len(text):])
	return u[:min(len(text), len(u))], err == nil
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
			d.bad(key, value, "%s", unknownKey(at, name, value, keys))
		} else if problem := k.set(&d.Config, t, value); problem != "" {
			d.bad(key, value, "%s", problem)
		}
	}
}
