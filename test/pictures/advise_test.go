package pictures

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/advise"
	"github.com/gpuslot/gpuslot/cmd/gpuslot/advise/paper"
	"github.com/gpuslot/gpuslot/test/history"
)

// adviceSample is a history with everything that the page can show.
func adviceSample(t *testing.T) string {
	t.Helper()
	r := history.Seeded(42)
	book := advise.NewAdviser(advise.Options{Config: config.Default()})
	put := func(k history.Kind, n int) {
		for _, j := range k.Jobs(r, n, history.Start) {
			book.Add(j)
		}
	}
	alice := history.A100("alice", "train.py", history.Lognormal(2800, .3), .1, .05)
	put(alice, 420)
	put(history.A100("bob", "infer", history.Bimodal(2000, 9000, .1), .04, .02), 300)
	put(history.A100("carol", "llm_finetune", history.Constant(35000), .9, .5), 120)
	dora := history.A100("dora", "stream_sim", history.Constant(9000), .3, .4)
	dora.Model, dora.MemoryMiB = "NVIDIA H100 80GB HBM3", 81559
	put(dora, 300)
	erik := history.A100("erik", "ddp_train", history.Lognormal(20000, .1), .8, .4)
	erik.GPUs = 4
	put(erik, 80)
	put(history.A100("frida", "notebook", history.Lognormal(900, .8), .02, -1), 45)
	put(history.A100("gustav", "legacy", history.Lognormal(4000, .2), -1, -1), 90)
	alice.Hours, alice.FullWatts, alice.IdleWatts = 2.6, 250, 12
	for _, j := range history.SharedBy(alice.Jobs(r, 700, history.Start.Add(43*24*time.Hour)), 4, 8192) {
		book.Add(j)
	}
	text, err := paper.HTML(book.Advise())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "advice.html")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return "file://" + file
}

// TestAdvice: the page of gpuslot advise, whole in light and dark, wide and
// narrow, without a complaint of the browser; printed on few sheets of A4.
func TestAdvice(t *testing.T) {
	b, page := NewBrowser(t), adviceSample(t)
	for _, window := range []struct {
		name   string
		width  int
		scheme string
	}{{"advice-light", 1240, "light"}, {"advice-dark", 1240, "dark"}, {"advice-phone", 390, "light"}} {
		b.Open(page, window.width, 900, window.scheme)
		var r struct {
			Wide, Plots int
			Small, Tiny []string
		}
		b.Eval(`({Wide: document.documentElement.scrollWidth - innerWidth, Plots: document.querySelectorAll("svg.plot").length,
			Tiny: [...document.querySelectorAll("svg.plot text")].filter(e => parseFloat(getComputedStyle(e).fontSize) * e.ownerSVGElement.getScreenCTM().a < 8).map(e => e.textContent),
			Small: [...document.querySelectorAll("svg.plot text")].filter(e => { const s = e.ownerSVGElement.getBoundingClientRect(), b = e.getBoundingClientRect(); return b.left < s.left - 1 || b.right > s.right + 1 || b.bottom > s.bottom + 2; }).map(e => e.textContent)})`, &r)
		if r.Wide > 0 || r.Plots < 15 || len(r.Small)+len(r.Tiny) > 0 {
			t.Errorf("%s: %d pixels too wide, %d plots, cut off: %q, too small to read: %q", window.name, r.Wide, r.Plots, r.Small, r.Tiny)
		}
		if shots != "" {
			if err := os.WriteFile(filepath.Join(shots, window.name+".png"), b.Screenshot(), 0o644); err != nil {
				t.Error(err)
			}
		}
	}
	complaints(t, b)
	var printed struct{ Data string }
	b.Do("Page.printToPDF", map[string]any{"printBackground": false, "preferCSSPageSize": true}, &printed)
	pdf, err := base64.StdEncoding.DecodeString(printed.Data)
	if err != nil {
		t.Fatal(err)
	}
	if sheets := strings.Count(string(pdf), "/Type /Page\n"); sheets < 3 || sheets > 9 {
		t.Errorf("%d sheets", sheets)
	}
	if shots != "" {
		if err := os.WriteFile(filepath.Join(shots, "advice.pdf"), pdf, 0o644); err != nil {
			t.Error(err)
		}
	}
}
