package simulate

import (
	"fmt"
	"maps"
	"slices"
)

// classFile is a class as a file has it.
type classFile struct {
	Owner   string    `toml:"owner"`
	Owners  int       `toml:"owners"`
	Group   string    `toml:"group"`
	PerDay  float64   `toml:"per_day"`
	Hours   []float64 `toml:"hours"`
	Jobs    int       `toml:"jobs"`
	At      span      `toml:"at"`
	GPUs    *int      `toml:"request_gpus"`
	CPUs    *int      `toml:"request_cpus"`
	VRAM    drawn     `toml:"request_vram"`
	Memory  drawn     `toml:"request_memory"`
	Peak    drawn     `toml:"vram_peak"`
	Seconds drawn     `toml:"run_time"`
	Dead    drawn     `toml:"dead_time"`
	Kernel  *float64  `toml:"kernel"`
	SM      *float64  `toml:"sm"`
	Band    *float64  `toml:"bandwidth"`
}

type syntheticFile struct {
	Seed    uint64               `toml:"seed"`
	Days    float64              `toml:"days"`
	Classes map[string]classFile `toml:"class"`
}

// OpenSynthetic reads a file of classes of jobs; what a class leaves open of its work is usual.
func OpenSynthetic(path string, usual Work) (Synthetic, error) {
	t, err := open(path)
	if err != nil {
		return Synthetic{}, err
	}
	return ParseSynthetic(t.name, t.raw, usual)
}

// ParseSynthetic reads the text of such a file; name stands in the errors.
func ParseSynthetic(name, raw string, usual Work) (Synthetic, error) {
	t := text{name, raw}
	var f syntheticFile
	if err := t.decode(&f); err != nil {
		return Synthetic{}, err
	}
	s := Synthetic{Seed: f.Seed, Days: f.Days}
	for _, name := range slices.Sorted(maps.Keys(f.Classes)) {
		c := f.Classes[name].class(name, usual)
		if err := c.check(s.Days); err != nil {
			return Synthetic{}, t.bad(fmt.Sprintf("class %s: %v", name, err), "class", name)
		}
		s.Classes = append(s.Classes, c)
	}
	if err := s.Check(); err != nil {
		return Synthetic{}, t.bad(err.Error())
	}
	return s, nil
}

func (f classFile) class(name string, usual Work) Class {
	c := Class{
		Name: name, Owner: f.Owner, Owners: f.Owners, Group: f.Group, PerDay: f.PerDay, Hours: f.Hours, Jobs: f.Jobs,
		At:   float64(f.At),
		GPUs: or(f.GPUs, 1), CPUs: or(f.CPUs, 1), VRAM: Variation(f.VRAM), Memory: Variation(f.Memory),
		Peak:    Variation(f.Peak),
		Seconds: Variation(f.Seconds), Dead: Variation(f.Dead), Kernel: or(f.Kernel, usual.Kernel), SM: or(f.SM, usual.SM),
		Bandwidth: or(f.Band, usual.Bandwidth),
	}
	if c.Owner == "" {
		c.Owner = name
	}
	return c
}

func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// drawn is a Variation as a file has it: 4000, "10m", [2000, 4000], or
// { median = "20m", spread = 2, least = "1m", most = "12h" }.
type drawn Variation

// UnmarshalTOML reads any of them.
func (d *drawn) UnmarshalTOML(v any) error {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			n, err := spanOf(one)
			if err != nil {
				return err
			}
			d.OneOf = append(d.OneOf, n)
		}
		if len(v) == 0 {
			return fmt.Errorf("the list is empty")
		}
		return nil
	case map[string]any:
		return d.fill(v)
	}
	n, err := spanOf(v)
	d.OneOf = []float64{n}
	return err
}

func (d *drawn) fill(v map[string]any) error {
	fields := map[string]*float64{"median": &d.Median, "least": &d.Least, "most": &d.Most}
	for name, value := range v {
		n, err := spanOf(value)
		switch to := fields[name]; {
		case name == "spread":
			d.Factor, err = 0, nil
			if d.Factor, _ = numberOf(value); d.Factor < 1 {
				err = fmt.Errorf("spread is %v; it is a factor of 1 or more", value)
			}
		case to == nil:
			err = fmt.Errorf("there is no %q; there are median, spread, least and most", name)
		case err == nil:
			*to = n
		}
		if err != nil {
			return err
		}
	}
	if d.Median == 0 {
		return fmt.Errorf("it has no median")
	}
	return nil
}
