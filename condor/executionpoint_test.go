package condor

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

func TestExamples(t *testing.T) {
	for name, n := range examples() {
		t.Run(name, func(t *testing.T) {
			got, err := ExecutionPoint(n)
			if err != nil {
				t.Fatal(err)
			}
			again, _ := ExecutionPoint(n)
			if !bytes.Equal(got, again) {
				t.Error("equal nodes give unequal bytes")
			}
			golden(t, name+".conf", got)
			golden(t, name+".ad", InventoryAds(n))
			ap, err := AccessPoint(PoolOf(n))
			if name == "none" {
				if err == nil {
					t.Error("an access point is rendered for a pool without GPUs")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".ap.conf", ap)
		})
	}
}

// TestLeast: a node with one device of each kind, and one with one device alone, have all that many devices bring.
func TestLeast(t *testing.T) {
	each := exampleNode(elasticV100S(0), wholeV100S(1), instance(2, "1g.5gb", 4864, 14))
	each.CPUOnly, each.Supervise, each.WithoutRequest = Share{CPUs: 1, Memory: 1}, true, WithoutRequestShare
	each.CPUs, each.Growth = 26, Growth{Retries: 1, Factor: 2, ExitCodes: []int{1}, LimitPercent: 1, EarlyPercent: 1, OverBudget: 1, AtLimit: 2, NearLimit: 3}
	follows := exampleNode(instance(2, "1g.5gb", 4864, 1))
	follows.Repartition = "auto"
	for name, n := range map[string]Node{"least-each": each, "least-shared": exampleNode(v100s(0)),
		"least-whole": exampleNode(wholeV100S(0)), "least-mig": follows} {
		golden(t, name+".conf", []byte(executionPoint(t, n)))
		golden(t, name+".ad", InventoryAds(n))
	}
}

// TestShort: an administrator can read the configuration of a large node. shared has eight
// GPUs, sevens 112 MIG devices at places with a UUID of their own.
func TestShort(t *testing.T) {
	for name, most := range map[string]struct {
		of           string
		lines, bytes int
	}{"shared": {"8 shared GPUs", 120, 10_000}, "sevens": {"16 H200 as 7 MIG devices each", 200, 20_000}} {
		text, err := ExecutionPoint(examples()[name])
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Count(text, []byte("\n"))
		t.Logf("figure: HTCondor's configuration of %s: %d lines (at most %d), %d bytes (at most %d)", most.of, lines, most.lines, len(text), most.bytes)
		if lines > most.lines || len(text) > most.bytes {
			t.Errorf("%s has %d lines and %d bytes", name, lines, len(text))
		}
		for _, d := range examples()[name].Devices {
			if !bytes.Contains(text, []byte(d.UUID)) || !bytes.Contains(text, []byte(d.There)) {
				t.Errorf("%s does not name %s and %s", name, d.UUID, d.There)
			}
		}
	}
}

// TestMIGDevicesChange: another MIG device at a place changes a comment, which no startd
// has to read again.
func TestMIGDevicesChange(t *testing.T) {
	n := examples()["sevens"]
	was, err := ExecutionPoint(n)
	if err != nil {
		t.Fatal(err)
	}
	n.Devices[3].There = ""
	now, err := ExecutionPoint(n)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(was, now) || ConfigOf(was) != ConfigOf(now) {
		t.Errorf("the text stays: %t; the configuration changes from %s to %s", bytes.Equal(was, now), ConfigOf(was), ConfigOf(now))
	}
}

// TestSlotTypesOfADifferentKind: devices share a slot type only if their slots are equal, and
// each device's property names its type.
func TestSlotTypesOfADifferentKind(t *testing.T) {
	n := exampleNode(v100s(0), v100s(1), v100s(2))
	n.Devices[1].Share.CPUs--
	numbers := make([]string, 0, 3)
	for _, d := range n.Devices {
		number, _ := SlotTypeOf(n, d.UUID)
		numbers = append(numbers, fmt.Sprintf("GPUSlotType=%d;", number))
	}
	if numbers[0] != numbers[2] || numbers[0] == numbers[1] {
		t.Errorf("types %v", numbers)
	}
	ads := string(InventoryAds(n))
	for i, want := range numbers {
		_, rest, _ := strings.Cut(ads, fmt.Sprintf("\nGPU_%d=", i))
		if line, _, _ := strings.Cut(rest, "\n"); !strings.Contains(line, want) {
			t.Errorf("GPU %d has no %s: %s", i, want, line)
		}
	}
	if layout := Startds(n)[0].Layout; len(layout) != 4 {
		t.Errorf("the slots of three GPUs and of none: %v", layout)
	}
}

// TestWithoutMPS: a GPU without a control daemon has a slot type of its own, whose jobs get no pipe
// directory.
func TestWithoutMPS(t *testing.T) {
	sliced := v100s(1)
	sliced.WithoutMPS = true
	n := exampleNode(v100s(0), sliced)
	n.Supervise = true
	text, err := ExecutionPoint(n)
	if err != nil {
		t.Fatal(err)
	}
	own, ok := SlotTypeOf(n, sliced.UUID)
	if other, _ := SlotTypeOf(n, uuid(0)); !ok || own == other {
		t.Fatalf("slot types %d and %d", own, other)
	}
	for line, want := range map[string]bool{
		fmt.Sprintf("slot_type_%d.ENVIRONMENT_FOR_AssignedGPUs", own):                      false,
		fmt.Sprintf("slot_type_%d.ENVIRONMENT_FOR_AssignedGPUs", own-1):                    true,
		fmt.Sprintf("slot_type_%d.USER_JOB_WRAPPER = /usr/libexec/gpuslot/supervise", own): true,
		fmt.Sprintf("slot_type_%d.STARTER_JOB_HOOK_KEYWORD = GPUSLOT", own):                true,
		"\nDOCKER =\n": true,
	} {
		if got := strings.Contains(string(text), line); got != want {
			t.Errorf("%s: %t", line, got)
		}
	}
}

// TestConstraints: a comma would end the constraint on a slot's GPUs, and the slot would have none.
func TestConstraints(t *testing.T) {
	for name, n := range examples() {
		for _, st := range slotTypes(n) {
			if strings.Contains(st.among, ",") || (st.among == "") != (st.ids == 0) {
				t.Errorf("%s: slot type %d has %d GPUs with %q", name, st.number, st.ids, st.among)
			}
		}
	}
}

// TestSupervisedTypes: on a node with MIG devices every slot type has the wrapper, so
// that jobs of all kinds ask before they start; elsewhere those of shared GPUs alone.
func TestSupervisedTypes(t *testing.T) {
	for name, all := range map[string]bool{"shared": false, "mixed": false, "mig": true, "follows": true} {
		n := examples()[name]
		n.Supervise = true
		text, err := ExecutionPoint(n)
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range slotTypes(n) {
			wrapper := fmt.Sprintf("\nslot_type_%d.USER_JOB_WRAPPER = %s/supervise\n", st.number, n.Libexec)
			shared := !st.alone && !st.whole && (st.single || st.elastic)
			if got, want := strings.Contains(string(text), wrapper), all || shared; got != want {
				t.Errorf("%s: slot type %d (%s) has the wrapper: %t, want %t", name, st.number, st.title, got, want)
			}
		}
	}
}

// TestDividedWithoutDevices: where the divided GPU is not offered now, jobs without a GPU ask before they start, and
// HTCondor hears whether they would.
func TestDividedWithoutDevices(t *testing.T) {
	n := exampleNode()
	n.Supervise, n.CPUOnly = true, Share{CPUs: 8, Memory: 8192}
	for _, divided := range []bool{false, true} {
		n.Divided = divided
		text, err := ExecutionPoint(n)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{fmt.Sprintf("slot_type_%d.USER_JOB_WRAPPER = ", cpuOnlyNumber), startsMacro + " = ", "_GPUSLOT_ARGS = monitor -follow -starts "} {
			if strings.Contains(string(text), part) != divided {
				t.Errorf("divided %t: %q\n%s", divided, part, text)
			}
		}
	}
	n.CPUOnly = Share{}
	if text := executionPoint(t, n); strings.Contains(text, " -starts ") {
		t.Errorf("without a slot for such jobs:\n%s", text)
	}
}

// The fingerprint changes with what a running startd does not read again, and
// with nothing else.
func TestFingerprint(t *testing.T) {
	base := func() Node { return exampleNode(v100s(0), v100s(1), wholeV100S(2)) }
	for name, change := range map[string]func(*Node){
		"shares":      func(n *Node) { n.Devices[0].Shares = 7 },
		"pool":        func(n *Node) { n.Devices[0].Pool -= 512; n.Devices[0].LargestRequest -= 512 },
		"CPUs":        func(n *Node) { n.Devices[1].Share.CPUs-- },
		"memory":      func(n *Node) { n.Devices[1].Share.Memory-- },
		"whole":       func(n *Node) { n.Devices[1].Shared = false },
		"a GPU less":  func(n *Node) { n.Devices = n.Devices[:2] },
		"a card swap": func(n *Node) { n.Devices[0].UUID = uuid(9) },
		"CPU-only":    func(n *Node) { n.CPUOnly.CPUs-- },
		"node":        func(n *Node) { n.CPUs++ },
		"properties":  func(n *Node) { n.Devices[0].Memory++ },
		"driver":      func(n *Node) { n.CUDA = "12.5" },
	} {
		n := base()
		if change(&n); Startds(n)[0].Plan == Startds(base())[0].Plan {
			t.Errorf("%s: the fingerprint stays", name)
		}
	}
	for name, change := range map[string]func(*Node){
		"version":         func(n *Node) { n.Version = "0.2.0" },
		"largest request": func(n *Node) { n.Devices[0].LargestRequest, n.Devices[1].LargestRequest = 16384, 16384 },
		"without request": func(n *Node) { n.WithoutRequest = WithoutRequestWhole },
		"absent":          func(n *Node) { n.Absent = []gpu.UUID{uuid(7)} },
		"pipe root":       func(n *Node) { n.PipeRoot = "/run/other" },
	} {
		n := base()
		if change(&n); Startds(n)[0].Plan != Startds(base())[0].Plan {
			t.Errorf("%s: the fingerprint changes", name)
		}
		got, err := ExecutionPoint(n)
		if err != nil {
			t.Fatal(err)
		}
		if was, _ := ExecutionPoint(base()); bytes.Equal(got, was) {
			t.Errorf("%s: the configuration does not change", name)
		}
	}
}

func TestExecutionPointRefuses(t *testing.T) {
	for want, change := range map[string]func(*Node){
		"is there twice":            func(n *Node) { n.Devices[1].UUID = uuid(0) },
		"does not start with GPU-":  func(n *Node) { n.Devices[0].UUID = "0" },
		"NVIDIA's spelling":         func(n *Node) { n.Devices[0].UUID = "GPU-0000000A-5be4-11f1-9c2d-0242ac120002" },
		"the slots have 107 CPUs":   func(n *Node) { n.Devices[0].Share.CPUs = 88 },
		"its slot has 0 CPUs":       func(n *Node) { n.Devices[0].Share.CPUs = 0 },
		"its pool is 0 MiB":         func(n *Node) { n.Devices[0].Pool = 0 },
		"shared by 0 jobs":          func(n *Node) { n.Devices[0].Shares = 0 },
		"its largest request is":    func(n *Node) { n.Devices[0].LargestRequest = 40000 },
		"without_request is \"\"":   func(n *Node) { n.WithoutRequest = "" },
		"inventory: path \"\"":      func(n *Node) { n.Inventory = "" },
		"libexec: path":             func(n *Node) { n.Libexec = "/usr/lib exec" },
		"pipe root: path":           func(n *Node) { n.PipeRoot = "/run/$(SITE)" },
		"the slot without GPUs has": func(n *Node) { n.CPUOnly.Memory = 0 },
		"early percentage 101":      func(n *Node) { n.Growth.EarlyPercent = 101 },
		"the node 0 CPUs":           func(n *Node) { n.CPUs, n.Devices, n.CPUOnly = 0, nil, Share{} },
		"CPUs and 0 MiB":            func(n *Node) { n.Memory, n.Devices, n.CPUOnly = 0, nil, Share{} },
	} {
		n := exampleNode(v100s(0), v100s(1))
		change(&n)
		_, err := ExecutionPoint(n)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

// TestExecutionPointBounds: the least and the most that a node may have are accepted.
func TestExecutionPointBounds(t *testing.T) {
	for name, change := range map[string]func(*Node){
		"one CPU and one MiB":   func(n *Node) { n.Devices[0].Share = Share{CPUs: 1, Memory: 1} },
		"one share":             func(n *Node) { n.Devices[0].Shares = 1 },
		"the whole pool":        func(n *Node) { n.Devices[0].LargestRequest = n.Devices[0].Pool },
		"one MiB":               func(n *Node) { n.Devices[0].Pool, n.Devices[0].LargestRequest, n.Devices[0].DefaultRequest = 1, 1, 1 },
		"no slot without GPUs":  func(n *Node) { n.CPUOnly = Share{} },
		"growth without a look": func(n *Node) { n.Growth = Growth{Retries: 1, Factor: 1.5, LimitPercent: 1} },
		"growth at the end":     func(n *Node) { n.Growth = Growth{Retries: 1, Factor: 2, LimitPercent: 100, EarlyPercent: 100} },
	} {
		n := exampleNode(v100s(0), v100s(1))
		change(&n)
		if _, err := ExecutionPoint(n); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// No text of a card or a version makes a line of its own.
func TestForeignTextStaysInItsLine(t *testing.T) {
	n := exampleNode(v100s(0), wholeV100S(1))
	clean, err := ExecutionPoint(n)
	if err != nil {
		t.Fatal(err)
	}
	n.Version = "1\nSTART = true"
	n.Devices[0].Name = "card\nSTART = true"
	n.Devices[1].Name = "card\"\r\nSTART = true"
	for _, render := range []func() ([]byte, error){
		func() ([]byte, error) { return ExecutionPoint(n) },
		func() ([]byte, error) { return AccessPoint(PoolOf(n)) },
		func() ([]byte, error) { return InventoryAds(n), nil },
	} {
		got, err := render()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(got)) {
			if strings.HasPrefix(strings.TrimSpace(line), "START ") {
				t.Errorf("a line of its own: %q", line)
			}
		}
	}
	if got, _ := ExecutionPoint(n); bytes.Count(got, []byte("\n")) != bytes.Count(clean, []byte("\n")) {
		t.Error("the number of lines changes with a card's name")
	}
}

func TestPoolOf(t *testing.T) {
	small := v100s(0)
	small.LargestRequest, small.DefaultRequest, small.Name = 16384, 2048, "small"
	p := PoolOf(exampleNode(small), exampleNode(v100s(1), wholeV100S(2)))
	if p.Default != 2048 || p.Share != (Largest{32256, "Tesla V100S-PCIE-32GB"}) || p.Whole != (Largest{32768, "Tesla V100S-PCIE-32GB"}) {
		t.Errorf("%+v", p)
	}
	if p.WithoutRequest != WithoutRequestRefuse || p.Minimum != 1536 || p.Quantum != 512 {
		t.Errorf("the rules are not those of the first node: %+v", p)
	}
}

// A pool of nothing but MIG devices has a largest budget, too.
func TestAccessPointOfInstances(t *testing.T) {
	text, err := AccessPoint(PoolOf(exampleNode(instance(1, "2g.10gb", 9856, 28), instance(2, "1g.5gb", 4864, 14))))
	if err != nil || !strings.Contains(string(text), "the largest budget is 9856 MiB (NVIDIA A100-SXM4-40GB MIG 2g.10gb)") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestAccessPointBounds: the least and the most of a pool are accepted.
func TestAccessPointBounds(t *testing.T) {
	for name, change := range map[string]func(*Pool){
		"one MiB at a time": func(p *Pool) { p.Minimum, p.Quantum = 1, 1 },
		"a share of one MiB": func(p *Pool) {
			p.WithoutRequest, p.Minimum, p.Quantum, p.Default, p.Share.Budget = WithoutRequestShare, 1, 1, 1, 1
		},
		"one MiB in all": func(p *Pool) { p.Minimum, p.Quantum, p.Share.Budget, p.Whole = 1, 1, 1, Largest{} },
	} {
		p := PoolOf(exampleNode(v100s(0)))
		change(&p)
		if _, err := AccessPoint(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLargest: of equal budgets the first is told.
func TestLargest(t *testing.T) {
	if got := (Largest{5, "a"}).or(5, "b").or(4, "c"); got != (Largest{5, "a"}) {
		t.Errorf("%+v", got)
	}
	if got := (Largest{5, "a"}).or(6, "b"); got != (Largest{6, "b"}) {
		t.Errorf("%+v", got)
	}
}

func TestAccessPointRefuses(t *testing.T) {
	for want, change := range map[string]func(*Pool){
		"no GPU":                        func(p *Pool) { p.Share, p.Whole = Largest{}, Largest{} },
		"must be above 0":               func(p *Pool) { p.Quantum = 0 },
		"the default request is 40 MiB": func(p *Pool) { p.WithoutRequest, p.Default, p.Share.Budget = WithoutRequestShare, 40, 30 },
		"without_request is":            func(p *Pool) { p.WithoutRequest = "x" },
		"factor 1 and limit":            func(p *Pool) { p.Growth = Growth{Retries: 1, Factor: 1, LimitPercent: 90} },
	} {
		p := PoolOf(exampleNode(v100s(0)))
		change(&p)
		if _, err := AccessPoint(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

// TestContainersOfTheSlot: a name without MY is also the job's, where the slot has none.
func TestContainersOfTheSlot(t *testing.T) {
	n := examples()["whole"]
	lines := 0
	for line := range strings.Lines(executionPoint(t, n)) {
		name, value, _ := strings.Cut(line, " = ")
		if name == "GPUSLOT_BIND_EXPR" {
			lines++
			if strings.Count(value, "GPUSlotUUID") != strings.Count(value, "MY.GPUSlotUUID") {
				t.Error(line)
			}
		}
	}
	if lines == 0 {
		t.Errorf("%d lines", lines)
	}
}
