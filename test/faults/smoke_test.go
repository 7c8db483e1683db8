package faults

import (
	"testing"
	"time"
)

func TestSmoke(t *testing.T) {
	n := newNode(t, "555.58.02", "")
	s := newStartd(n, 1)
	begin := time.Now()
	for {
		st, err := n.status()
		if err == nil && len(st.GPUs) == gpus && st.GPUs[3].Accept {
			break
		}
		if time.Since(begin) > 10*time.Second {
			t.Fatal(err, st, n.log.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Log("open after", time.Since(begin))
	for g := range gpus {
		s.fill(g, shares)
	}
	t.Log("filled after", time.Since(begin), s.admitted, s.refused)
	time.Sleep(time.Second)
	t.Log(n.simgpu("show"))
	for _, j := range s.jobs[:2] {
		t.Log(j, j.output(), j.disturbed(), j.env())
	}
	s.clear()
	t.Log("ended after", time.Since(begin))
	t.Log(n.log.String())
}
