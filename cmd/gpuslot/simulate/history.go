package simulate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
)

type adder func(time.Time, Job, string)

// readArray reads what condor_history -json prints, one ad after the other.
func readArray(from io.Reader, r Reading, add adder) error {
	d := json.NewDecoder(from)
	if _, err := d.Token(); err != nil {
		return err
	}
	for n := 1; d.More(); n++ {
		var ad historyAd
		if err := d.Decode(&ad); err != nil {
			return fmt.Errorf("ad %d: %w", n, err)
		}
		add(r.history(ad))
	}
	_, err := d.Token()
	if err != nil {
		return fmt.Errorf("the list of ads does not end: %w", err)
	}
	return nil
}

// maxAd is more than any job ad takes.
const maxAd = 4 << 20

// readLines reads what condor_history -jsonl prints.
func readLines(from io.Reader, r Reading, add adder) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxAd)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var ad historyAd
		if err := json.Unmarshal(lines.Bytes(), &ad); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		add(r.history(ad))
	}
	return lines.Err()
}

// historyAd is what a job ad says. Values are whatever HTCondor prints there, an
// expression as a string.
type historyAd map[string]json.RawMessage

// number is one of the attributes as a number; false if it is none.
func (ad historyAd) number(names ...string) (float64, bool) {
	for _, name := range names {
		var n float64
		if raw, ok := ad[name]; ok && json.Unmarshal(raw, &n) == nil && !math.IsInf(n, 0) && string(raw) != "null" {
			return n, true
		}
	}
	return 0, false
}

func (ad historyAd) word(names ...string) string {
	for _, name := range names {
		var s string
		if raw, ok := ad[name]; ok && json.Unmarshal(raw, &s) == nil && !strings.HasPrefix(s, "/Expr(") {
			return s
		}
	}
	return ""
}

// history is a job of condor_history.
func (r Reading) history(ad historyAd) (time.Time, Job, string) {
	out := Job{Owner: ad.word("Owner", "User"), Group: ad.word("AcctGroup", "AccountingGroup"), CPUs: 1, Work: r.Work}
	if c, ok := ad.number("ClusterId"); ok {
		p, _ := ad.number("ProcId")
		out.Name = fmt.Sprintf("%.0f.%.0f", c, p)
	}
	amount := func(otherwise float64, names ...string) float64 {
		n, ok := ad.number(names...)
		if !ok {
			return otherwise
		}
		return bounded(&n, otherwise)
	}
	out.GPUs = int(amount(0, "RequestGPUs", "GpusProvisioned"))
	if out.GPUs < 1 {
		return time.Time{}, out, noGPU
	}
	came, ok := ad.number("QDate", "EnteredCurrentStatus")
	if !ok || came < 0 || came > 1e11 {
		return time.Time{}, out, noTime
	}
	took, ok := ad.took()
	switch {
	case !ok:
		return time.Time{}, out, noTime
	case took <= 0:
		return time.Time{}, out, neverRan
	}
	out.CPUs = int(amount(1, "RequestCpus", "CpusProvisioned"))
	out.Memory, out.VRAM = gpu.MiB(amount(0, "RequestMemory", "MemoryProvisioned")),
		gpu.MiB(amount(0, "RequestVRAM", "VramProvisioned"))
	out.Peak = gpu.MiB(amount(0, "VRAMUsage", "GPUsMemoryUsage"))
	r.ask(&out)
	took = min(took, maxSeconds)
	out.Seconds, out.Dead = max(0, took-r.Dead), min(r.Dead, took)
	if busy, ok := ad.number("GPUTimeUsage"); ok {
		out.SM = fraction(busy, out.Seconds*out.Kernel)
	}
	return time.Unix(0, int64(came*1e9)), out, ""
}

// took is the run time in seconds: of all starts together, else of the last one.
func (ad historyAd) took() (float64, bool) {
	if n, ok := ad.number("RemoteWallClockTime"); ok && n > 0 {
		return n, true
	}
	begin, ok := ad.number("JobCurrentStartDate", "JobStartDate", "JobLastStartDate")
	end, ended := ad.number("CompletionDate", "EnteredCurrentStatus")
	if !ok {
		return 0, true // no start in it: it never ran
	}
	return end - begin, ended
}
