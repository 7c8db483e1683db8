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
	mode            *Mode
	shares          *int
	whole           *int
	reservedVRAM    *gpu.MiB
	largestRequest  *gpu.MiB
	threads         *Threads
	computeMode     *gpu.ComputeMode
	tenancy         *Tenancy
	tenant          *TenantKey
	mostThreads     *float64
	clientsPerShare *int
	migLayouts      *[]string
	migMPS          *bool
	repartition     *mig.Repartition
	isolation       *bool
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
		ModeFrom:     fromDefaults,
		WholeFrom:    fromDefaults,
	}
}

// fromDefaults is what ModeFrom and WholeFrom say where no table set the value.
const fromDefaults = "defaults"

// For lays the tables over each other, key by key, for one GPU of one host:
// the defaults, [sharing], [model."…"] of the product name, every [host."…"]
// that matches (the one with more literal characters later), [gpu."…"].
func (c Config) For(host string, g gpu.GPU) Settings {
	s := defaultSettings()
	s.lay(c.sharing, "[sharing]")
	if t, ok := c.models[g.Name]; ok {
		s.lay(t, tableName("model", g.Name))
	}
	for _, h := range c.hosts {
		if globMatches(h.glob, host) {
			s.lay(h.table, tableName("host", h.glob))
		}
	}
	if t, ok := c.gpus[g.UUID]; ok {
		s.lay(t, tableName("gpu", g.UUID.String()))
	}
	return s
}

// Configured lists the GPUs that have a table of their own and are expected on
// the host, sorted.
func (c Config) Configured(host string) []gpu.UUID {
	var uuids []gpu.UUID
	for u, t := range c.gpus {
		if t.host == nil || globMatches(*t.host, host) {
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
	over(&s.Tenancy, t.tenancy)
	over(&s.Tenant, t.tenant)
	over(&s.MostThreads, t.mostThreads)
	over(&s.ClientsPerShare, t.clientsPerShare)
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
		return cmp.Or(cmp.Compare(literals(a.glob), literals(b.glob)), cmp.Compare(a.glob, b.glob))
	})
}
