package budget

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/gpu"
)

func TestMissing(t *testing.T) {
	part := func(budget, used gpu.MiB) Part { return Part{budget, gpu.Bytes(used.Bytes())} }
	for name, c := range map[string]struct {
		free         gpu.MiB
		jobs         []Part
		taken, eaten gpu.MiB
	}{
		"empty":                             {free: 14848},
		"half of it is in use unseen":       {free: 7424, taken: 7424 - 512},
		"all of it is":                      {free: 0, taken: 14336},
		"jobs within their budgets":         {free: 14848 - 3000, jobs: []Part{part(4096, 1000), part(4096, 2000)}},
		"T4 under MPS: 901 of 1417":         {free: 14848 - 1417, jobs: []Part{part(4096, 258), part(4096, 258)}, taken: 389},
		"it takes what no job has":          {free: 14848 - 6144 - 6656, jobs: []Part{part(8192, 6144)}, taken: 6144},
		"it eats into a job's budget":       {free: 14848 - 6144 - 6657, jobs: []Part{part(8192, 6144)}, taken: 6144, eaten: 1},
		"a full pool, and 2048 MiB unseen":  {free: 14848 - 2048, jobs: []Part{part(14336, 0)}, eaten: 1536},
		"a job beyond its budget":           {free: 14848 - 9000, jobs: []Part{part(8192, 9000)}, taken: 296},
		"a pool that shrank below its jobs": {free: 512, jobs: []Part{part(20000, 14336)}, eaten: 5152},
	} {
		b := Reserved{Pool: 14336, Free: gpu.Bytes(c.free.Bytes()), Jobs: c.jobs}
		if taken, eaten := b.Missing(); taken != c.taken || eaten != c.eaten {
			t.Errorf("%s: taken %s, eaten %s, want %s and %s", name, taken, eaten, c.taken, c.eaten)
		}
	}
}

// TestMissingLeavesRoom: whatever new jobs are given of what is left, all budgets can be used in
// full, and a job that starts changes nothing.
func TestMissingLeavesRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Reserved{Pool: 32768, Free: gpu.Bytes(rapid.Int64Range(0, 33000<<20).Draw(t, "free"))}
		for _, n := range rapid.SliceOfN(rapid.Int64Range(64, 8192), 0, 6).Draw(t, "budgets") {
			used := gpu.Bytes(rapid.Int64Range(0, n<<20).Draw(t, "used"))
			b.Jobs = append(b.Jobs, Part{gpu.MiB(n), used})
		}
		taken, eaten := b.Missing()
		room := b.Pool - taken
		promised := uint64(0)
		for _, p := range b.Jobs {
			room -= p.Budget
			promised += p.Budget.Bytes() - uint64(p.Used)
		}
		if room < 64 {
			return
		}
		if eaten != 0 || promised+room.Bytes() > uint64(b.Free) {
			t.Fatalf("%+v: %s for new jobs, %s eaten", b, room, eaten)
		}
		b.Jobs = append(b.Jobs, Part{Budget: room})
		if after, eaten := b.Missing(); after != min(taken, max(0, b.Pool-sum(b.Jobs))) || eaten != 0 {
			t.Fatalf("with a job of %s: taken %s after %s, eaten %s", room, after, taken, eaten)
		}
	})
}

func sum(jobs []Part) (n gpu.MiB) {
	for _, p := range jobs {
		n += p.Budget
	}
	return n
}
