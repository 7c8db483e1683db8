package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/gpuslot/gpuslot/gpu"
)

const one = gpu.UUID("GPU-00000000-0000-4000-8000-000000000000")

func gpuWith(activity, memory float64) GPU {
	g := GPU{Index: 0, Name: "NVIDIA H100", Mode: "mps", Shared: true, Shares: 4, MPS: "ACTIVE"}
	g.UUID, g.Activity = one, gpu.Known(activity)
	g.Total, g.Used = gpu.Known(gpu.Bytes(64<<30)), gpu.Known(gpu.Bytes(memory*(64<<30)))
	return g
}

func fetch(t *testing.T, n Node, h *History, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	handler, err := Handler(func() Node { return n }, h)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

// The policy allows the page's own style and script and nothing else; their
// digests are those of what was sent.
func TestPolicy(t *testing.T) {
	w := fetch(t, Node{Host: "wn1"}, &History{}, http.MethodGet, "/")
	policy := w.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "connect-src 'self'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("no %s in %s", want, policy)
		}
	}
	for _, tag := range []string{"style", "script"} {
		m := regexp.MustCompile("(?s)<" + tag + ">(.*?)</" + tag + ">").FindStringSubmatch(w.Body.String())
		if m == nil || !strings.Contains(policy, tag+"-src '"+digest(m[1])+"'") {
			t.Errorf("the policy does not allow the page's %s: %s", tag, policy)
		}
	}
	for _, outside := range []string{"http://", "https://", "//", " style=", " onclick="} {
		body := regexp.MustCompile("(?s)<(style|script)>.*?</(style|script)>").ReplaceAllString(w.Body.String(), "")
		if strings.Contains(body, outside) {
			t.Errorf("the page has %q", outside)
		}
	}
}

func TestOnlyThePage(t *testing.T) {
	for _, c := range []struct {
		method, path string
		want         int
	}{{"GET", "/", 200}, {"HEAD", "/", 200}, {"POST", "/", 405}, {"GET", "/debug/pprof/", 404}, {"GET", "/x", 404}} {
		if got := fetch(t, Node{}, &History{}, c.method, c.path).Code; got != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, got, c.want)
		}
	}
}

// What a driver or a file says is text, never markup.
func TestEscapes(t *testing.T) {
	const bad = `<script>x()</script>"'`
	n := Node{Host: bad, Version: bad, Driver: bad, Problems: []string{bad}, GPUs: []GPU{{Name: bad, Mode: bad, Closed: bad, MPS: bad, Device: Device{Slots: []Slot{{Name: bad}}}}}}
	if body := fetch(t, n, &History{}, "GET", "/").Body.String(); strings.Contains(body, "<script>x()") {
		t.Error("markup comes through")
	}
}

// Unknown is said, never drawn as zero.
func TestUnknown(t *testing.T) {
	d := Device{Slots: []Slot{{Name: "slot1_1"}}}
	for _, b := range []bar{memoryBar(d), activityBar(d), budgetBar(0, d.Slots[0]), bandBar(0, d.Slots[0])} {
		if len(b.Rects) > 0 || b.Label != "not known" {
			t.Errorf("an unknown value is drawn: %+v", b)
		}
	}
	if p := draw("x", series{}, 1, percent); p.Path != "" || p.Now != "–" {
		t.Errorf("an unknown hour is drawn: %+v", p)
	}
	if !strings.Contains(fetch(t, Node{}, &History{}, "GET", "/").Body.String(), "not known yet") {
		t.Error("a node that was never read looks read")
	}
}

func TestBand(t *testing.T) {
	known := gpu.Known[float64]
	for _, c := range []struct {
		slot Slot
		want string
	}{
		{Slot{}, "not known"},
		{Slot{Upper: known(.5)}, "at most 50 %"},
		{Slot{Lower: known(.1), Upper: known(.5)}, "10 % to 50 %"},
		{Slot{Lower: known(.1), Estimate: known(.2), Upper: known(.5)}, "10 % to 50 %, about 20 %"},
		{Slot{Lower: known(.5), Estimate: known(.5), Upper: known(.5)}, "50 %"},
	} {
		if got := band(c.slot); got != c.want {
			t.Errorf("band(%+v) = %q, want %q", c.slot, got, c.want)
		}
	}
}

// Pieces of a bar never leave it, whatever they add up to.
func TestBarsStayInside(t *testing.T) {
	g := gpuWith(1, 1)
	for i := range 48 {
		s := Slot{Name: fmt.Sprint("slot1_", i), Budget: 1 << 20, Memory: gpu.Known(gpu.Bytes(8 << 30)), Estimate: gpu.Known(.4), Upper: gpu.Known(1.2), Lower: gpu.Known(.1)}
		g.Slots = append(g.Slots, s)
	}
	bars := []bar{memoryBar(g.Device), activityBar(g.Device)}
	for i, s := range g.Slots {
		bars = append(bars, budgetBar(i, s), bandBar(i, s))
	}
	for _, b := range bars {
		for _, r := range b.Rects {
			if r.from < 0 || r.to > 1 || r.from > r.to {
				t.Errorf("a piece from %v to %v", r.from, r.to)
			}
		}
	}
}

// An hour is an hour: means of half minutes, gaps stay gaps, old values go.
func TestHistory(t *testing.T) {
	h, start := &History{}, time.Unix(1760000010, 0)
	add := func(after time.Duration, activity float64) {
		h.Add(Node{At: start.Add(after), GPUs: []GPU{gpuWith(activity, .5)}})
	}
	add(0, .2)
	add(time.Second, .4)
	add(2*step, .8)
	memory, activity, power := h.of(one)
	if v := activity[points-3]; !v.Known || v.Value < .299 || v.Value > .301 {
		t.Errorf("the mean of .2 and .4 is %v", v)
	}
	if activity[points-2].Known || !activity[points-1].Known || power[points-1].Known || memory[points-1].Value != .5 {
		t.Errorf("gaps: %v, %v", activity[points-3:], power[points-1])
	}
	add(60*step, .5)
	add((points+2)*step, .1) // the place of the third point
	_, activity, _ = h.of(one)
	for i, v := range activity {
		want := gpu.Measured[float64]{}
		switch i {
		case 60 - 3:
			want = gpu.Known(.5)
		case points - 1:
			want = gpu.Known(.1)
		}
		if v != want {
			t.Errorf("point %d is %v, want %v", i, v, want)
		}
	}
	h.Add(Node{At: start.Add(3 * time.Hour)})
	if len(h.gpus) != 0 {
		t.Error("a GPU that is gone for hours is remembered")
	}
}

// TestHistoryIsBounded: a year of samples takes what an hour takes.
func TestHistoryIsBounded(t *testing.T) {
	h := &History{}
	for i := range 100_000 {
		h.Add(Node{At: time.Unix(int64(i)*300, 0), GPUs: []GPU{gpuWith(.5, .5)}})
	}
	if len(h.gpus) != 1 {
		t.Errorf("%d GPUs are remembered", len(h.gpus))
	}
	if kib := unsafe.Sizeof(past{}) >> 10; kib > 8 {
		t.Errorf("a GPU takes %d KiB", kib)
	}
}

// crowded is the largest node that the agent is made for.
func crowded() (Node, *History) {
	n, h := Node{Host: "wn1", At: time.Unix(1760000000, 0)}, &History{}
	for i := range 16 {
		g := gpuWith(.9, .9)
		g.Index, g.UUID = i, gpu.UUID(fmt.Sprintf("GPU-%08x-0000-4000-8000-000000000000", i))
		for j := range 48 {
			g.Slots = append(g.Slots, Slot{Name: fmt.Sprintf("slot%d_%d", i, j), Budget: 1 << 30, Memory: gpu.Known(gpu.Bytes(900 << 20)), Lower: gpu.Known(0.), Estimate: gpu.Known(.02), Upper: gpu.Known(.1), Joules: gpu.Known(1e5)})
		}
		n.GPUs = append(n.GPUs, g)
	}
	for i := range points {
		m := n
		m.At = n.At.Add(time.Duration(i) * step)
		h.Add(m)
	}
	return n, h
}

func BenchmarkPage(b *testing.B) {
	for _, size := range []int{4, 16} {
		b.Run(fmt.Sprintf("%d-GPUs", size), func(b *testing.B) {
			n, h := crowded()
			n.GPUs = n.GPUs[:size]
			if size == 4 {
				for i := range n.GPUs {
					n.GPUs[i].Slots = n.GPUs[i].Slots[:4]
				}
			}
			handler, err := Handler(func() Node { return n }, h)
			if err != nil {
				b.Fatal(err)
			}
			bytes := 0
			for b.Loop() {
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				bytes = w.Body.Len()
			}
			b.ReportMetric(float64(bytes), "bytes")
		})
	}
}

// A node that is only looked at offers nothing, and says so.
func TestObserved(t *testing.T) {
	n := Node{GPUs: []GPU{{Device: Device{UUID: "GPU-a"}, Mode: "observe"}, {Device: Device{UUID: "GPU-b"}, Index: 1, Mode: "observe"}}}
	if got := sums(n)[0]; got != (sum{"GPUs observed", "2"}) {
		t.Errorf("%+v", got)
	}
	if v := viewOfGPU("0", n.GPUs[0], &History{}); v.State != "observed" || v.Class != "" {
		t.Errorf("%+v", v)
	}
}

// TestStates: a GPU with MIG devices is not given out whole, nor is a MIG device.
func TestStates(t *testing.T) {
	for want, g := range map[string]GPU{
		"divided by MIG":                        {Mode: divided, Index: NotPlanned, MIG: []Device{{}}},
		"a MIG device, takes one job at a time": {Mode: divided},
		"given out whole":                       {Mode: "whole"},
		"observed":                              {Mode: observed},
		"not offered":                           {Index: NotPlanned},
	} {
		if got := viewOfGPU("g", g, &History{}).State; got != want {
			t.Errorf("%+v is %q, want %q", g, got, want)
		}
	}
}
