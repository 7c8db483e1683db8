package config

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

// table is one sharing table as written: nil fields were not set.
type table struct {
	mode           *Mode
	shares         *int
	whole          *int
	reservedVRAM   *gpu.MiB
	largestRequest *gpu.MiB
	threads        *Threads
	computeMode    *gpu.ComputeMode
	tenancy        *Tenancy
	tenant         *TenantKey
	mostThreads    *float64
	migLayouts     *[]string
	migMPS         *bool
	repartition    *mig.Repartition
	isolation      *bool
	// host is where a GPU is expected; only in [gpu."…"].
	host *string
}

// hostTable is a [host."glob"] table.
type hostTable struct {
	glob  string // in lower case
	table table
}

// defaultSettings hold where no table says anything.
func defaultSettings() Settings {
	return Settings{
		Mode:         ModeMPS,
		ReservedVRAM: 64,
		Threads:      Threads{Policy: ThreadsUncapped},
		ComputeMode:  gpu.ComputeModeExclusiveProcess,
		Tenancy:      Tenancy{Policy: TenancyOneAtATime},
		Tenant:       TenantAccount,
		Repartition:  mig.Static,
		ModeFrom:     FromDefaults,
		TenancyFrom:  FromDefaults,
		WholeFrom:    FromDefaults,
	}
}

// FromDefaults is what ModeFrom, WholeFrom and TenancyFrom say where no table set the value.
const FromDefaults = "defaults"

// For lays the tables over each other, key by key, for one GPU of one host:
// the defaults, [sharing], every [model."…"] that matches the product name, every
// [host."…"] that matches (the one with more literal characters later), [gpu."…"].
func (c Config) For(host string, g gpu.GPU) Settings {
	s := defaultSettings()
	s.lay(c.sharing, "[sharing]")
	for _, name := range c.modelsOf(g.Name) {
		s.lay(c.models[name], tableName("model", name))
	}
	for _, h := range c.hosts {
		if globMatches(h.glob, host) {
			s.lay(h.table, tableName("host", h.glob))
		}
	}
	for _, u := range c.gpusOf(g.UUID) {
		s.lay(c.gpus[u], tableName("gpu", u.String()))
	}
	return s
}

// modelsOf are the names of the [model] tables for a product, the more specific later.
func (c Config) modelsOf(product string) []string {
	var names []string
	for name := range c.models {
		if ok, _ := path.Match(strings.ToLower(name), strings.ToLower(product)); ok || name == product {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, moreLiteral)
	return names
}

// gpusOf are the UUIDs, or beginnings of one, of the [gpu] tables for a GPU, the longer
// later.
func (c Config) gpusOf(u gpu.UUID) []gpu.UUID {
	var begins []gpu.UUID
	for b := range c.gpus {
		if strings.HasPrefix(string(u), string(b)) {
			begins = append(begins, b)
		}
	}
	slices.Sort(begins)
	return begins
}

// Unmatched names the tables that match no GPU of a host, sorted. A [model] table counts
// only if a GPU of the host has none: one file for several kinds of nodes has tables for
// other products. A [gpu] table with a whole UUID is one of Configured instead.
func (c Config) Unmatched(host string, gpus []gpu.GPU) []string {
	var names []string
	if slices.ContainsFunc(gpus, func(g gpu.GPU) bool { return len(c.modelsOf(g.Name)) == 0 }) {
		for name := range c.models {
			if !slices.ContainsFunc(gpus, func(g gpu.GPU) bool { return slices.Contains(c.modelsOf(g.Name), name) }) {
				names = append(names, tableName("model", name))
			}
		}
	}
	for b, t := range c.gpus {
		expected := t.host == nil || globMatches(*t.host, host)
		found := slices.ContainsFunc(gpus, func(g gpu.GPU) bool { return strings.HasPrefix(string(g.UUID), string(b)) })
		if expected && !found && !isWhole(b) {
			names = append(names, tableName("gpu", b.String()))
		}
	}
	slices.Sort(names)
	return names
}

// isWhole reports whether a UUID is more than the beginning of one.
func isWhole(u gpu.UUID) bool {
	_, err := gpu.ParseUUID(string(u))
	return err == nil
}

// Configured lists the GPUs that have a table with their whole UUID and are expected on
// the host, sorted.
func (c Config) Configured(host string) []gpu.UUID {
	var uuids []gpu.UUID
	for u, t := range c.gpus {
		if isWhole(u) && (t.host == nil || globMatches(*t.host, host)) {
			uuids = append(uuids, u)
		}
	}
	slices.Sort(uuids)
	return uuids
}

func tableName(kind, name string) string { return "[" + kind + `."` + name + `"]` }

// lay puts a table over the settings.
func (s *Settings) lay(t table, from string) {
	if t.mode != nil {
		s.Mode, s.ModeFrom = *t.mode, from
	}
	if t.whole != nil {
		s.Whole, s.WholeFrom = *t.whole, from
	}
	over(&s.Shares, t.shares)
	over(&s.ReservedVRAM, t.reservedVRAM)
	over(&s.LargestRequest, t.largestRequest)
	over(&s.Threads, t.threads)
	over(&s.ComputeMode, t.computeMode)
	if t.tenancy != nil {
		s.Tenancy, s.TenancyFrom = *t.tenancy, from
	}
	over(&s.Tenant, t.tenant)
	over(&s.MostThreads, t.mostThreads)
	over(&s.MIGLayouts, t.migLayouts)
	over(&s.MIGMPS, t.migMPS)
	over(&s.Repartition, t.repartition)
	over(&s.Isolation, t.isolation)
}

func over[T any](dst, src *T) {
	if src != nil {
		*dst = *src
	}
}

// globMatches holds a lower-case glob against a host's name and, if the glob
// has no dot, also against the name's first label: "wn-gpu?" is meant for
// "wn-gpu7.example.org". Host names do not differ in case (RFC 4343).
func globMatches(glob, host string) bool {
	host = strings.ToLower(host)
	if ok, _ := path.Match(glob, host); ok { // Parse accepts no bad glob
		return true
	}
	label, _, _ := strings.Cut(host, ".")
	ok, _ := path.Match(glob, label)
	return ok && !strings.Contains(glob, ".")
}

// literals counts the characters of a glob that stand for themselves.
func literals(glob string) int {
	n, class, escaped := 0, false, false
	for _, r := range glob {
		switch {
		case escaped:
			escaped = false
			if !class {
				n++
			}
		case r == '\\':
			escaped = true
		case class:
			class = r != ']'
		case r == '[':
			class = true
		case r != '*' && r != '?':
			n++
		}
	}
	return n
}

// sortHosts puts the more specific globs later.
func sortHosts(hosts []hostTable) {
	slices.SortFunc(hosts, func(a, b hostTable) int {
		return moreLiteral(a.glob, b.glob)
	})
}

// moreLiteral orders globs by their literal characters, then by text.
func moreLiteral(a, b string) int {
	return cmp.Or(cmp.Compare(literals(a), literals(b)), cmp.Compare(a, b))
}
