package condor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// What a slot ad says besides START. time() is the evaluating tool's clock.
const (
	open     = "GPUAccept = true\nGPUAcceptTime = time() - 5\nGPUTenant = undefined\n"
	pslot    = "SlotType = \"Partitionable\"\nVRAM = 32256\nGPUs = 8\n"
	dslot    = "SlotType = \"Dynamic\"\nVRAM = 4096\nGPUs = 1\n"
	wholeN   = "SlotType = \"Partitionable\"\nVRAM = 65536\nGPUs = 2\n"
	wholeP   = wholeN + open
	wholeD   = "SlotType = \"Dynamic\"\nVRAM = 0\nGPUs = 2\n"
	elasticP = "SlotType = \"Partitionable\"\nVRAM = 65536\nGPUs = 2\nTotalSlotGPUs = 2\nAvailableGPUs = { [ GPUIndex = 1 ], [ GPUIndex = 2 ] }\n"
	elasticD = "SlotType = \"Dynamic\"\nVRAM = 0\nGPUs = 2\nAssignedGPUs = \"a,b\"\n"
	openTwo  = "GPUWholeOpen = 2\nGPUWholeLeast = 1\n"
	oneJob   = "Owner = \"alice\"\nRequestGPUs = 1\n"
	fourGB   = oneJob + "RequestVRAM = 4096\n"
	twoGPUs  = "Owner = \"alice\"\nRequestGPUs = 2\n"
	cpuOnly  = "Owner = \"alice\"\n"
	cpuSlot  = "SlotType = \"Partitionable\"\nGPUs = 0\nVRAM = 0\n"
	cpuClaim = "SlotType = \"Dynamic\"\nGPUs = 0\nVRAM = 0\n"
	starts   = "GPUSlotStarts = true\nGPUSlotStartsTime = time() - 5\n"
	anyOwner = "Owner = \"bob\"\nRequestGPUs = 1\nRequestVRAM = 4096\n"
)

// START of the rendered slot types, by HTCondor's own evaluation.
func TestRealStart(t *testing.T) {
	h := realHTCondor(t)
	capped := exampleNode(v100s(0), wholeV100S(1))
	capped.Devices[0].LargestRequest = 16384
	withRule := func(rule string) Node { n := capped; n.WithoutRequest = rule; return n }
	refuse, whole := withRule(WithoutRequestRefuse), withRule(WithoutRequestWhole)
	hold, share := withRule(WithoutRequestHold), withRule(WithoutRequestShare)
	only, tenants, follows := examples()["only-whole"], examples()["tenants"], examples()["follows"]
	elastic, none := examples()["elastic"], examples()["none"]
	unsupervised := follows
	unsupervised.Supervise = false
	of := func(tenant string) string { return pslot + strings.Replace(open, "undefined", tenant, 1) }
	const (
		atlas = "x509UserProxyVOName = \"atlas\"\n"
		less  = oneJob + "RequestVRAM = -8\n"
		below = "GPUAbove = 4864\nGPUAboveCpus = 3\nGPUAboveMemory = 11008\n"
		cms   = "AcctGroup = \"cms\"\nx509UserProxyVOName = \"atlas\"\n"
	)
	for _, c := range []struct {
		name      string
		node      Node
		slotType  int
		slot, job string
		want      string
	}{
		{"an open GPU takes a job", refuse, sharedNumbers, pslot + open, fourGB, "true"},
		{"without the agent's word it does not", refuse, sharedNumbers, pslot, fourGB, "false"},
		{"nor closed", refuse, sharedNumbers, pslot + strings.Replace(open, "true", "false", 1), fourGB, "false"},
		{"nor with an old stamp", refuse, sharedNumbers, pslot + strings.Replace(open, "5", "61", 1), fourGB, "false"},
		{"nor without a stamp", refuse, sharedNumbers, pslot + "GPUAccept = true\n", fourGB, "undefined"},
		{"an old copy of an ad that was fresh", refuse, sharedNumbers, pslot + strings.Replace(open, "5", "200", 1) + "LastHeardFrom = time() - 190\n", fourGB, "true"},
		{"a copy of an ad that was stale", refuse, sharedNumbers, pslot + strings.Replace(open, "5", "200", 1) + "LastHeardFrom = time() - 100\n", fourGB, "false"},
		{"a running claim outlives the stamp", refuse, sharedNumbers, dslot + strings.Replace(open, "5", "500", 1), fourGB, "true"},
		{"a claim is not reused on a closed GPU", refuse, sharedNumbers, dslot + "GPUAccept = false\n", fourGB, "false"},
		{"nor for another size", refuse, sharedNumbers, dslot + open, oneJob + "RequestVRAM = 2048\n", "false"},
		{"nor for no size", refuse, sharedNumbers, dslot + open, oneJob, "false"},
		{"two GPUs are not on a shared one", refuse, sharedNumbers, pslot + open, twoGPUs, "false"},
		{"a job without GPUs is not either", refuse, sharedNumbers, pslot + open, cpuOnly, "false"},
		{"a fraction stays away", refuse, sharedNumbers, pslot + open, oneJob + "RequestVRAM = 4000.5\n", "false"},
		{"a whole number may be written as a real", refuse, sharedNumbers, pslot + open, oneJob + "RequestVRAM = 4000.0\n", "true"},
		{"larger than the largest request", refuse, sharedNumbers, pslot + open, oneJob + "RequestVRAM = 16385\n", "false"},
		{"as large as the largest request", refuse, sharedNumbers, pslot + open, oneJob + "RequestVRAM = 16384\n", "true"},
		{"no request waits for another node", refuse, sharedNumbers, pslot + open, oneJob, "false"},
		{"nor does a request of nothing come in", refuse, sharedNumbers, pslot + open, oneJob + "RequestVRAM = 0\n", "false"},
		{"nor one of less than nothing", refuse, sharedNumbers, pslot + open, less, "false"},
		{"also where the hook holds what asks for nothing", hold, sharedNumbers, pslot + open, less, "false"},
		{"or where that gets a share", share, sharedNumbers, pslot + open, less, "false"},
		{"a fraction less than nothing", share, sharedNumbers, pslot + open, oneJob + "RequestVRAM = -0.5\n", "false"},
		{"a slot of less than nothing", share, sharedNumbers, strings.Replace(dslot, "4096", "-8", 1) + open, less, "false"},
		{"on a MIG device", follows, instanceNumber, pslot + open, less, "false"},
		{"on two whole GPUs", refuse, wholeNumber, wholeP, twoGPUs + "RequestVRAM = -8\n", "false"},
		{"on a whole GPU where all are", only, wholeNumber, wholeP, less, "false"},
		{"on elastic GPUs", elastic, elasticNumber, elasticP + open + openTwo, twoGPUs + "RequestVRAM = -8\n", "false"},
		{"without a GPU", refuse, cpuOnlyNumber, cpuSlot, cpuOnly + "RequestVRAM = -8\n", "false"},
		{"on a node without GPUs", none, cpuOnlyNumber, cpuSlot, cpuOnly + "RequestVRAM = -8\n", "false"},
		{"whole GPUs take it", whole, sharedNumbers, pslot + open, oneJob, "false"},
		{"it comes in for the hook to hold it", hold, sharedNumbers, pslot + open, oneJob, "true"},
		{"or for a share", share, sharedNumbers, pslot + open, oneJob, "true"},
		{"a slot with a share takes the next such job", share, sharedNumbers, strings.Replace(dslot, "4096", "0", 1) + open, oneJob, "true"},
		{"a MIG device that jobs have whole takes it", follows, instanceNumber, pslot + open, oneJob, "true"},
		{"the tenant's own next job", refuse, sharedNumbers, pslot + strings.Replace(open, "undefined", `"alice"`, 1), fourGB, "true"},
		{"another account's job", refuse, sharedNumbers, pslot + strings.Replace(open, "undefined", `"alice"`, 1), anyOwner, "false"},
		{"accounts are not compared without case", refuse, sharedNumbers, pslot + strings.Replace(open, "undefined", `"Alice"`, 1), fourGB, "false"},

		{"a MIG device takes what fits", follows, instanceNumber, pslot + open, fourGB, "true"},
		{"but not what a smaller one serves, while larger jobs wait", follows, instanceNumber, pslot + open + "GPUAbove = 4864\n", fourGB, "false"},
		{"a larger job then", follows, instanceNumber, pslot + open + "GPUAbove = 4864\n", oneJob + "RequestVRAM = 5120\n", "true"},
		{"one with more CPUs", follows, instanceNumber, pslot + open + below, fourGB + "RequestCpus = 4\nRequestMemory = 1024\n", "true"},
		{"or more memory", follows, instanceNumber, pslot + open + below, fourGB + "RequestCpus = 1\nRequestMemory = 11009\n", "true"},
		{"not one with as much", follows, instanceNumber, pslot + open + below, fourGB + "RequestCpus = 3\nRequestMemory = 11008\n", "false"},
		{"and one that says itself what it wants", follows, instanceNumber, pslot + open + "GPUAbove = 4864\nAvailableGPUs = { [ ComputeUnits = 42 ] }\n", fourGB + "RequireGPUs = ComputeUnits > 30\n", "true"},
		{"of this device", follows, instanceNumber, pslot + open + "GPUAbove = 4864\nAvailableGPUs = { [ ComputeUnits = 42 ] }\n", fourGB + "RequireGPUs = ComputeUnits > 50\n", "false"},
		{"a job cannot lift that itself", follows, instanceNumber, pslot + open + "GPUAbove = 4864\n", fourGB + "GPUAbove = 0\n", "false"},

		{"an idle GPU takes any VO", tenants, sharedNumbers, pslot + open, fourGB + atlas, "true"},
		{"and a job without one", tenants, sharedNumbers, pslot + open, fourGB, "true"},
		{"the VO that holds it", tenants, sharedNumbers, of(`"atlas"`), fourGB + atlas, "true"},
		{"of whatever account", tenants, sharedNumbers, of(`"atlas"`), anyOwner + atlas, "true"},
		{"another VO", tenants, sharedNumbers, of(`"lhcb"`), fourGB + atlas, "false"},
		{"a job without a VO is not the VO's", tenants, sharedNumbers, of(`"atlas"`), fourGB, "false"},
		{"nor is an owner of that name", tenants, sharedNumbers, of(`"alice"`), fourGB, "false"},
		{"it is its owner's", tenants, sharedNumbers, of(`"owner:alice"`), fourGB, "true"},
		{"no other owner's", tenants, sharedNumbers, of(`"owner:alice"`), anyOwner, "false"},
		{"an empty VO is none", tenants, sharedNumbers, of(`"owner:alice"`), fourGB + "x509UserProxyVOName = \"\"\n", "true"},
		{"a number is no VO", tenants, sharedNumbers, of(`"owner:alice"`), fourGB + "x509UserProxyVOName = 7\n", "true"},
		{"the group that holds it", tenants, sharedNumbers + 1, of(`"cms"`), fourGB + cms, "true"},
		{"its VO does not matter there", tenants, sharedNumbers + 1, of(`"atlas"`), fourGB + cms, "false"},
		{"the account on the third GPU", tenants, sharedNumbers + 2, of(`"alice"`), fourGB + cms, "true"},
		{"as many threads as a job may have", tenants, sharedNumbers, pslot + open, fourGB + "RequestGPUThreads = 12.5\n", "true"},
		{"more than it may have", tenants, sharedNumbers, pslot + open, fourGB + "RequestGPUThreads = 13\n", "false"},
		{"all it could have", tenants, sharedNumbers, pslot + open, fourGB + "RequestGPUThreads = 100\n", "false"},
		{"where nothing bounds them", tenants, sharedNumbers + 1, pslot + open, fourGB + "RequestGPUThreads = 100\n", "true"},
		{"no percentage comes in for the hook to hold it", tenants, sharedNumbers, pslot + open, fourGB + "RequestGPUThreads = 101\n", "true"},
		{"nor does a word", tenants, sharedNumbers, pslot + open, fourGB + "RequestGPUThreads = \"half\"\n", "true"},

		{"two whole GPUs", refuse, wholeNumber, wholeP, twoGPUs, "true"},
		{"one GPU and no VRAM", refuse, wholeNumber, wholeP, oneJob, "undefined"},
		{"one GPU and no VRAM, as the site wants", whole, wholeNumber, wholeP, oneJob, "true"},
		{"what fits a share is not on a whole GPU", refuse, wholeNumber, wholeP, fourGB, "false"},
		{"what fits no share is", refuse, wholeNumber, wholeP, oneJob + "RequestVRAM = 20000\n", "true"},
		{"one GPU has not the VRAM of two", refuse, wholeNumber, wholeP, oneJob + "RequestVRAM = 40000\n", "false"},
		{"two have", refuse, wholeNumber, wholeP, twoGPUs + "RequestVRAM = 40000\n", "true"},
		{"no GPU, no whole GPU", whole, wholeNumber, wholeP, cpuOnly, "false"},
		{"a claim of two is not reused for one", whole, wholeNumber, wholeD, oneJob, "false"},
		{"a claim of two is for two", whole, wholeNumber, wholeD, twoGPUs, "true"},
		{"where all are whole any GPU job may come", only, wholeNumber, wholeP, oneJob, "true"},
		{"whole jobs get what is open of elastic GPUs", elastic, elasticNumber, elasticP + open + openTwo, twoGPUs, "true"},
		{"not what is not open", elastic, elasticNumber, elasticP + open + "GPUWholeOpen = 1\nGPUWholeLeast = 1\n", twoGPUs, "false"},
		{"nor what is in use", elastic, elasticNumber, strings.Replace(elasticP, "\nGPUs = 2", "\nGPUs = 1", 1) + open + openTwo, twoGPUs, "false"},
		{"nor before the agent says so", elastic, elasticNumber, elasticP, twoGPUs, "false"},
		{"nor with an old stamp", elastic, elasticNumber, elasticP + strings.Replace(open, "5", "61", 1) + openTwo, twoGPUs, "false"},
		{"a job that a share serves does not go there", elastic, elasticNumber, elasticP + open + openTwo, fourGB, "false"},
		{"one that needs more VRAM than any share does", elastic, elasticNumber, elasticP + open + openTwo, oneJob + "RequestVRAM = 32768\n", "true"},
		{"unless a larger one is due", elastic, elasticNumber, elasticP + open + "GPUWholeOpen = 2\nGPUWholeLeast = 2\n", oneJob + "RequestVRAM = 32768\n", "false"},
		{"more CPUs than go with its GPUs", elastic, elasticNumber, elasticP + open + openTwo, twoGPUs + "RequestCpus = 23\n", "false"},
		{"a job that would get others than the first", elastic, elasticNumber, elasticP + open + openTwo, twoGPUs + "RequireGPUs = GPUIndex == 1\n", "false"},
		{"a claim is reused where the GPUs are open", elastic, elasticNumber, elasticD + "GPUWholeOpenGPUs = \"a, b, c\"\n", twoGPUs, "true"},
		{"and not where one went back", elastic, elasticNumber, elasticD + "GPUWholeOpenGPUs = \"a, c\"\n", twoGPUs, "false"},
		{"a small request", elastic, sharedNumbers, pslot + open, fourGB, "true"},
		{"is kept away where a large one is due", elastic, sharedNumbers, pslot + open + "GPUVRAMLeast = 20480\n", fourGB, "false"},
		{"which is let in", elastic, sharedNumbers, pslot + open + "GPUVRAMLeast = 20480\n", oneJob + "RequestVRAM = 20480\n", "true"},
		{"a whole GPU without the agent's word takes none", refuse, wholeNumber, wholeN, twoGPUs, "false"},
		{"nor with an old one", refuse, wholeNumber, wholeN + strings.Replace(open, "5", "61", 1), twoGPUs, "false"},
		{"nor while a closed one is free", refuse, wholeNumber, wholeN + closedWhole(1) + freeGPUs(1, 2), twoGPUs, "false"},
		{"one that is in use is in nobody's way", refuse, wholeNumber, wholeN + closedWhole(1) + freeGPUs(2), twoGPUs, "true"},
		{"a claim is not reused on a closed one", refuse, wholeNumber, wholeD + closedWhole(1) + freeGPUs(1, 2), twoGPUs, "false"},

		{"a job without GPUs", refuse, cpuOnlyNumber, cpuSlot, cpuOnly, "true"},
		{"one that says so", refuse, cpuOnlyNumber, cpuSlot, cpuOnly + "RequestGPUs = 0\nRequestVRAM = 0\n", "true"},
		{"a job with GPUs", refuse, cpuOnlyNumber, cpuSlot, fourGB, "false"},
		{"beside MIG devices while gpuslotd lets jobs start", follows, cpuOnlyNumber, cpuSlot + starts, cpuOnly, "true"},
		{"not when it does not", follows, cpuOnlyNumber, cpuSlot + strings.Replace(starts, "true", "false", 1), cpuOnly, "false"},
		{"nor when nobody has said so for long", follows, cpuOnlyNumber, cpuSlot + strings.Replace(starts, "5", "61", 1), cpuOnly, "false"},
		{"or at all", follows, cpuOnlyNumber, cpuSlot, cpuOnly, "false"},
		{"or when", follows, cpuOnlyNumber, cpuSlot + "GPUSlotStarts = true\n", cpuOnly, "undefined"},
		{"an old copy of such an ad that was fresh", follows, cpuOnlyNumber, cpuSlot + strings.Replace(starts, "5", "200", 1) + "LastHeardFrom = time() - 190\n", cpuOnly, "true"},
		{"a job cannot say so itself", follows, cpuOnlyNumber, cpuSlot, cpuOnly + starts, "false"},
		{"a claim without a GPU outlives the stamp", follows, cpuOnlyNumber, cpuClaim + strings.Replace(starts, "5", "500", 1), cpuOnly, "true"},
		{"and is not reused when jobs do not start", follows, cpuOnlyNumber, cpuClaim + "GPUSlotStarts = false\n", cpuOnly, "false"},
		{"a site without supervise", unsupervised, cpuOnlyNumber, cpuSlot, cpuOnly, "true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.write(t, "config.d/50-gpuslot.conf", executionPoint(t, c.node))
			start := h.value(t, fmt.Sprintf("SLOT_TYPE_%d_START", c.slotType))
			if got := h.evaluate(t, "Name = \"s\"\n"+c.slot+"Start = "+start+"\n", c.job, "Start"); got != c.want {
				t.Errorf("START is %s, want %s:\n%s", got, c.want, start)
			}
		})
	}
}

// No START takes a request_vram that is no number of MiB from nothing up to what the slot
// may give, nor a request_gpus that is no number from nothing on.
func TestRealStartOddRequests(t *testing.T) {
	h := realHTCondor(t)
	share := exampleNode(v100s(0), wholeV100S(1))
	share.WithoutRequest = WithoutRequestShare
	follows := examples()["follows"]
	follows.WithoutRequest = WithoutRequestShare
	low := []string{
		"-1", "-100000", "-0.5", `real("-INF")`, "-9223372036854775807 - 1", `"4096"`, `""`, "error", "{}", "[]", "{4096}",
		`real("NaN")`,
	}
	vram := slices.Concat(low, []string{`real("INF")`, "1e300", "9223372036854775807"})
	gpus := []string{`"1"`, "-1", "error", "{1}", `real("NaN")`}
	for _, c := range []struct {
		name     string
		node     Node
		slotType int
		slot     string
		right    string // RequestGPUs that such a slot takes
		vram     []string
	}{
		{"a share", share, sharedNumbers, pslot + open, "1", vram},
		{"a slot that was made", share, sharedNumbers, strings.Replace(dslot, "4096", "-1", 1) + open, "1", vram},
		{"a MIG device", follows, instanceNumber, pslot + open, "1", vram},
		{"whole GPUs", share, wholeNumber, wholeP, "2", vram},
		{"only whole GPUs", examples()["only-whole"], wholeNumber, wholeP, "1", vram},
		{"elastic GPUs", examples()["elastic"], elasticNumber, elasticP + open + openTwo, "2", vram},
		// HTCondor's own rules keep away what is more than its VRAM, which is 0.
		{"no GPU", share, cpuOnlyNumber, cpuSlot, "0", low},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.write(t, "config.d/50-gpuslot.conf", executionPoint(t, c.node))
			start := h.value(t, fmt.Sprintf("SLOT_TYPE_%d_START", c.slotType))
			try := func(gpus, vram string) {
				job := fmt.Sprintf("Owner = \"alice\"\nRequestGPUs = %s\nRequestVRAM = %s\n", gpus, vram)
				if got := h.evaluate(t, "Name = \"s\"\n"+c.slot+"Start = "+start+"\n", job, "Start"); got == "true" {
					t.Errorf("START takes RequestGPUs = %s, RequestVRAM = %s:\n%s", gpus, vram, start)
				}
			}
			for _, vram := range c.vram {
				try(c.right, vram)
			}
			for _, gpus := range gpus {
				try(gpus, "4096")
			}
		})
	}
}

// While a drain goes on with a START of its own, the guard keeps away all the same what
// gpuslot does not want (slotType.guard).
func TestRealGuard(t *testing.T) {
	h := realHTCondor(t)
	follows := examples()["follows"]
	for _, c := range []struct {
		name      string
		slotType  int
		slot, job string
		want      string
	}{
		{"a job on a MIG device", instanceNumber, pslot + open, fourGB, "true"},
		{"one that asks for less than nothing", instanceNumber, pslot + open, oneJob + "RequestVRAM = -8\n", "false"},
		{"one on a closed device", instanceNumber, pslot, fourGB, "false"},
		{"a job without a GPU", cpuOnlyNumber, cpuSlot + starts, cpuOnly, "true"},
		{"while gpuslotd does not let it start", cpuOnlyNumber, cpuSlot, cpuOnly, "false"},
		{"one that asks for less than nothing there", cpuOnlyNumber, cpuSlot + starts, cpuOnly + "RequestVRAM = -8\n", "false"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.write(t, "config.d/50-gpuslot.conf", executionPoint(t, follows))
			guard := h.value(t, fmt.Sprintf("SLOT_TYPE_%d_%s", c.slotType, guardClause))
			if got := h.evaluate(t, "Name = \"s\"\n"+c.slot+"Guard = "+guard+"\n", c.job, "Guard"); got != c.want {
				t.Errorf("the guard is %s, want %s:\n%s", got, c.want, guard)
			}
		})
	}
}

const badThreads = "RequestGPUThreads must be a percentage of a GPU's multiprocessors from 0.1 to 100, without quotes, such as +RequestGPUThreads = 30"

// What the access point makes of a job, by HTCondor's own transforms.
func TestRealAccessPoint(t *testing.T) {
	h := realHTCondor(t)
	share := exampleNode(v100s(0))
	share.WithoutRequest = WithoutRequestShare
	refuse := exampleNode(v100s(0))
	withWhole := exampleNode(v100s(0), wholeV100S(1))
	withWhole.WithoutRequest = WithoutRequestWhole
	odd := exampleNode(v100s(0)) // a largest request that is no multiple of the quantum
	odd.Devices[0].LargestRequest = gpu.MiB(31000)
	for _, c := range []struct {
		name, job string
		node      Node
		want      string // RequestVRAM
		refused   string // the sentence; empty if it may be submitted
	}{
		{"a share by default", oneJob, share, "4096", ""},
		{"what the card must have", oneJob + "GPUsMinMemory = 6144\n", share, "6144", ""},
		{"what the card must have, rounded", oneJob + "GPUsMinMemory = 6000\n", share, "6144", ""},
		{"no default for several GPUs", twoGPUs, share, "undefined", ""},
		{"no default elsewhere", oneJob, withWhole, "undefined", ""},
		{"what the card must have, where nothing is given without a request", oneJob + "GPUsMinMemory = 6000\n", refuse, "6144", ""},
		{"no default there", oneJob, refuse, "undefined", ""},
		{"a whole GPU of a large card", oneJob + "GPUsMinMemory = 16384\n", withWhole, "undefined", ""},
		{"as much as the card has", oneJob + "GPUsMinMemory = 32768\n", share, "32256", ""},
		{"more than any card has", oneJob + "GPUsMinMemory = 81920\n", share, "81920",
			"request_vram = 81920 MiB, from gpus_minimum_memory, does not fit any GPU of this pool: the largest budget is 32256 MiB (Tesla V100S-PCIE-32GB); ask for less"},
		{"up to the quantum", oneJob + "RequestVRAM = 4000\n", share, "4096", ""},
		{"up to the minimum", oneJob + "RequestVRAM = 100\n", share, "1536", ""},
		{"a fraction", oneJob + "RequestVRAM = 4096.5\n", share, "4608", ""},
		{"an expression", oneJob + "RequestVRAM = 1000 * 2\n", share, "2048", ""},
		{"not beyond the largest", oneJob + "RequestVRAM = 30900\n", odd, "31000", ""},
		{"for a whole GPU", oneJob + "RequestVRAM = 32700\n", withWhole, "32768", ""},
		{"for two whole GPUs", twoGPUs + "RequestVRAM = 60000.5\n", withWhole, "60001", ""},
		{"without GPUs", cpuOnly + "RequestVRAM = 5000\n", share, "0", ""},
		{"without anything", cpuOnly, share, "undefined", ""},
		{"in GiB", oneJob + "RequestVRAM = 4\n", share, "4", "request_vram is in MiB; did you mean 4096?"},
		{"in GiB with a fraction", oneJob + "RequestVRAM = 4.5\n", share, "4.5", "request_vram is in MiB; did you mean 4608?"},
		{"a percentage of multiprocessors", fourGB + "RequestGPUThreads = 12.5\n", share, "4096", ""},
		{"no percentage", fourGB + "RequestGPUThreads = 101\n", share, "4096", badThreads},
		{"no multiprocessors", fourGB + "RequestGPUThreads = 0\n", share, "4096", badThreads},
		{"half of them in words", fourGB + "RequestGPUThreads = \"half\"\n", share, "4096", badThreads},
		{"nothing", oneJob + "RequestVRAM = 0\n", share, "0", "request_vram is in MiB and must be at least 1536"},
		{"less than nothing", oneJob + "RequestVRAM = -8\n", share, "-8", "request_vram is in MiB and must be at least 1536"},
		{"a word", oneJob + "RequestVRAM = \"4 GB\"\n", share, "4 GB", "request_vram must be a number of MiB, such as request_vram = 4096"},
		{"too much", oneJob + "RequestVRAM = 40000\n", share, "40000",
			"request_vram = 40000 MiB does not fit any GPU of this pool: the largest budget is 32256 MiB (Tesla V100S-PCIE-32GB); ask for less"},
		{"too much, with whole GPUs", oneJob + "RequestVRAM = 40000\n", withWhole, "40000",
			"request_vram = 40000 MiB does not fit any GPU of this pool: the largest budget is 32768 MiB (Tesla V100S-PCIE-32GB); ask for less, or leave request_vram out for a whole GPU"},
		{"too much for two", twoGPUs + "RequestVRAM = 80000\n", withWhole, "80000",
			"request_vram = 80000 MiB on 2 GPUs does not fit any GPU of this pool: the largest budget is 32768 MiB (Tesla V100S-PCIE-32GB); ask for less, or leave request_vram out for a whole GPU"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, err := AccessPoint(PoolOf(c.node))
			if err != nil {
				t.Fatal(err)
			}
			h.write(t, "config.d/60-gpuslot.conf", string(text))
			names := strings.Join(strings.Fields(h.value(t, "JOB_TRANSFORM_NAMES")), ",")
			job := h.write(t, "job.ad", "ClusterId = 1\nProcId = 0\n"+c.job)
			ad := transformed(h.run(t, "condor_transform_ads", "-jobtransforms", names, job))
			if got := h.evaluate(t, ad, "", "RequestVRAM"); got != c.want {
				t.Errorf("RequestVRAM is %s, want %s", got, c.want)
			}
			refused := ""
			for _, name := range strings.Fields(h.value(t, "SUBMIT_REQUIREMENT_NAMES")) {
				if h.evaluate(t, ad, "", h.value(t, "SUBMIT_REQUIREMENT_"+name)) != "true" {
					refused = h.evaluate(t, ad, "", h.value(t, "SUBMIT_REQUIREMENT_"+name+"_REASON"))
					break // the schedd stops at the first as well
				}
			}
			if refused != c.refused {
				t.Errorf("refused with %q, want %q", refused, c.refused)
			}
		})
	}
}

// transformed is the ad in the output of condor_transform_ads, which also
// comments on what it does.
func transformed(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if strings.Contains(line, " = ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// closedWhole is what the monitor says where one whole GPU is closed.
func closedWhole(n int) string {
	ads := string(MonitorAds([]GPUState{
		{UUID: uuid(n), Whole: true, Reason: "closed by operator", ClosedBy: []string{"operator"}},
		{UUID: uuid(n + 1), Whole: true, Accept: true},
	}))
	_, said, _ := strings.Cut(ads, "\n")
	said, _, _ = strings.Cut(said, "\n- ")
	return strings.Replace(said, "GPUAcceptTime = ", "GPUAcceptTime = time() - 5 + 0 * ", 1) + "\n"
}

// freeGPUs is the list of a slot's GPUs that no job has.
func freeGPUs(numbers ...int) string {
	var names, ads []string
	for _, n := range numbers {
		names = append(names, fmt.Sprintf("GPUs_%d", n))
		ads = append(ads, fmt.Sprintf("GPUs_%d = [ DeviceUuid = %q; id = %q ]\n", n, uuid(n).Bare(), uuid(n)))
	}
	return strings.Join(ads, "") + "AvailableGPUs = { " + strings.Join(names, ", ") + " }\n"
}
