package condor

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
)

// Startd is one condor_startd of the node, as it should be.
type Startd struct {
	// Name is its STARTD_NAME and its local name, "gpu5a1e0c11" of
	// GPU-5a1e0c11-…; empty is HTCondor's own startd, by default the only one.
	Name string
	// Plan identifies what it reads at its start only: a running one that
	// publishes another GPUSlotPlan must be restarted before the node is as planned.
	Plan string
	// Devices are the GPUs and MIG devices that it offers.
	Devices []gpu.UUID
	// Layout are its partitionable slots as Slot.Layout says them, sorted. It is
	// held against them too: a condor_reconfig alone makes a running startd
	// publish the new Plan (seen on 25.14.1).
	Layout []string
}

// Daemon is its name in DAEMON_LIST, which condor_restart -daemon takes.
func (s Startd) Daemon() string { return daemonName(s.Name) }

// Environment lets condor_status -direct with an empty name ask this startd.
func (s Startd) Environment() []string {
	if s.Name == "" {
		return nil
	}
	return []string{"_CONDOR_STARTD_ADDRESS_FILE=$(" + s.Daemon() + "_ADDRESS_FILE)"}
}

func daemonName(startd string) string {
	if startd == "" {
		return "STARTD"
	}
	return "STARTD_" + strings.ToUpper(startd)
}

// Startds are the node's: HTCondor's own first.
func Startds(n Node) []Startd {
	var out []Startd
	types := slotTypes(n)
	for _, name := range startdNames(n) {
		s := Startd{Name: name, Plan: fingerprint(n, types, name)}
		for _, st := range types {
			if st.startd == name {
				s.Devices = append(s.Devices, uuids(st.devices)...)
				s.Layout = append(s.Layout, slices.Repeat([]string{st.layout()}, st.slots())...)
			}
		}
		slices.Sort(s.Layout)
		out = append(out, s)
	}
	return out
}

// startdNames has "" first. Names come from UUIDs, not from indices: when a GPU
// falls off, those of the others shift, and a startd that restarts would offer
// the GPU of another that still runs.
func startdNames(n Node) []string {
	names := []string{""}
	if !n.PerGPU {
		return names
	}
	for _, d := range n.Devices {
		if name := n.startdOf(d); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// startdOf is the startd of a device's GPU: the first eight digits of its UUID,
// or all where another GPU of the node begins alike.
func (n Node) startdOf(d Device) string {
	u := cmp.Or(d.Parent, d.UUID)
	digits := strings.ReplaceAll(u.Bare(), "-", "")
	short := digits[:min(8, len(digits))]
	for _, o := range n.Devices {
		other := cmp.Or(o.Parent, o.UUID)
		if other != u && strings.HasPrefix(other.Bare(), short) {
			return "gpu" + digits
		}
	}
	return "gpu" + short
}

// IsStartd says whether a local name is one that startdOf makes. (Without
// package regexp, whose start every job would wait for.)
func IsStartd(name string) bool {
	digits, ok := strings.CutPrefix(name, "gpu")
	return ok && (len(digits) == 8 || len(digits) == 32) && strings.Trim(digits, "0123456789abcdef") == ""
}

// SlotName is the name by which one slot of the node differs from all others:
// "slot1_2" of "slot1_2@host", and "slot1_2@gpu5a1e0c11" of a GPU's startd, each
// of which begins with slot1.
func SlotName(name string) string {
	slot, rest, _ := strings.Cut(name, "@")
	if startd, _, _ := strings.Cut(rest, "@"); IsStartd(startd) {
		return slot + "@" + startd
	}
	return slot
}

// StartdOf is the startd of a slot; empty for HTCondor's own.
func StartdOf(slot string) string {
	_, startd, _ := strings.Cut(SlotName(slot), "@")
	return startd
}

// InventoryOf is the file with the inventory ads of a startd.
func (n Node) InventoryOf(startd string) string {
	if startd == "" {
		return n.Inventory
	}
	return strings.TrimSuffix(n.Inventory, ".ad") + "-" + startd + ".ad"
}

// Inventories are the inventory ads of all startds, by their files.
func Inventories(n Node) map[string][]byte {
	out := map[string][]byte{}
	types := slotTypes(n)
	for _, name := range startdNames(n) {
		out[n.InventoryOf(name)] = inventoryAds(n.of(types, name), types)
	}
	return out
}

// of is the part of the node that one startd has.
func (n Node) of(types []slotType, startd string) Node {
	if !n.PerGPU {
		return n
	}
	var used Share
	n.Devices = nil
	for _, st := range types {
		if st.startd == startd {
			n.Devices = append(n.Devices, st.devices...)
			used.CPUs += st.slots() * st.share.CPUs
			used.Memory += gpu.MiB(st.slots()) * st.share.Memory
		}
	}
	n.CPUs, n.Memory = max(used.CPUs, parked.CPUs), max(used.Memory, parked.Memory)
	return n
}

// fingerprint is Startd.Plan.
func fingerprint(n Node, types []slotType, startd string) string {
	var t text
	part := n.of(types, startd)
	t.resources("", part, n.InventoryOf(startd))
	for _, st := range types {
		if st.startd == startd {
			t.layout(st)
		}
	}
	return hash(t.bytes(), inventoryAds(part, types))
}

// hash is to notice a change, not to withstand forgery.
func hash(parts ...[]byte) string {
	h := fnv.New64a()
	for _, p := range parts {
		_, _ = h.Write(p)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// layout is a slot type as Slot.Layout says its slot.
func (st slotType) layout() string {
	return slotLayout(int64(st.number), int64(st.share.CPUs), int64(st.share.Memory), int64(st.ids), int64(st.vram))
}

func slotLayout(slotType, cpus, memory, gpus, vram int64) string {
	return fmt.Sprintf("type %d: %d CPUs, %d MiB, %d GPUs, %d MiB of VRAM", slotType, cpus, memory, gpus, vram)
}

// parked is what a startd has that offers nothing: without any slot type of its
// own it would offer all it finds (seen on 25.14.1).
var parked = Share{CPUs: 1, Memory: 1}

// parkedType keeps the startd of a whole GPU, whose jobs HTCondor's own startd
// runs, so that the list of daemons does not change with a GPU's mode.
func parkedType(startd string) slotType {
	return slotType{title: "No jobs: all that " + daemonName(startd) + " could offer is in other slots.", startd: startd,
		share: parked, start: []string{"false"}, guard: []string{"false"}}
}

// startds makes the GPUs' startds daemons of the condor_master, beside HTCondor's
// own, which keeps the jobs without GPUs and on whole GPUs.
func (t *text) startds(n Node, types []slotType) {
	names := startdNames(n)[1:]
	if len(names) == 0 {
		return
	}
	t.line("")
	t.comment("One startd for each GPU, so that one GPU's slots can change while jobs run on the others.",
		"condor_restart -peaceful -daemon NAME restarts one when its jobs have ended.")
	var daemons []string
	for _, name := range names {
		daemons = append(daemons, daemonName(name))
	}
	t.set("GPUSLOT_STARTDS", "%s", strings.Join(daemons, " "))
	t.set("DAEMON_LIST", "$(DAEMON_LIST) $(GPUSLOT_STARTDS)")
	for _, name := range names {
		t.startd(n, types, name)
	}
}

// startd is what differs for one of them.
func (t *text) startd(n Node, types []slotType, name string) {
	daemon := daemonName(name)
	t.line("")
	t.set(daemon, "$(STARTD)")
	t.set(daemon+"_ARGS", "-f -local-name %s -sock startd_%s", name, name)
	// The condor tools find a daemon by this, the startd writes that.
	t.set(daemon+"_ADDRESS_FILE", "$(LOG)/.startd_address.%s", name)
	t.set(name+".STARTD_ADDRESS_FILE", "$(%s_ADDRESS_FILE)", daemon)
	t.set(name+".STARTD_NAME", "%s", name)
	t.set(name+".STARTD_LOG", "$(LOG)/StartLog.%s", name)
	// Each startd clears its own at its start, and all below it.
	t.set(name+".EXECUTE", "%s/%s", n.Execute, name)
	t.resources(name, n.of(types, name), n.InventoryOf(name))
	t.set(name+".GPUSlotPlan", "%q", fingerprint(n, types, name))
	t.set(name+".STARTD_CRON_GPUSLOT_ARGS", "monitor -follow -startd %s %s", name, n.InventoryOf(name))
	t.set(name+".STARTD_CRON_GPUSLOT_USAGE_ARGS", "usage -follow -startd %s", name)
	for _, st := range types {
		switch st.startd {
		case name:
			t.set(fmt.Sprintf("%s.NUM_SLOTS_TYPE_%d", name, st.number), "%d", st.slots())
			// A starter's local name is its slot type's.
			t.set(fmt.Sprintf("slot_type_%d.STARTER_LOG", st.number), "$(LOG)/StarterLog.%s", name)
		case "":
			t.set(fmt.Sprintf("%s.NUM_SLOTS_TYPE_%d", name, st.number), "0")
		}
	}
}

func uuids(devices []Device) []gpu.UUID {
	var out []gpu.UUID
	for _, d := range devices {
		out = append(out, d.UUID)
	}
	return out
}
