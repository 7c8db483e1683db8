package mig

import (
	"bytes"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Encode writes the file as mig-parted reads it: configurations by name,
// profiles by name, the same text for the same content.
func (p Parted) Encode() ([]byte, error) {
	configs := &yaml.Node{Kind: yaml.MappingNode}
	for _, name := range p.Names() {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, e := range p.Configs[name] {
			list.Content = append(list.Content, e.node())
		}
		put(configs, name, list)
	}
	file := &yaml.Node{Kind: yaml.MappingNode}
	put(file, "version", word(partedVersion))
	put(file, "mig-configs", configs)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(file); err != nil {
		return nil, err
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (e PartedEntry) node() *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	if e.Filter != nil {
		filter := flow()
		for _, d := range e.Filter {
			id := word(d.String())
			id.Style = yaml.DoubleQuotedStyle
			filter.Content = append(filter.Content, id)
		}
		put(n, "device-filter", filter)
	}
	if e.Devices == nil {
		put(n, "devices", word("all"))
	} else {
		devices := flow()
		for _, i := range e.Devices {
			devices.Content = append(devices.Content, number(i))
		}
		put(n, "devices", devices)
	}
	put(n, "mig-enabled", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(e.Enabled)})
	if e.Enabled {
		instances := &yaml.Node{Kind: yaml.MappingNode}
		for _, name := range e.profileNames() {
			put(instances, name, number(e.Instances[name]))
		}
		put(n, "mig-devices", instances)
	}
	return n
}

func put(n *yaml.Node, key string, value *yaml.Node) {
	n.Content = append(n.Content, word(key), value)
}

// word is a string, quoted where YAML 1.1 or 1.2 would read something else: "no".
func word(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if err := n.Encode(s); err != nil {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func number(i int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(i)}
}

func flow() *yaml.Node { return &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle} }
