package record

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestReadSkipsWhatIsNoRecord(t *testing.T) {
	text := `{"slot":"slot1_1","gpu":"GPU-5a1e0c11-0000-4000-8000-000000000001","begin":"2026-11-01T00:00:00Z","end":"2026-11-01T00:01:30Z"}
{"slot":"slot1_2","gpu":"GPU-5a1e0c11-0000-4000-8000-000000000001","beg
{"slot":"slot1_3","begin":"2026-11-01T00:01:30Z","end":"2026-11-01T00:00:00Z"}

{"slot":"slot1_4","gpu":"GPU-5a1e0c11-0000-4000-8000-000000000001","begin":"2026-11-01T00:00:00Z","end":"2026-11-01T00:00:01Z","new_key":1}`
	var got []Job
	skipped, err := Read(strings.NewReader(text), func(j Job) { got = append(got, j) })
	if err != nil || skipped != 2 || len(got) != 2 || got[0].Seconds() != 90 || got[1].Slot != "slot1_4" {
		t.Fatalf("%v, skipped %d, %v", got, skipped, err)
	}
}

func TestReadOfAnotherFile(t *testing.T) {
	_, err := Read(bytes.NewReader(make([]byte, 1<<20)), func(Job) { t.Error("no record") })
	if err == nil || !strings.Contains(err.Error(), "no file of gpuslot's records") {
		t.Fatal(err)
	}
}

// FuzzParse: what is read as a record can be written and read again, the same.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"slot":"slot1_1","gpu":"GPU-5a1e0c11-0000-4000-8000-000000000001","begin":"2026-11-01T00:00:00Z","end":"2026-11-01T00:01:30Z","vram_curve":{"seconds":2,"mib":[1,-1]}}`))
	f.Add([]byte(`{"slot":"s","end":"2026-11-01T00:01:30+14:00","requested":{"gpus":0.5}}`))
	f.Add([]byte(`{"slot":"s","end":"2026-11-01T00:01:30+24:00"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		j, ok := Parse(line)
		if !ok {
			return
		}
		if j.End.IsZero() || j.Seconds() < 0 {
			t.Fatalf("took %+v", j)
		}
		text, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		again, ok := Parse(text)
		second, _ := json.Marshal(again)
		if !ok || !bytes.Equal(text, second) {
			t.Fatalf("%s became %s", text, second)
		}
		if !again.End.Round(time.Second).Equal(j.End.Round(time.Second)) {
			t.Fatalf("the end moved from %v to %v", j.End, again.End)
		}
	})
}
