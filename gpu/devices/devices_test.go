package devices

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/proctree"
)

const (
	gpuA gpu.UUID = "GPU-a1000000-7d02-4b6a-9c31-0e84a2d1f001"
	gpuB gpu.UUID = "GPU-a1000001-7d02-4b6a-9c31-0e84a2d1f001"
)

// minorsText is mig-minors as the driver prints it: nv-caps.c of
// open-gpu-kernel-modules numbers fabric management 0, then these in a row.
func minorsText(gpus int) string {
	var b strings.Builder
	n := 1
	add := func(format string, args ...any) {
		fmt.Fprintf(&b, format+" %d\n", append(args, n)...)
		n++
	}
	add("config")
	add("monitor")
	for g := range gpus {
		for gi := range 15 {
			add("gpu%d/gi%d/access", g, gi)
			for ci := range 8 {
				add("gpu%d/gi%d/ci%d/access", g, gi, ci)
			}
		}
	}
	return b.String()
}

const (
	devicesText = "Character devices:\n  1 mem\n195 nvidia-frontend\n508 nvidia-caps-imex-channels\n509 nvidia-caps\n\nBlock devices:\n259 blkext\n"

	informationText = "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 162\nGPU UUID: \t %s\nVideo BIOS: \t 92.00.19.00.01\nBus Type: \t PCIe\n" +
		"DMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\nBus Location: \t 0000:07:00.0\nDevice Minor: \t %d\nGPU Excluded:\t No\n"
)

// driverProc is a /proc with two GPUs.
func driverProc(t *testing.T) Proc {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"devices":                       devicesText,
		"driver/nvidia-caps/mig-minors": minorsText(32),
		"driver/nvidia/gpus/0000:1a:00.0/information": fmt.Sprintf(informationText, gpuA, 0),
		"driver/nvidia/gpus/0000:1b:00.0/information": fmt.Sprintf(informationText, gpuB, 1),
		"driver/nvidia/gpus/0000:1c:00.0/information": fmt.Sprintf(informationText, "GPU-????????-????-????-????-????????????", 2),
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Proc{Root: root}
}

// TestRule: the numbers are those of NVIDIA's MIG guide (gpu0/gi1/access is 12,
// its ci0 13) and of nv-caps.c (135 for each GPU).
func TestRule(t *testing.T) {
	c, err := driverProc(t).Read()
	if err != nil {
		t.Fatal(err)
	}
	all := Range{1, 2 + 32*135}
	for name, want := range map[string]struct {
		own  []Instance
		open []Range
		err  error
	}{
		"one instance":           {[]Instance{{GPU: gpuA, ID: 1}}, []Range{{12, 20}}, nil},
		"eleven is not one":      {[]Instance{{GPU: gpuA, ID: 11}}, []Range{{102, 110}}, nil},
		"of the other GPU":       {[]Instance{{GPU: gpuB, ID: 1}}, []Range{{147, 155}}, nil},
		"two":                    {[]Instance{{GPU: gpuB, ID: 1}, {GPU: gpuA, ID: 1}}, []Range{{12, 20}, {147, 155}}, nil},
		"neighbours":             {[]Instance{{GPU: gpuA, ID: 2}, {GPU: gpuA, ID: 1}, {GPU: gpuA, ID: 1}}, []Range{{12, 29}}, nil},
		"a whole GPU":            {[]Instance{{GPU: gpuB, All: true}}, []Range{{138, 272}}, nil},
		"none":                   {nil, nil, nil},
		"a GPU that nobody told": {[]Instance{{GPU: "GPU-00000000-0000-4000-8000-000000000000", ID: 1}}, nil, ErrUnknown},
		"no such instance":       {[]Instance{{GPU: gpuA, ID: 15}}, nil, ErrUnknown},
	} {
		got, err := c.Rule(want.own)
		if !errors.Is(err, want.err) {
			t.Errorf("%s: %v, want %v", name, err, want.err)
		}
		if diff := cmp.Diff(Rule{Major: 509, MIG: all, Own: want.open}, got); err == nil && diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, err := (Capabilities{}).Rule(nil); !errors.Is(err, ErrNoCapabilities) {
		t.Errorf("without a driver: %v", err)
	}
	if _, err := (Proc{Root: t.TempDir()}).Read(); !errors.Is(err, ErrNoCapabilities) {
		t.Errorf("without a driver: %v", err)
	}
}

// TestNodes: the numbers are those of the driver (nv.h of open-gpu-kernel-modules: NV_MAJOR_DEVICE_NUMBER is 195), also
// where it makes no MIG devices. What it does not list is an error, and the others are known.
func TestNodes(t *testing.T) {
	const gone gpu.UUID = "GPU-00000000-0000-4000-8000-000000000000"
	p := driverProc(t)
	for _, name := range []string{"devices", "driver/nvidia-caps/mig-minors"} {
		if err := os.Remove(p.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		gpus []gpu.UUID
		want []Node
		err  error
	}{
		"none":        {},
		"one":         {gpus: []gpu.UUID{gpuB}, want: []Node{{195, 1}}},
		"both":        {gpus: []gpu.UUID{gpuB, gpuA}, want: []Node{{195, 0}, {195, 1}}},
		"one is gone": {gpus: []gpu.UUID{gone, gpuB}, want: []Node{{195, 1}}, err: ErrUnknown},
	} {
		got, err := p.Nodes(c.gpus)
		if diff := cmp.Diff(c.want, got); diff != "" || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
	if got, err := (Proc{Root: t.TempDir()}).Nodes([]gpu.UUID{gpuA}); len(got) > 0 || !errors.Is(err, ErrUnknown) {
		t.Errorf("without a driver: %v, %v", got, err)
	}
	proctree.WithoutDescriptors(t, func() {
		if got, err := p.Nodes([]gpu.UUID{gpuA}); len(got) > 0 || !Lacks(err) || errors.Is(err, ErrUnknown) {
			t.Errorf("without descriptors: %v, %v", got, err)
		}
	})
}

// TestGraphics: the nodes for graphics of a GPU are those that the kernel names at its place on the bus, sorted; what
// the driver does not list has none.
func TestGraphics(t *testing.T) {
	const gone gpu.UUID = "GPU-00000000-0000-4000-8000-000000000000"
	p := driverProc(t)
	p.Sys = t.TempDir()
	listed, err := p.gpus()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"renderD129": "226:129\n", "card1": "226:1\n", "by-path": "", "card1-DP-1": "226"} {
		dir := filepath.Join(p.Sys, "bus/pci/devices", listed[gpuB].bus, "drm", name)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "dev"), []byte(text), 0o444)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		gpus []gpu.UUID
		want []Node
	}{"none": {}, "without": {gpus: []gpu.UUID{gpuA}}, "all": {gpus: []gpu.UUID{gone, gpuB, gpuA}, want: []Node{{226, 1}, {226, 129}}}} {
		got, err := p.Graphics(c.gpus)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
	proctree.WithoutDescriptors(t, func() {
		if got, err := p.Graphics([]gpu.UUID{gpuB}); len(got) > 0 || !Lacks(err) {
			t.Errorf("without descriptors: %v, %v", got, err)
		}
	})
}

// TestEqual: rules that differ in one thing are not one rule, and one that closes nothing is empty.
func TestEqual(t *testing.T) {
	all := []Rule{{}, {Major: 509}, {Major: 509, MIG: Range{1, 2}}, {Major: 509, Own: []Range{{1, 1}}}, {Spared: []uint32{0}},
		{Closed: []Node{{195, 0}}}, {Closed: []Node{{195, 1}}}, {Closed: []Node{{195, 0}, {195, 1}}}}
	for i, a := range all {
		for j, b := range all {
			if a.Equal(b) != (i == j) {
				t.Errorf("%+v and %+v: equal %t", a, b, a.Equal(b))
			}
		}
		if closes := a.Major != 0 || len(a.Closed) > 0; a.Empty() == closes {
			t.Errorf("%+v is empty: %t", a, a.Empty())
		}
	}
}

// opens is what the program computes.
func (r Rule) opens(minor uint32) bool {
	if minor < r.MIG.First || minor > r.MIG.Last {
		return true
	}
	for _, o := range r.Own {
		if o.First <= minor && minor <= o.Last {
			return true
		}
	}
	return false
}

// TestRuleOpensOwnAlone: of MIG's nodes, those of the job's instances and no other.
func TestRuleOpensOwnAlone(t *testing.T) {
	c, err := driverProc(t).Read()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		own := map[string]bool{}
		var instances []Instance
		for range rapid.IntRange(0, 8).Draw(t, "instances") {
			g, gi := rapid.IntRange(0, 1).Draw(t, "gpu"), rapid.IntRange(0, 14).Draw(t, "gi")
			instances = append(instances, Instance{GPU: []gpu.UUID{gpuA, gpuB}[g], ID: gi})
			own[fmt.Sprintf("gpu%d/gi%d", g, gi)] = true
		}
		r, err := c.Rule(instances)
		if err != nil {
			t.Fatal(err)
		}
		for name, minor := range c.Minors {
			parts := strings.Split(name, "/")
			if want := len(parts) > 2 && own[parts[0]+"/"+parts[1]]; r.opens(minor) != want {
				t.Fatalf("%s is open: %t, want %t", name, !want, want)
			}
		}
		if !r.opens(0) {
			t.Fatal("fabric management is closed")
		}
	})
}

// TestParseMajor: the number is one of a character device that the kernel may give, and of no longer name.
func TestParseMajor(t *testing.T) {
	for text, want := range map[string]uint32{devicesText: 509, " 4095 nvidia-caps\n": 4095, "0 nvidia-caps\n509 nvidia-caps\n": 509,
		"4096 nvidia-caps\n": 0, "x nvidia-caps\n": 0, "Block devices:\n509 nvidia-caps\n": 0, "nvidia-caps\n": 0, "": 0} {
		if got, ok := parseMajor([]byte(text)); got != want || ok != (want > 0) {
			t.Errorf("%q: %d, %t", text, got, ok)
		}
	}
}

// FuzzDevices: a major is one of a character device of exactly that name.
func FuzzDevices(f *testing.F) {
	f.Add(devicesText)
	f.Add("509 nvidia-caps")
	f.Add("Block devices:\n509 nvidia-caps\n")
	f.Fuzz(func(t *testing.T, text string) {
		major, ok := parseMajor([]byte(text))
		if ok && (major == 0 || major > 4095 || !strings.Contains(text, "nvidia-caps")) {
			t.Errorf("%d from %q", major, text)
		}
		if !ok && major != 0 {
			t.Errorf("unknown, and %d", major)
		}
	})
}

// FuzzMinors: printed again, what was read reads the same.
func FuzzMinors(f *testing.F) {
	f.Add("config 1\nmonitor 2\ngpu0/gi1/ci0/access 13\n")
	f.Add("x -1\ny 99999999999\n 3\n")
	f.Fuzz(func(t *testing.T, text string) {
		var b strings.Builder
		got := parseMinors([]byte(text))
		for name, minor := range got {
			fmt.Fprintf(&b, "%s %d\n", name, minor)
		}
		if again := parseMinors([]byte(b.String())); !cmp.Equal(got, again) {
			t.Errorf("%q: %v, then %v", text, got, again)
		}
		if len(got) > 0 {
			if _, err := (Capabilities{Major: 1, Minors: got}).Rule(nil); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestOf: a GPU's own number and those of its instances, also where the driver makes no MIG devices. Of a GPU that it does
// not list none are known.
func TestOf(t *testing.T) {
	p := driverProc(t)
	of := func(u gpu.UUID) []uint64 {
		t.Helper()
		all, err := p.Of(u)
		if err != nil {
			t.Error(err)
		}
		slices.Sort(all)
		return all
	}
	all := of(gpuB)
	c, err := p.Read()
	if err != nil {
		t.Fatal(err)
	}
	want := []uint64{unix.Mkdev(195, 1)}
	for name, minor := range c.Minors {
		if strings.HasPrefix(name, "gpu1/") {
			want = append(want, unix.Mkdev(c.Major, minor))
		}
	}
	if slices.Sort(want); !slices.Equal(all, want) || len(all) < 2 {
		t.Errorf("%v, want %v", all, want)
	}
	minors := p.path("driver/nvidia-caps/mig-minors")
	if err := errors.Join(os.Remove(minors), os.Mkdir(minors, 0o755)); err != nil {
		t.Fatal(err)
	}
	if all, err := p.Of(gpuB); len(all) > 0 || err == nil {
		t.Errorf("the list cannot be read: %v, %v", all, err)
	}
	if err := os.Remove(minors); err != nil {
		t.Fatal(err)
	}
	if all := of(gpuB); !slices.Equal(all, []uint64{unix.Mkdev(195, 1)}) {
		t.Errorf("without MIG: %v", all)
	}
	if all, err := p.Of("GPU-00000000-0000-4000-8000-000000000000"); len(all) > 0 || !errors.Is(err, ErrUnknown) {
		t.Errorf("of no GPU: %v, %v", all, err)
	}
}

// FuzzBelow: the nodes of an instance are those that the driver lists for it.
func FuzzBelow(f *testing.F) {
	f.Add("config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu0/gi11/access 102\n", 0, 1)
	f.Add("gpu0/gi1/ 7\ngpu0/gi1/\n", 0, 1)
	f.Fuzz(func(t *testing.T, text string, minor, gi int) {
		prefix := fmt.Sprintf("gpu%d/gi%d/", minor, gi)
		all := (Capabilities{Major: 509, Minors: parseMinors([]byte(text))}).Below(prefix)
		if len(all) > strings.Count(text, prefix) {
			t.Errorf("%v from %q", all, text)
		}
		for _, node := range all {
			if unix.Major(node) != 509 || !strings.Contains(text, fmt.Sprint(unix.Minor(node))) {
				t.Errorf("%d:%d from %q", unix.Major(node), unix.Minor(node), text)
			}
		}
	})
}

// FuzzInformation: what is told is a GPU that exists, and a number.
func FuzzInformation(f *testing.F) {
	f.Add(fmt.Sprintf(informationText, gpuA, 3))
	f.Add("GPU UUID: GPU-????????-????-????-????-????????????\nDevice Minor: 0\n")
	f.Add("GPU UUID: MIG-00000000-0000-5000-8000-000000000000\nDevice Minor: 0\n")
	f.Add("GPU UUID: " + string(gpuA) + "\n")
	f.Add("Device Minor: 0\n")
	f.Add("GPU UUID: " + string(gpuA) + "\nDevice Minor: -1\n")
	f.Fuzz(func(t *testing.T, text string) {
		u, minor, ok := parseInformation([]byte(text))
		if !ok {
			return
		}
		if _, err := gpu.ParseUUID(string(u)); err != nil || u.IsMIG() || minor < 0 || !strings.Contains(strings.ToLower(text), strings.ToLower(string(u))) {
			t.Errorf("%s %d from %q", u, minor, text)
		}
	})
}
