package mig_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpuslot/gpuslot/mig"
)

// A node's part of a demand never exceeds it, never falls while the work waits,
// and in the end is all of it.
func TestShareGrowsWithAge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := mig.Demand{Profile: rapid.StringN(1, 8, 16).Draw(t, "profile"), Count: rapid.IntRange(0, 5000).Draw(t, "count")}
		node, nodes := rapid.String().Draw(t, "node"), rapid.IntRange(0, 3000).Draw(t, "nodes")
		last := 0
		for _, age := range []time.Duration{0, time.Minute, 7 * time.Minute, time.Hour, 10 * time.Hour, 1000 * time.Hour} {
			d.Age = age
			got := mig.Share(node, nodes, d).Count
			if got < last || got > d.Count {
				t.Fatalf("after %s the share of %d is %d, before it was %d", age, d.Count, got, last)
			}
			last = got
		}
		if last != d.Count {
			t.Fatalf("after 1000 hours the share of %d on %d nodes is %d", d.Count, nodes, last)
		}
	})
}

// Fresh work is shared out about once among all nodes: neither by all of them
// nor by none.
func TestSharesSumToDemand(t *testing.T) {
	for _, c := range []struct{ jobs, nodes int }{{1, 1}, {20, 200}, {300, 100}, {1000, 1000}} {
		sum := 0
		for n := range c.nodes {
			sum += mig.Share(fmt.Sprintf("wn%03d.example.org", n), c.nodes, mig.Demand{Profile: "3g.20gb", Count: c.jobs}).Count
		}
		if sum < c.jobs/2 || sum > 2*c.jobs {
			t.Errorf("%d jobs on %d nodes: %d in all", c.jobs, c.nodes, sum)
		}
	}
}
