package config

import (
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gpuslot/gpuslot/gpu"
)

// check holds keys against each other.
func (d *draft) check() {
	requests := !d.faulty("request_vram")
	if requests {
		d.checkRequests()
	}
	if !d.faulty("elastic") {
		d.checkElastic()
	}
	d.adviseState()
	d.adviseGrowth()
	for _, p := range d.tables {
		if requests {
			d.checkLargest(p)
		}
		d.checkTenant(p)
		d.checkMode(p)
		d.adviseTable(p)
	}
}

// checkRequests wants the minimum to be a budget itself.
func (d *draft) checkRequests() {
	minimum, quantum := d.RequestVRAM.Minimum, d.RequestVRAM.Quantum
	if minimum%quantum == 0 {
		return
	}
	lower, upper := minimum.Floor(quantum), minimum.Ceil(quantum)
	key := d.written("request_vram", "minimum", "quantum")
	if lower == 0 {
		d.bad(key, d.value(key), "the minimum (%s) is not a multiple of the quantum (%s); the nearest is minimum = %d",
			minimum, quantum, int64(upper))
		return
	}
	d.bad(key, d.value(key), "the minimum (%s) is not a multiple of the quantum (%s); the nearest are minimum = %d and %d",
		minimum, quantum, int64(lower), int64(upper))
}

// faulty reports whether an entry of a table could not be read: then what the
// entries say together is not known.
func (d *draft) faulty(table string) bool {
	for _, f := range d.findings {
		if f.key[0] == table && !f.warning {
			return true
		}
	}
	return false
}

// written is the first of two keys of a table that the file has. It has one: what is so by default has no mistake.
func (d *draft) written(table, first, second string) toml.Key {
	if d.src.has(dotted(table, first)) {
		return toml.Key{table, first}
	}
	return toml.Key{table, second}
}

// value is what the file says for a key, or nil.
func (d *draft) value(key toml.Key) any {
	table := d.src.root
	for _, name := range key[:len(key)-1] {
		table, _ = table[name].(map[string]any)
	}
	return table[key[len(key)-1]]
}

// checkLargest wants a job of the smallest budget to fit.
func (d *draft) checkLargest(p placed) {
	if p.table.largestRequest == nil || *p.table.largestRequest == 0 {
		return
	}
	largest, r := *p.table.largestRequest, d.RequestVRAM
	key := below(p.key, "largest_request")
	if largest < r.Minimum {
		d.bad(key, d.value(key), "no job would fit, the smallest request being %d MiB (request_vram.minimum); "+
			"write at least that", int64(r.Minimum))
	} else if floor := largest.Floor(r.Quantum); floor != largest {
		d.warn(key, d.value(key), "budgets are multiples of %d MiB (request_vram.quantum), so the largest will be %d",
			int64(r.Quantum), int64(floor))
	}
}

// checkTenant refuses a tenant that no table's tenancy goes with; the plan, which
// knows how the tables lie over each other, refuses the rest.
func (d *draft) checkTenant(p placed) {
	if p.table.tenant == nil || *p.table.tenant == TenantAccount {
		return
	}
	for _, other := range d.tables {
		t := other.table.tenancy
		if own := p.table.tenancy; own != nil {
			t = own
		}
		if t != nil && t.Policy != TenancyOneAtATime {
			return
		}
	}
	key := below(p.key, "tenant")
	d.bad(key, d.value(key), "%s", TenantNeeds)
}

// TenantNeeds says why a tenant other than the account does not go with
// tenancy "one-at-a-time", and what to write.
const TenantNeeds = `MPS serves one account at a time, so two accounts of one such tenant would ` +
	`still wait for each other, without a message; write tenancy = "multi-user" or "common:<user>" beside it, or ` +
	`tenant = "account"`

// adviseState warns of a directory that forgets what to undo.
func (d *draft) adviseState() {
	key := toml.Key{"paths", "state"}
	for _, top := range []string{"/run/", "/var/run/", "/tmp/", "/dev/shm/"} {
		if strings.HasPrefix(d.Paths.State+"/", top) {
			d.warn(key, d.value(key), "the directory is empty after a reboot, and with it what gpuslot would have to undo; "+
				"write one below /var/lib")
		}
	}
}

// adviseGrowth notices that growth was configured and not turned on.
func (d *draft) adviseGrowth() {
	if d.Growth.Retries > 0 || d.faulty("growth") {
		return
	}
	for name, set := range map[string]bool{"exit_codes": len(d.Growth.ExitCodes) > 0,
		"early_percent": d.Growth.EarlyPercent > 0} {
		if key := (toml.Key{"growth", name}); set {
			d.warn(key, d.value(key), "it has no effect while growth.retries is 0")
		}
	}
}

// adviseTable says what a site gives up by a choice.
func (d *draft) adviseTable(p placed) {
	if r := p.table.reservedVRAM; r != nil && *r == 0 {
		key := below(p.key, "reserved_vram")
		d.warn(key, d.value(key), "the driver uses some VRAM that it lists of no process: "+
			"the last job on a full GPU may find less than its budget")
	}
	if m := p.table.computeMode; m != nil && *m == gpu.ComputeModeDefault {
		key := below(p.key, "compute_mode")
		d.warn(key, d.value(key), "nothing stops a job that drops its pipe directory: "+
			"it runs beside MPS, without a memory limit")
	}
	if t := p.table.tenancy; t != nil && t.Policy == TenancyCommon {
		key := below(p.key, "tenancy")
		d.warn(key, d.value(key), "all jobs run as %s, without isolation by account: "+
			"they can read, signal and debug each other", t.User)
	}
	if t := p.table.tenancy; t != nil && t.Policy == TenancyMultiUser {
		key := below(p.key, "tenancy")
		d.warn(key, d.value(key), "one MPS server, root's, serves all accounts of a GPU: "+
			"a fault of one job ends the jobs of all, its log shows the command lines of all, "+
			"and nothing isolates them on the GPU")
	}
}
