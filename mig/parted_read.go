package mig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Bounds beyond which a file is a mistake.
const (
	maxPartedBytes = 1 << 20
	maxPartedGPU   = 255
	maxInstances   = 64
)

// ReadParted reads a mig-parted file; its errors name the file and the line.
func ReadParted(path string) (Parted, error) {
	f, err := os.Open(path)
	if err != nil {
		return Parted{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxPartedBytes+1))
	if err != nil {
		return Parted{}, err
	}
	p, err := ParseParted(b)
	if err != nil {
		return Parted{}, prefixed(path, err)
	}
	return p, nil
}

// ParseParted reads the text of a mig-parted file. What gpuslot does not know
// is an error, one a line: "line 7: …". Anchors and aliases are refused.
func ParseParted(b []byte) (Parted, error) {
	if len(b) > maxPartedBytes {
		return Parted{}, fmt.Errorf("line 1: the file is larger than %d bytes", maxPartedBytes)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	var doc, more yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0 {
		return Parted{}, errors.New("line 1: the file is empty; write version and mig-configs")
	} else if err != nil {
		return Parted{}, syntaxError(err)
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return Parted{}, fmt.Errorf("line %d: a second document; one file holds one", max(more.Line, 1))
	}
	r := partedReader{}
	p := r.file(doc.Content[0])
	return p, errors.Join(r.errs...)
}

// syntaxError is one of the YAML reader's, which names the line of most.
func syntaxError(err error) error {
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " ")
	if !strings.HasPrefix(text, "line ") {
		text = "line 1: " + text
	}
	return errors.New(text)
}

// prefixed puts the file in front of each line of an error.
func prefixed(path string, err error) error {
	var lines []error
	for line := range strings.SplitSeq(err.Error(), "\n") {
		lines = append(lines, fmt.Errorf("%s: %s", path, line))
	}
	return errors.Join(lines...)
}

// partedReader gathers errors, each with its line.
type partedReader struct{ errs []error }

func (r *partedReader) bad(n *yaml.Node, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("line %d: %s", n.Line, fmt.Sprintf(format, args...)))
}

// pair is one key of a mapping.
type pair struct{ key, value *yaml.Node }

// pairs are the keys of a mapping, each once.
func (r *partedReader) pairs(n *yaml.Node, what string) []pair {
	if n.Kind != yaml.MappingNode || n.Anchor != "" {
		r.bad(n, "%s is a table of keys, without anchors", what)
		return nil
	}
	var all []pair
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		switch {
		case k.Kind != yaml.ScalarNode || k.Tag == "!!merge" || k.Anchor != "":
			r.bad(k, "%s has a key that is no plain word", what)
		case seen[k.Value]:
			r.bad(k, "%s has %q twice", what, foreign.Clip(k.Value))
		default:
			all = append(all, pair{k, n.Content[i+1]})
		}
		seen[k.Value] = true
	}
	return all
}

// scalar is a value of one word of the given YAML type.
func (r *partedReader) scalar(n *yaml.Node, tag, want string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag != tag || n.Anchor != "" {
		r.bad(n, "%s", want)
		return "", false
	}
	return n.Value, true
}

func (r *partedReader) file(n *yaml.Node) Parted {
	p := Parted{Configs: map[string][]PartedEntry{}}
	version, configs := false, false
	for _, f := range r.pairs(n, "the file") {
		switch f.key.Value {
		case "version":
			version = true
			if v, ok := r.scalar(f.value, "!!str", "version is a word; gpuslot reads v1"); ok && v != partedVersion {
				r.bad(f.value, "version is %q; gpuslot reads %q", foreign.Clip(v), partedVersion)
			}
		case "mig-configs":
			configs = true
			for _, c := range r.pairs(f.value, "mig-configs") {
				r.config(p, c)
			}
		default:
			r.bad(f.key, "unknown key %q; a mig-parted file has version and mig-configs", foreign.Clip(f.key.Value))
		}
	}
	if !version || !configs {
		r.bad(n, "the file needs version and mig-configs")
	}
	return p
}

func (r *partedReader) config(p Parted, c pair) {
	if c.key.Value == "" {
		r.bad(c.key, "a configuration has no name")
	}
	entries := []PartedEntry{}
	for _, e := range r.list(c.value, "a configuration is a list of entries") {
		entries = append(entries, r.entry(e))
	}
	p.Configs[c.key.Value] = entries
}

func (r *partedReader) list(n *yaml.Node, want string) []*yaml.Node {
	if n.Kind != yaml.SequenceNode || n.Anchor != "" {
		r.bad(n, "%s, without anchors", want)
		return nil
	}
	return n.Content
}

func (r *partedReader) entry(n *yaml.Node) PartedEntry {
	e := PartedEntry{Line: n.Line}
	var devices, enabled bool
	var instances *yaml.Node
	for _, f := range r.pairs(n, "an entry") {
		switch f.key.Value {
		case "device-filter":
			e.Filter = r.filter(f.value)
		case "devices":
			devices = true
			e.Devices = r.devices(f.value)
		case "mig-enabled":
			v, ok := r.scalar(f.value, "!!bool", "mig-enabled is true or false")
			enabled = true
			e.Enabled = ok && strings.EqualFold(v, "true")
		case "mig-devices":
			instances = f.value
			e.Instances = r.instances(f.value)
		default:
			r.bad(f.key, "unknown key %q; an entry has device-filter, devices, mig-enabled and mig-devices",
				foreign.Clip(f.key.Value))
		}
	}
	if !devices || !enabled {
		r.bad(n, "an entry needs devices and mig-enabled")
	}
	if enabled && !e.Enabled && len(e.Instances) > 0 {
		r.bad(instances, "mig-devices with mig-enabled: false; there are none without MIG mode")
	}
	return e
}

// filter is one PCI id or a list of them.
func (r *partedReader) filter(n *yaml.Node) []gpu.PCIDevice {
	nodes := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		nodes = r.list(n, "device-filter is a list of PCI ids")
	}
	filter := []gpu.PCIDevice{}
	for _, d := range nodes {
		// Without quotes YAML takes it for a number, which is the same to us.
		var id gpu.PCIDevice
		err := id.UnmarshalText([]byte(d.Value))
		switch {
		case d.Kind != yaml.ScalarNode || d.Anchor != "" || err != nil:
			r.bad(d, "device-filter is a PCI id such as 0x20B010DE, not %q", foreign.Clip(d.Value))
		case slices.Contains(filter, id):
			r.bad(d, "device-filter names %s twice", d.Value)
		default:
			filter = append(filter, id)
		}
	}
	if len(filter) == 0 && n.Kind == yaml.SequenceNode && len(nodes) == 0 {
		r.bad(n, "device-filter is empty: no GPU is meant; leave it out to mean all")
	}
	return filter
}

// devices is nil for "all".
func (r *partedReader) devices(n *yaml.Node) []int {
	if n.Kind == yaml.ScalarNode {
		if v, ok := r.scalar(n, "!!str", "devices is all, or a list of NVML indices"); ok && v != "all" {
			r.bad(n, "devices is all, or a list of NVML indices, not %q", foreign.Clip(v))
		}
		return nil
	}
	devices := []int{}
	for _, d := range r.list(n, "devices is all, or a list of NVML indices") {
		i, ok := r.number(d, maxPartedGPU, "a device is an NVML index")
		if ok && slices.Contains(devices, i) {
			r.bad(d, "devices names %d twice", i)
		} else if ok {
			devices = append(devices, i)
		}
	}
	return devices
}

func (r *partedReader) number(n *yaml.Node, most int, what string) (int, bool) {
	v, ok := r.scalar(n, "!!int", what+": a number")
	if !ok {
		return 0, false
	}
	i, err := strconv.Atoi(v)
	if err != nil || i < 0 || i > most {
		r.bad(n, "%s from 0 to %d, not %q", what, most, foreign.Clip(v))
		return 0, false
	}
	return i, true
}

// instances leaves out what is wanted 0 times: it says nothing.
func (r *partedReader) instances(n *yaml.Node) map[string]int {
	counts := map[string]int{}
	for _, f := range r.pairs(n, "mig-devices") {
		name, err := parseInstanceProfile(f.key.Value)
		if err != nil {
			r.bad(f.key, "%v", err)
			continue
		}
		if _, twice := counts[name]; twice {
			r.bad(f.key, "mig-devices has %s twice", name)
		}
		if count, ok := r.number(f.value, maxInstances, "a count of instances is a number"); ok && count > 0 {
			counts[name] = count
		}
	}
	return counts
}
