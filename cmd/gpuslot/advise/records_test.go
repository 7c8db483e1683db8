package advise

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/test/history"
)

// FuzzRecords: whatever lines come, the advice can be printed and keeps its word.
func FuzzRecords(f *testing.F) {
	f.Add([]byte(`{"slot":"s","gpu":"GPU-1","model":"A100","memory_mib":40960,"begin":"2026-11-01T00:00:00Z","end":"2026-11-01T00:01:30Z","vram_peak_mib":900,"share":1,"sm_seconds":{"estimate":1e300,"max":-1}}`))
	f.Add([]byte(`{"slot":"s","begin":"0001-01-01T00:00:00Z","end":"9999-11-01T00:01:30Z","requested":{"gpus":1e308,"vram_mib":-5},"joules":{"estimate":1e308},"vram_curve":{"seconds":1e-300,"mib":[-1]}}`))
	f.Fuzz(func(t *testing.T, lines []byte) {
		b := NewAdviser(defaults())
		if _, err := record.Read(bytes.NewReader(lines), func(j record.Job) {
			for i := range 30 {
				j.Begin = j.Begin.Add(time.Duration(i) * time.Nanosecond)
				b.Add(j)
			}
		}); err != nil {
			return
		}
		a := b.Advise()
		if _, err := json.Marshal(a); err != nil {
			t.Fatal(err)
		}
		for _, c := range a.Classes {
			if c.Request.MiB < 0 || c.Request.Seen > 1 || c.Reserved < 0 || len(c.Sentences()) == 0 {
				t.Fatalf("%+v", c)
			}
		}
	})
}

// BenchmarkMillion: records of a large site, and the advice.
func BenchmarkMillion(b *testing.B) {
	var jobs []record.Job
	for i := range 500 {
		k := history.A100(string(rune('a'+i%26))+string(rune('a'+i/26)), "train", history.Lognormal(2800, .3), .1, .05)
		jobs = append(jobs, k.Jobs(history.Seeded(uint64(i)), 200, history.Start)...)
	}
	b.ReportAllocs()
	for b.Loop() {
		adviser := NewAdviser(defaults())
		for i := range 10 {
			for _, j := range jobs {
				j.Begin = j.Begin.Add(time.Duration(i) * time.Nanosecond)
				adviser.Add(j)
			}
		}
		if a := adviser.Advise(); a.Records != 1000000 {
			b.Fatal(a.Records)
		}
	}
}
