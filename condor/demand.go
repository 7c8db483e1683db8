package condor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/gpu"
)

// Waiting are idle jobs that ask for one GPU in the same words.
type Waiting struct {
	// VRAM is request_vram; 0 if they do not say.
	VRAM gpu.MiB `json:"VRAM"`
	// Require is require_gpus, an expression; empty if they do not say. Users wrote it.
	Require string `json:"Require,omitempty"`
	// CPUs is request_cpus, Memory request_memory in whole memorySteps; 0 if that is not
	// known: an expression, or an access point that does not tell.
	CPUs   int     `json:"Cpus,omitempty"`
	Memory gpu.MiB `json:"Memory,omitempty"`
	// Jobs is how many they are, Waits for how many seconds the first of them has
	// been idle.
	Jobs  int   `json:"Jobs"`
	Waits int64 `json:"Waits"`
}

// asked is what they have in common.
type asked struct {
	vram    gpu.MiB
	require string
	cpus    int
	memory  gpu.MiB
}

func (w Waiting) asked() asked { return asked{w.VRAM, w.Require, w.CPUs, w.Memory} }

// Demand is what waits at one access point, or in a pool.
type Demand struct {
	// At is when it was counted; in a pool, by the access point that counted last.
	At time.Time
	// Nodes is how many machines say that their MIG layouts follow it.
	Nodes   int
	Waiting []Waiting
}

// Bounds of what an access point tells: a user can invent any number of requests.
const (
	maxWaiting = 64
	maxRequire = 256
	// maxRequests is of the texts of the other requests, which may be expressions.
	maxRequests = 2048
	// maxCPUs and gpu.MaxMemory are more than any node has.
	maxCPUs = 1 << 16
)

// memoryStep is the unit to which HTCondor rounds request_memory up when it makes a
// slot (MODIFY_REQUEST_EXPR_REQUESTMEMORY).
const memoryStep = 128

// idleJobs are those that one GPU could serve. RequireGPUs is left to the reader:
// evaluated in the job's ad it is undefined. Jobs of users who write a lot are left out:
// one of them could make the answer too long to be read.
func idleJobs() string {
	return "JobStatus == 1 && JobUniverse == 5 && RequestGPUs =?= 1 && " + shorter(maxRequire, "RequireGPUs") +
		" && " + shorter(maxRequests, "RequestVRAM", "RequestCpus", "RequestMemory")
}

// CountIdle asks the schedd of this machine what its idle GPU jobs wait for, and
// the collector how many nodes listen: two queries with a projection.
func CountIdle(ctx context.Context, now time.Time) (Demand, error) {
	jobs, err := output(ctx, nil, "condor_q", "-allusers", "-constraint", idleJobs(), "-json",
		"-attributes", "RequestVRAM,RequireGPUs,RequestCpus,RequestMemory,EnteredCurrentStatus")
	if err != nil {
		return Demand{}, err
	}
	machines, err := output(ctx, nil, "condor_status", "-startd", "-constraint", `GPUSlotRepartition isnt undefined && SlotType =!= "Dynamic"`, "-af", "Machine")
	if err != nil {
		return Demand{}, err
	}
	nodes := map[string]bool{}
	for line := range strings.Lines(machines) {
		nodes[strings.TrimSpace(line)] = true
	}
	delete(nodes, "")
	waiting, err := sumIdle(jobs, now)
	return Demand{At: now, Nodes: len(nodes), Waiting: waiting}, err
}

// sumIdle sums "condor_q -json" of idle jobs by what they ask for, the most jobs
// first. Beyond maxWaiting the memory that the fewest ask for is no longer told, then
// they are left out.
func sumIdle(text string, now time.Time) ([]Waiting, error) {
	ads, err := classad.ParseJSON(text)
	if err != nil {
		return nil, fmt.Errorf("job ads: %w", err)
	}
	sums := map[asked]Waiting{}
	for _, ad := range ads {
		if len(ad.Lost()) > 0 {
			continue // one user's odd text, which must not hide the work of the others
		}
		vram, _ := ad.Int("RequestVRAM")
		require, _ := ad.Expr("RequireGPUs")
		if vram < 0 || vram == 0 && require == "" || len(require) > maxRequire || vram > int64(gpu.MaxMemory) {
			continue // no GPU that gpuslot offers serves it
		}
		w := Waiting{VRAM: gpu.MiB(vram), Require: require, Jobs: 1}
		w.CPUs, w.Memory = hostOf(ad)
		if since, ok := ad.Int("EnteredCurrentStatus"); ok {
			w.Waits = now.Unix() - since
		}
		add(sums, w)
	}
	all := sorted(sums)
	if len(all) > maxWaiting {
		clear(sums)
		for i, w := range all {
			if i >= maxWaiting/2 {
				w.Memory = 0
			}
			add(sums, w)
		}
		all = sorted(sums)
	}
	return all[:min(len(all), maxWaiting)], nil
}

// hostOf is what a job asks of the host. An expression counts as not known, and so
// does what no node has: START refuses that.
func hostOf(ad classad.Ad) (cpus int, memory gpu.MiB) {
	if n, ok := ad.Int("RequestCpus"); ok && 0 < n && n <= maxCPUs {
		cpus = int(n)
	}
	if n, ok := ad.Int("RequestMemory"); ok && 0 < n && n <= int64(gpu.MaxMemory) {
		memory = gpu.MiB((n + memoryStep - 1) / memoryStep * memoryStep)
	}
	return cpus, memory
}

// add sums jobs that ask for the same.
func add(sums map[asked]Waiting, w Waiting) {
	r := w.asked()
	w.Jobs = min(w.Jobs+sums[r].Jobs, maxJobs)
	w.Waits = max(w.Waits, sums[r].Waits, 0)
	sums[r] = w
}

func sorted(sums map[asked]Waiting) []Waiting {
	return slices.SortedFunc(maps.Values(sums), func(a, b Waiting) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.VRAM, b.VRAM), strings.Compare(a.Require, b.Require),
			cmp.Compare(a.CPUs, b.CPUs), cmp.Compare(a.Memory, b.Memory))
	})
}

// Ad is what SCHEDD_CRON merges into the schedd's ad.
func (d Demand) Ad() []byte {
	var list []string
	for _, w := range d.Waiting {
		list = append(list, fmt.Sprintf("[ VRAM = %d; Require = %s; Cpus = %d; Memory = %d; Jobs = %d; Waits = %d ]",
			int64(w.VRAM), classad.Quote(w.Require), w.CPUs, int64(w.Memory), w.Jobs, w.Waits))
	}
	var ad classad.Ad
	ad.SetInt("GPUSlotDemandTime", d.At.Unix())
	ad.SetInt("GPUSlotDemandNodes", int64(d.Nodes))
	ad.SetExpr("GPUSlotDemand", "{ "+strings.Join(list, ", ")+" }")
	return append([]byte(ad.Print()), "-\n"...)
}

// demandFor is how old an access point's word may be; a schedd's ad is renewed
// after SCHEDD_INTERVAL, 5 minutes by default, and after each submission.
const demandFor = 15 * time.Minute

// PoolDemand asks the collector what waits at all access points: one query,
// whatever the number of jobs.
func PoolDemand(ctx context.Context, now time.Time) (Demand, error) {
	text, err := output(ctx, nil, "condor_status", "-schedd", "-constraint", "GPUSlotDemand isnt undefined", "-json",
		"-attributes", "Name,GPUSlotDemand,GPUSlotDemandTime,GPUSlotDemandNodes")
	if err != nil {
		return Demand{}, err
	}
	return parsePoolDemand([]byte(text), now)
}

// parsePoolDemand reads "condor_status -schedd -json" and sums over the access
// points. What is older than demandFor does not count; a zero At is that nobody told.
func parsePoolDemand(text []byte, now time.Time) (Demand, error) {
	var ads []struct {
		GPUSlotDemand      []Waiting
		GPUSlotDemandTime  int64
		GPUSlotDemandNodes int
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return Demand{}, nil // condor_status prints nothing where there is nothing
	}
	if err := json.Unmarshal(text, &ads); err != nil {
		return Demand{}, fmt.Errorf("schedd ads: %w", err)
	}
	var d Demand
	sums := map[asked]Waiting{}
	for _, ad := range ads {
		at := time.Unix(ad.GPUSlotDemandTime, 0)
		if age := now.Sub(at); age > demandFor || age < -demandFor {
			continue
		}
		if at.After(d.At) {
			d.At = at
		}
		d.Nodes = max(d.Nodes, ad.GPUSlotDemandNodes)
		for _, w := range ad.GPUSlotDemand {
			if w.Jobs < 1 || w.Jobs > maxJobs || w.VRAM < 0 || w.CPUs < 0 || w.Memory < 0 || len(w.Require) > maxRequire {
				continue
			}
			add(sums, w)
		}
	}
	d.Waiting = sorted(sums)
	return d, nil
}

// maxJobs is more than any pool has.
const maxJobs = 100_000_000

// Fits tells whether the device, with its slot's CPUs and memory, could serve such a
// job; known is false if what the job requires is not understood here.
func (w Waiting) Fits(d Device, cuda string) (fits, known bool) {
	if w.VRAM > d.Pool || w.CPUs > d.Share.CPUs || w.Memory > d.Share.Memory {
		return false, true
	}
	if w.Require == "" {
		return true, true
	}
	return evalRequire(w.Require, d.property(cuda))
}

// property are the values of what InventoryAds prints.
func (d Device) property(cuda string) func(string) value {
	known := map[string]value{
		"deviceuuid": str(d.deviceUUID()), "devicename": str(d.Name), "devicepcibusid": str(string(d.PCI)), "gpuindex": num(float64(d.Index)),
		"globalmemorymb": num(float64(d.Memory)), "capability": num(float64(d.Capability.Major) + float64(d.Capability.Minor)/10), "id": str(string(d.UUID)),
	}
	if d.Profile != "" {
		known["migprofile"], known["migparent"] = str(d.Profile), str(string(d.Parent))
	}
	if d.Place != "" {
		known["migplace"] = str(d.Place)
	}
	if d.Multiprocessors > 0 {
		known["computeunits"] = num(float64(d.Multiprocessors))
	}
	for item := range strings.SplitSeq(cudaProperties(cuda), ";") {
		if name, text, ok := strings.Cut(strings.TrimSpace(item), "="); ok {
			known[strings.ToLower(name)] = literal(text)
		}
	}
	return func(name string) value { return known[strings.ToLower(name)] }
}
