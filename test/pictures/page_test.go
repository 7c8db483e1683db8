package pictures

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/page"
	"github.com/gpuslot/gpuslot/gpu"
)

// shots is a directory that keeps the screenshots, to be looked at.
var shots = os.Getenv("GPUSLOT_SHOTS")

func gib(n float64) gpu.Bytes { return gpu.Bytes(n * (1 << 30)) }

// slot is one with bounds.
func slot(n int, budget, used, lower, estimate, upper float64) page.Slot {
	return page.Slot{
		Name: fmt.Sprintf("slot1_%d", n), Budget: gib(budget), Memory: gpu.Known(gib(used)),
		Lower: gpu.Known(lower), Estimate: gpu.Known(estimate), Upper: gpu.Known(upper), Joules: gpu.Known(float64(n) * 48200),
	}
}

func card(i int, name string, total float64) page.GPU {
	g := page.GPU{Index: i, Name: name, Mode: "mps", Shared: true, Shares: 8, MPS: "ACTIVE", Power: gpu.Known(61.0 + 40*float64(i))}
	g.UUID = gpu.UUID(fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i))
	g.Total, g.Used = gpu.Known(gib(total)), gpu.Known(gib(0.5))
	return g
}

// sample is a node with everything that the page can show.
func sample(at time.Time) page.Node {
	busy := card(0, "NVIDIA H100 PCIe", 80)
	busy.Slots = []page.Slot{slot(1, 10, 7.7, .18, .24, .25), slot(2, 20, 18.2, .1, .2, .25), slot(3, 10, 10.4, 0, .12, .25), slot(4, 20, 2.1, .2, .25, .25)}
	busy.Used, busy.Unowned, busy.Activity, busy.Method = gpu.Known(gib(41)), gpu.Known(gib(1.2)), gpu.Known(.87), "mps"
	busy.Power = gpu.Known(287.0)
	old := card(1, "Tesla V100S-PCIE-32GB", 32)
	old.Slots = []page.Slot{slot(5, 4, 3.1, 0, 0, .5), slot(6, 4, 3.9, 0, 0, .25)}
	for i := range old.Slots {
		old.Slots[i].Lower, old.Slots[i].Estimate = gpu.Measured[float64]{}, gpu.Measured[float64]{}
	}
	old.Used, old.KernelTime, old.Method = gpu.Known(gib(8.3)), gpu.Known(.62), "mps"
	shut := card(2, "Tesla V100S-PCIE-32GB", 32)
	shut.Closed, shut.MPS = "Its hardware reported an error that only a reset repairs. gpuslot status on the node says more.", ""
	shut.Used, shut.Total = gpu.Measured[gpu.Bytes]{}, gpu.Measured[gpu.Bytes]{}
	divided := card(3, "NVIDIA A100-PCIE-40GB", 40)
	divided.Mode, divided.Shared, divided.MPS = "mig", false, ""
	for i, part := range []float64{.8, .3} {
		d := page.Device{UUID: gpu.UUID(fmt.Sprintf("MIG-%08x-0000-4000-8000-000000000000", i)), Total: gpu.Known(gib(20)), Used: gpu.Known(gib(20 * part)), Activity: gpu.Known(part), Method: "mig"}
		d.Slots = []page.Slot{slot(8+i, 20, 19*part, part, part, part)}
		divided.MIG = append(divided.MIG, d)
	}
	return page.Node{
		Host: "wn042.example.org", Version: "0.4.0", Driver: "550.163.01", At: at,
		Problems: []string{"HTCondor runs an older layout: restart the startd when its jobs are done (condor_restart -peaceful -daemon STARTD)."},
		GPUs:     []page.GPU{busy, old, shut, divided},
	}
}

// hour is a history that ends now.
func hour(now time.Time) *page.History {
	h := &page.History{}
	for i := range 120 {
		n := sample(now.Add(time.Duration(i-119) * 30 * time.Second))
		x := float64(i) / 12
		for j := range n.GPUs {
			g := &n.GPUs[j]
			g.Power.Value += 40 * math.Sin(x+float64(j))
			g.Used.Value = gpu.Bytes(float64(g.Used.Value) * (.7 + .3*math.Sin(x/2)))
			g.Activity.Value *= .6 + .4*math.Sin(x*2)
			g.KernelTime.Value *= .6 + .4*math.Cos(x)
			if i > 40 && i < 50 {
				g.Activity.Known = false
			}
		}
		h.Add(n)
	}
	return h
}

// served is the page on a port of this machine.
func served(t *testing.T) *httptest.Server {
	t.Helper()
	now := time.Now()
	h, err := page.Handler(func() page.Node { return sample(now) }, hour(now))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// TestPage: whole in a wide and a narrow window, in light and dark, without a
// complaint of the browser, and without anything from elsewhere.
func TestPage(t *testing.T) {
	b, s := NewBrowser(t), served(t)
	for _, window := range []struct {
		name          string
		width, height int
		scheme        string
	}{{"desktop-light", 1280, 900, "light"}, {"desktop-dark", 1280, 900, "dark"}, {"phone-light", 390, 844, "light"}, {"phone-dark", 390, 844, "dark"}} {
		t.Run(window.name, func(t *testing.T) {
			b.Open(s.URL+"/", window.width, window.height, window.scheme)
			var wide int
			if b.Eval("document.documentElement.scrollWidth", &wide); wide > window.width {
				t.Errorf("the page is %d wide in a window of %d: it scrolls sideways", wide, window.width)
			}
			var background string
			b.Eval("getComputedStyle(document.body).backgroundColor", &background)
			if dark := background == "rgb(17, 21, 25)"; dark != (window.scheme == "dark") {
				t.Errorf("the background is %s", background)
			}
			if shots != "" {
				if err := os.WriteFile(filepath.Join(shots, window.name+".png"), b.Screenshot(), 0o644); err != nil {
					t.Error(err)
				}
			}
		})
	}
	complaints(t, b)
	for _, e := range b.Events("Network.requestWillBeSent") {
		var r struct{ Request struct{ URL string } }
		if err := json.Unmarshal(e, &r); err != nil || !strings.HasPrefix(r.Request.URL, s.URL) {
			t.Errorf("the page asks for %s", r.Request.URL)
		}
	}
}

// complaints fails the test for whatever the browser did not like: a policy
// that it enforced, an error of the script.
func complaints(t *testing.T, b *Browser) {
	t.Helper()
	for _, method := range []string{"Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"} {
		for _, e := range b.Events(method) {
			if !strings.Contains(string(e), "favicon") {
				t.Errorf("%s: %s", method, e)
			}
		}
	}
}

// TestPageByKeyboard: everything that can be used is reached by Tab, in order,
// and visibly.
func TestPageByKeyboard(t *testing.T) {
	b, s := NewBrowser(t), served(t)
	b.Open(s.URL+"/", 1280, 900, "light")
	var want, got []string
	const name = "(e => e.id || e.textContent)"
	b.Eval("[...document.querySelectorAll('a[href], summary')].map("+name+")", &want)
	for range want {
		b.Key("Tab", 9)
		var one struct {
			Name    string
			Outline bool
		}
		b.Eval("(e => ({Name: "+name+"(e), Outline: getComputedStyle(e).outlineStyle == 'solid'}))(document.activeElement)", &one)
		if !one.Outline {
			t.Errorf("%s has the keyboard and does not show it", one.Name)
		}
		got = append(got, one.Name)
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("Tab reaches %q, want %q", got, want)
	}
}

// TestPageRenews: new content comes by itself, what was closed stays closed,
// and the keyboard stays where it is.
func TestPageRenews(t *testing.T) {
	b, s := NewBrowser(t), served(t)
	b.Open(s.URL+"/", 1280, 900, "light")
	var r struct {
		Same, Open bool
		Focus      string
	}
	b.Eval(`(async () => {
		const d = document.querySelector("details[id]"), f = document.querySelector("summary[id]"), before = document.querySelector("main");
		d.open = false; f.focus();
		while (document.querySelector("main") === before) await new Promise(r => setTimeout(r, 50));
		return {Same: document.querySelector("main") === before, Open: document.getElementById(d.id).open, Focus: document.activeElement.id};
	})()`, &r)
	if r.Same || r.Open || !strings.HasPrefix(r.Focus, "jobs0-0") {
		t.Errorf("after renewing: %+v", r)
	}
	complaints(t, b)
}

// TestNode: the page of a real gpuslotd, and what an operator's terminal says
// of the same node: jobs with their VRAM and SM time, nobody's name on the page.
func TestNode(t *testing.T) {
	b, n := NewBrowser(t), newNode(t)
	var text string
	n.eventually("a page with the jobs", func() (string, bool) {
		b.Open("http://"+n.metrics+"/", 1280, 900, "light")
		b.Eval("document.body.innerText", &text)
		for _, want := range []string{"GPU 0", "NVIDIA H100", "slot1_2", "slot2_4", "takes jobs", "ACTIVE (2 clients)", "MIG-"} {
			if !strings.Contains(text, want) {
				return fmt.Sprintf("no %q on\n%s", want, text), false
			}
		}
		return text, true
	})
	if shots != "" {
		if err := os.WriteFile(filepath.Join(shots, "node.png"), b.Screenshot(), 0o644); err != nil {
			t.Error(err)
		}
	}
	for _, secret := range []string{"alice", strconv.Itoa(jobUID), "simjob", strconv.Itoa(jobCluster)} {
		if strings.Contains(text, secret) {
			t.Errorf("the page tells %q", secret)
		}
	}
	complaints(t, b)
	n.eventually("gpuslot top with the larger job first, and one over its budget", func() (string, bool) {
		top := n.gpuslot("top", "--once", "--sort", "vram")
		first, second := strings.Index(top, "slot1_3"), strings.Index(top, "slot1_2")
		return top, 0 <= first && first < second && strings.Contains(top, fmt.Sprintf("%d.2", jobCluster)) && strings.Contains(top, "over its budget")
	})
}
