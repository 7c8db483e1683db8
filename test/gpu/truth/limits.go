package truth

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// limited is a daemon with a default limit; empty for none.
func (l *Lab) limited(ctx context.Context, n *Notes, device, limit string) (*Daemon, error) {
	d, err := l.Daemon(ctx, n)
	if err != nil {
		return nil, err
	}
	if limit != "" {
		_, err = d.Tell(ctx, "set_default_device_pinned_mem_limit "+device+" "+limit)
	}
	return d, err
}

// limitCases are limits set in one way each, or in two.
var limitCases = []struct{ name, device, limit, client string }{
	{"none", "", "", ""},
	{"default_index", "0", "2G", ""},
	{"default_uuid", "UUID", "2G", ""},
	{"client_index", "", "", "0=1G"},
	{"client_uuid", "", "", "UUID=1G"},
	{"lower", "0", "2G", "0=1G"},
	{"raise", "0", "2G", "0=8G"},
}

func tryLimits(ctx context.Context, l *Lab, n *Notes) error {
	var steps []step
	for _, c := range limitCases {
		uuid := strings.NewReplacer("UUID", string(l.GPU))
		steps = append(steps, step{c.name, func() error {
			return l.limitOf(ctx, n, c.name, uuid.Replace(c.device), c.limit, uuid.Replace(c.client))
		}})
	}
	return l.each(ctx, append(steps, step{"server", func() error { return l.serverLimit(ctx, n) }}))
}

// limitOf sets a daemon's default limit and a client's, reads them back and
// finds what they leave.
func (l *Lab) limitOf(ctx context.Context, n *Notes, name, device, limit, client string) error {
	d, err := l.limited(ctx, n, device, limit)
	if err != nil {
		return err
	}
	for key, device := range map[string]string{"_readback": "0", "_readback_uuid": string(l.GPU)} {
		if reply, err := d.Tell(ctx, "get_default_device_pinned_mem_limit "+device); err == nil {
			n.Set(name+key, reply)
		}
	}
	o := Order{Daemon: d}
	if client != "" {
		o.Environment = []string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=" + client}
	}
	return l.fill(ctx, n, name, o)
}

// serverLimit sets a limit of a running server above the default.
func (l *Lab) serverLimit(ctx context.Context, n *Notes) error {
	d, err := l.limited(ctx, n, "0", "2G")
	if err != nil {
		return err
	}
	s, err := d.Server(ctx, uint32(ownUID()))
	if err != nil {
		return err
	}
	if _, err := d.Tell(ctx, fmt.Sprintf("set_device_pinned_mem_limit %d 0 4G", s.PID)); err != nil {
		return err
	}
	if reply, err := d.Tell(ctx, fmt.Sprintf("get_device_pinned_mem_limit %d 0", s.PID)); err == nil {
		n.Set("server_readback", reply)
	}
	return l.fill(ctx, n, "server", Order{Daemon: d})
}

func between(name string, least, most float64) func(Values) bool {
	return func(v Values) bool { return v.Number(name) >= least && v.Number(name) <= most }
}

var limitClaims = []Claim{
	{"A default limit by ordinal binds.", []string{"default_index_mib"}, between("default_index_mib", 1, 2048)},
	{"Context and internal allocations count: less than the limit can be allocated.", []string{"default_index_mib"}, between("default_index_mib", 1, 2047)},
	{"Beyond the limit the error is CUDA_ERROR_OUT_OF_MEMORY.", []string{"default_index_ended_code"}, func(v Values) bool { return v.Number("default_index_ended_code") == outOfMemory }},
	{"Under a limit free of cuMemGetInfo is what the limit leaves.", []string{"default_index_free_mib", "default_index_mib"}, func(v Values) bool {
		return v.Number("default_index_free_mib")-v.Number("default_index_mib") < 128 && v.Number("default_index_free_mib") <= 2048
	}},
	{"Total of cuMemGetInfo stays the whole GPU.", []string{"default_index_total_mib", "none_total_mib"}, func(v Values) bool { return v.Number("default_index_total_mib") == v.Number("none_total_mib") }},
	{"The default limit reads back as set.", []string{"default_index_readback"}, func(v Values) bool { return v.Text("default_index_readback") == "2G" }},
	{"A default limit by UUID binds.", []string{"default_uuid_mib"}, between("default_uuid_mib", 1, 2048)},
	{"A default limit by UUID reads back by UUID.", []string{"default_uuid_readback_uuid"}, func(v Values) bool { return v.Text("default_uuid_readback_uuid") == "2G" }},
	{"A client's limit by ordinal binds.", []string{"client_index_mib"}, between("client_index_mib", 1, 1024)},
	{"A client's limit by UUID binds.", []string{"client_uuid_mib"}, between("client_uuid_mib", 1, 1024)},
	{"A client can lower its limit.", []string{"lower_mib"}, between("lower_mib", 1, 1024)},
	{"A client cannot raise its limit.", []string{"raise_mib"}, between("raise_mib", 1, 2048)},
	{"A server's limit may be above the default and binds its later clients.", []string{"server_mib"}, between("server_mib", 2049, 4096)},
}

func tryMalformed(ctx context.Context, l *Lab, n *Notes) error {
	var steps []step
	for _, c := range []struct{ name, value string }{
		{"two_entries", "0=1G,1=1G"},
		{"bogus_uuid", "GPU-00000000-0000-0000-0000-000000000000=1G"},
		{"thousand_mb", "0=1024MB"}, // an H200's context does not fit into 512 MiB
		{"decimal", "0=1.5G"},
		{"tera", "0=1T"},
		{"space", "0=1 G"},
		{"empty", ""},
	} {
		steps = append(steps, step{c.name, func() error {
			d, err := l.limited(ctx, n, "0", "2G")
			if err != nil {
				return err
			}
			return l.fill(ctx, n, c.name, Order{Daemon: d, Environment: []string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=" + c.value}})
		}})
	}
	return l.each(ctx, steps)
}

var malformedClaims = []Claim{
	{"An entry for a GPU that the client does not see removes every limit, the daemon's too.", []string{"two_entries_mib", "bogus_uuid_mib"}, func(v Values) bool {
		return v.Number("two_entries_mib") > 2048 && v.Number("bogus_uuid_mib") > 2048
	}},
	{"1024MB means 1024 MiB.", []string{"thousand_mb_mib"}, between("thousand_mb_mib", 1, 1024)},
	{"1.5G, 1T and 1 G mean 1 MiB: no context fits.", []string{"decimal_mib", "tera_mib", "space_mib"}, func(v Values) bool {
		return v.Number("decimal_mib")+v.Number("tera_mib")+v.Number("space_mib") == 0
	}},
	{"An empty variable leaves the default limit.", []string{"empty_mib"}, between("empty_mib", 1, 2048)},
}

var percentages = []int{100, 50, 25, 10}

// tryContexts finds what a context costs at which percentage.
func tryContexts(ctx context.Context, l *Lab, n *Notes) error {
	if err := l.sums(ctx, n, "before"); err != nil {
		return err
	}
	d, err := l.limited(ctx, n, "0", "8G")
	if err != nil {
		return err
	}
	if _, err := d.Server(ctx, uint32(ownUID())); err != nil {
		return err
	}
	before, err := l.See(ctx, n, 1, 0)
	if err != nil {
		return err
	}
	for _, p := range percentages {
		name := strconv.Itoa(p)
		j, err := l.Start(ctx, n, Order{Name: name, Daemon: d, Environment: []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=" + name}, Words: "info until eof"})
		if err != nil {
			return err
		}
		line, err := j.Await(ctx, "info", 20*time.Second)
		if err != nil {
			return err
		}
		n.Set("multiprocessors_"+name, *line.SMs)
		seen, err := l.See(ctx, n, 1, 0)
		if err != nil {
			return err
		}
		l.contextSize(n, name, j, before[0], seen[0])
		if err := j.End(ctx); err != nil {
			return err
		}
	}
	for i := range fiveClients {
		j, err := l.Start(ctx, n, Order{Name: commandf("bare_%d", i+1), Daemon: d, Words: "context until eof"})
		if err == nil {
			err = j.Must(ctx, "context")
		}
		if err == nil && slices.Contains([]int{1, 2, fiveClients}, i+1) {
			err = l.sums(ctx, n, commandf("clients_%d", i+1))
		}
		if err != nil {
			return err
		}
	}
	d.limitLine(ctx, n)
	return nil
}

// contextSize is by the process where NVML lists it, and by the whole GPU.
func (l *Lab) contextSize(n *Notes, name string, j *Job, before, seen Look) {
	for _, list := range [][]Seen{seen.Compute, seen.MPS} {
		if p, ok := listed(list, j.cmd.Process.Pid); ok && p.Bytes != nil {
			n.Set("context_"+name+"_mib", int(*p.Bytes>>20))
		}
	}
	if before.UsedMiB != nil && seen.UsedMiB != nil {
		n.Set("growth_"+name+"_mib", int(*seen.UsedMiB-*before.UsedMiB))
	}
}

func formulaHolds(v Values, percentage string) bool {
	want := 30 + 3.7*v.Number("multiprocessors_"+percentage)
	got := v.Number("context_" + percentage + "_mib")
	return got > 0.9*want && got < 1.1*want
}

var contextClaims = []Claim{
	allListed(1, 2, fiveClients),
	logLineClaim,
	{"A context costs less at a lower percentage.", []string{"context_100_mib", "context_10_mib"}, func(v Values) bool { return v.Number("context_10_mib") < v.Number("context_100_mib") }},
	{"A context costs 30 MiB and 3.7 MiB for each multiprocessor (Hopper; the simulation's formula), within a tenth.", []string{"context_100_mib", "multiprocessors_100", "context_10_mib", "multiprocessors_10"}, func(v Values) bool {
		return formulaHolds(v, "100") && formulaHolds(v, "10")
	}},
	{"CUDA tells a capped client fewer multiprocessors.", []string{"multiprocessors_100", "multiprocessors_25"}, func(v Values) bool { return v.Number("multiprocessors_25") < v.Number("multiprocessors_100") }},
}

// tryKinds goes beyond a limit by each way to allocate.
func tryKinds(ctx context.Context, l *Lab, n *Notes) error {
	d, err := l.limited(ctx, n, "0", "2G")
	if err != nil {
		return err
	}
	for _, kind := range []string{"alloc", "managed", "async", "create"} {
		j, err := l.Do(ctx, n, Order{Name: kind, Daemon: d, Words: kind + " 3072"})
		if err != nil {
			return err
		}
		if line, ok := j.Line(kind); ok && line.Code >= 0 { // negative: the library has no such call
			n.Set(kind+"_code", line.Code)
		}
	}
	return l.tryImport(ctx, n, d)
}

// tryImport has one client use memory of another.
func (l *Lab) tryImport(ctx context.Context, n *Notes, d *Daemon) error {
	file := l.Dir + "/handle"
	j, err := l.Start(ctx, n, Order{Name: "exporter", Daemon: d, Words: "alloc 1024 export " + file + " until eof"})
	if err != nil {
		return err
	}
	line, err := j.Await(ctx, "export", 20*time.Second)
	if err != nil || line.Code != 0 {
		return err // a library without these calls says so in the record
	}
	i, err := l.Do(ctx, n, Order{Name: "importer", Daemon: d, Environment: []string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1G"}, Words: "import " + file + " fill 32"})
	if err != nil {
		return err
	}
	if line, ok := i.Line("import"); ok {
		n.Set("import_code", line.Code)
	}
	if line, ok := i.Line("fill"); ok {
		n.Set("import_left_mib", *line.MiB)
	}
	return j.End(ctx)
}

var kindClaims = []Claim{
	{"cuMemAlloc beyond the limit fails.", []string{"alloc_code"}, func(v Values) bool { return v.Number("alloc_code") == outOfMemory }},
	{"Managed memory beyond the limit fails.", []string{"managed_code"}, func(v Values) bool { return v.Number("managed_code") == outOfMemory }},
	{"cuMemAllocAsync beyond the limit fails.", []string{"async_code"}, func(v Values) bool { return v.Number("async_code") == outOfMemory }},
	{"cuMemCreate beyond the limit fails.", []string{"create_code"}, func(v Values) bool { return v.Number("create_code") == outOfMemory }},
	{"Another client's memory is not imported beyond one's own limit.", []string{"import_code"}, func(v Values) bool { return v.Number("import_code") == outOfMemory }},
}

// tryDevices names a GPU twice.
func tryDevices(ctx context.Context, l *Lab, n *Notes) error {
	d, err := l.Daemon(ctx, n)
	if err != nil {
		return err
	}
	twice := strings.Join([]string{string(l.GPU), string(l.GPU)}, ",")
	for name, daemon := range map[string]*Daemon{"plain": nil, "mps": d} {
		j, err := l.Do(ctx, n, Order{Name: name, Daemon: daemon, Environment: []string{"CUDA_VISIBLE_DEVICES=" + twice}, Words: "go on devices"})
		if err != nil {
			return err
		}
		if line, ok := j.Line("cuInit"); ok {
			n.Set(name+"_init_code", line.Code)
		}
		if line, ok := j.Line("devices"); ok {
			n.Set(name+"_devices", *line.Devices)
		}
	}
	return nil
}

var deviceClaims = []Claim{
	{"A UUID that stands twice in CUDA_VISIBLE_DEVICES leaves no device.", []string{"plain_init_code", "mps_init_code"}, func(v Values) bool {
		_, plain := v["plain_devices"]
		_, mps := v["mps_devices"]
		return (v.Number("plain_init_code") != 0 || plain && v.Number("plain_devices") == 0) && (v.Number("mps_init_code") != 0 || mps && v.Number("mps_devices") == 0)
	}},
}
