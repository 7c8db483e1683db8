package condor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/gpu"
)

// Waiting are idle jobs that ask for the same.
type Waiting struct {
	// Owner is whose jobs they are, while they are counted; access points do not tell it.
	Owner string `json:"-"`
	// GPUs is request_gpus, 1 or more.
	GPUs int `json:"GPUs"`
	// VRAM is request_vram; 0 if they do not say.
	VRAM gpu.MiB `json:"VRAM"`
	// Require is require_gpus, an expression; empty if they do not say. Users wrote it.
	Require string `json:"Require,omitempty"`
	// CPUs is request_cpus, Memory request_memory in whole memorySteps; 0 if that is not
	// known.
	CPUs   int     `json:"Cpus,omitempty"`
	Memory gpu.MiB `json:"Memory,omitempty"`
	// Jobs is how many they are, Waits for how many seconds the first of them has
	// been idle.
	Jobs  int   `json:"Jobs"`
	Waits int64 `json:"Waits"`
	// At is when they were counted, of several access points the latest time.
	At time.Time `json:"-"`
}

// asked is what they have in common.
type asked struct {
	owner, require string
	gpus, cpus     int
	vram, memory   gpu.MiB
}

func (w Waiting) asked() asked { return asked{w.Owner, w.Require, w.GPUs, w.CPUs, w.VRAM, w.Memory} }

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
	// maxCPUs, maxGPUs and gpu.MaxMemory are more than any node has.
	maxCPUs = 1 << 16
	maxGPUs = 256
	// maxNumber is the largest number that is read at all.
	maxNumber = 1 << 40
)

// memoryStep is the unit to which HTCondor rounds request_memory up when it makes a
// slot (MODIFY_REQUEST_EXPR_REQUESTMEMORY).
const memoryStep = 128

// idleJobs are those that ask for GPUs. RequireGPUs is left to the reader: evaluated in
// the job's ad it is undefined. Jobs of users who write a lot are left out: one of them
// could make the answer too long to be read.
func idleJobs() string {
	return "JobStatus == 1 && JobUniverse == 5 && RequestGPUs >= 1 && " + shorter(maxRequire, "RequireGPUs") +
		" && " + shorter(maxRequests, "RequestVRAM", "RequestCpus", "RequestMemory")
}

// idleColumns are what condor_q prints of each job. Sums are evaluated, so that each is a
// number or one word: request_vram is an expression where jobs grow, request_memory often.
// What unparse prints stands on one line. The owner is an account's name, which the schedd writes.
var idleColumns = []string{
	"Owner", "RequestGPUs+0", "RequestVRAM+0", "RequestCpus+0", "RequestMemory+0", "EnteredCurrentStatus+0",
	"unparse(RequireGPUs)",
}

// CountIdle asks the schedd of this machine what its idle GPU jobs wait for, and
// the collector how many nodes listen: two queries with a projection.
func CountIdle(ctx context.Context, now time.Time) (Demand, error) {
	args := []string{"-allusers", "-constraint", idleJobs(), "-af"}
	jobs, err := output(ctx, nil, "condor_q", append(args, idleColumns...)...)
	if err != nil {
		return Demand{}, err
	}
	const follows = `GPUSlotRepartition isnt undefined && SlotType =!= "Dynamic"`
	machines, err := output(ctx, nil, "condor_status", "-startd", "-constraint", follows, "-af", "Machine")
	if err != nil {
		return Demand{}, err
	}
	nodes := strings.Fields(machines)
	slices.Sort(nodes)
	return Demand{At: now, Nodes: len(slices.Compact(nodes)), Waiting: sumIdle(jobs, now)}, nil
}

// sumIdle sums the lines of idleColumns by what the jobs ask for, the most jobs first. Beyond
// maxWaiting the memory is told of half as many, then no more than maxWaiting are told at all,
// both of each owner in turn. A line that is no job's is left out: one user's odd text must not hide the work
// of the others.
func sumIdle(text string, now time.Time) []Waiting {
	sums := map[asked]Waiting{}
	for line := range strings.Lines(text) {
		if w, ok := parseIdle(line, now); ok {
			add(sums, w)
		}
	}
	all := ofAll(sums)
	if len(all) > maxWaiting {
		told, less := byTurns(sums, maxWaiting/2), map[asked]Waiting{}
		for _, w := range sums {
			if !told[w.byAnybody().asked()] {
				w.Memory = 0
			}
			add(less, w)
		}
		all, told = ofAll(less), byTurns(less, maxWaiting)
		maps.DeleteFunc(all, func(r asked, _ Waiting) bool { return !told[r] })
	}
	return sorted(all)
}

// byTurns chooses so many requests, of each owner one in turn: what most of its jobs ask for, then
// what has waited longest, and so on. In a turn what has waited longest comes first.
func byTurns(sums map[asked]Waiting, most int) map[asked]bool {
	turn, list := map[asked]int{}, sorted(sums)
	for step := range 2 {
		next := map[string]int{}
		for _, w := range list {
			if t, known := turn[w.asked()]; !known || next[w.Owner]+step < t {
				turn[w.asked()] = next[w.Owner] + step
			}
			next[w.Owner] += 2
		}
		slices.SortStableFunc(list, func(a, b Waiting) int { return cmp.Compare(b.Waits, a.Waits) })
	}
	slices.SortStableFunc(list, func(a, b Waiting) int { return cmp.Compare(turn[a.asked()], turn[b.asked()]) })
	chosen := map[asked]bool{}
	for _, w := range list {
		if len(chosen) < most {
			chosen[w.byAnybody().asked()] = true
		}
	}
	return chosen
}

func (w Waiting) byAnybody() Waiting { w.Owner = ""; return w }

func ofAll(sums map[asked]Waiting) map[asked]Waiting {
	all := map[asked]Waiting{}
	for _, w := range sums {
		add(all, w.byAnybody())
	}
	return all
}

// parseIdle reads one line of idleColumns. A number that no node has counts as not known:
// START rejects that.
func parseIdle(line string, now time.Time) (w Waiting, ok bool) {
	var numbers [5]int64
	owner, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	for i := range numbers {
		var word string
		word, rest, _ = strings.Cut(rest, " ")
		n, _ := strconv.ParseFloat(word, 64) // 0 for other words, infinite for too large a number
		if math.Abs(n) <= maxNumber {
			numbers[i] = int64(math.Ceil(n))
		}
	}
	gpus, vram, cpus, memory, since := numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
	if gpus < 1 || gpus > maxGPUs || vram < 0 || vram > maxGPUs*int64(gpu.MaxMemory) || len(rest) > maxRequire {
		return Waiting{}, false
	}
	w = Waiting{Owner: owner, GPUs: int(gpus), VRAM: gpu.MiB(vram), Require: rest, Jobs: 1}
	if 0 < cpus && cpus <= maxCPUs {
		w.CPUs = int(cpus)
	}
	if 0 < memory && memory <= int64(gpu.MaxMemory) {
		w.Memory = gpu.MiB((memory + memoryStep - 1) / memoryStep * memoryStep)
	}
	if since > 0 {
		w.Waits = max(0, now.Unix()-since)
	}
	return w, true
}

// add sums jobs that ask for the same.
func add(sums map[asked]Waiting, w Waiting) {
	r := w.asked()
	w.Jobs = min(w.Jobs+sums[r].Jobs, maxJobs)
	w.Waits = max(w.Waits, sums[r].Waits, 0)
	if at := sums[r].At; at.After(w.At) {
		w.At = at
	}
	sums[r] = w
}

func sorted(sums map[asked]Waiting) []Waiting {
	return slices.SortedFunc(maps.Values(sums), func(a, b Waiting) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.VRAM, b.VRAM),
			strings.Compare(a.Require, b.Require), cmp.Compare(a.CPUs, b.CPUs), cmp.Compare(a.Memory, b.Memory),
			strings.Compare(a.Owner, b.Owner))
	})
}

// Ad is what SCHEDD_CRON merges into the schedd's ad.
func (d Demand) Ad() []byte {
	var list []string
	for _, w := range d.Waiting {
		item := fmt.Sprintf("[ GPUs = %d; VRAM = %d; Require = %s; Cpus = %d; Memory = %d; Jobs = %d; Waits = %d ]",
			w.GPUs, int64(w.VRAM), classad.Quote(w.Require), w.CPUs, int64(w.Memory), w.Jobs, w.Waits)
		list = append(list, item)
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
		if now.Sub(at).Abs() > demandFor {
			continue
		}
		if at.After(d.At) {
			d.At = at
		}
		d.Nodes = max(d.Nodes, ad.GPUSlotDemandNodes)
		for _, w := range ad.GPUSlotDemand {
			w.GPUs = cmp.Or(w.GPUs, 1) // an access point with an older gpuslot
			if w.absurd() {
				continue
			}
			w.At = at
			add(sums, w)
		}
	}
	d.Waiting = sorted(sums)
	return d, nil
}

// absurd is what no access point counts.
func (w Waiting) absurd() bool {
	return w.Jobs < 1 || w.Jobs > maxJobs || w.GPUs < 1 || w.GPUs > maxGPUs || w.VRAM < 0 || w.CPUs < 0 ||
		w.Memory < 0 || len(w.Require) > maxRequire
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
		"deviceuuid": str(d.deviceUUID()), "devicename": str(d.Name), "devicepcibusid": str(string(d.PCI)),
		"gpuindex": num(float64(d.Index)), "globalmemorymb": num(float64(d.Memory)), "id": str(string(d.UUID)),
		"capability": num(float64(d.Capability.Major) + float64(d.Capability.Minor)/10),
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
