package mig

import (
	"hash/fnv"
	"math"
	"time"
)

// widen is the time in which as many nodes again turn to work that waits.
const widen = 10 * time.Minute

// Share is one node's part of a demand that all nodes of a pool see, so that one
// waiting job does not make each of them change a layout. Nodes need not talk:
// each draws its lot from its own name and the profile, always the same, and
// the longer the work has waited the more lots win, until all do. A node that has
// won stays a winner for as long as the demand lasts, which a reservation needs.
// Less than two nodes means that this one is alone.
func Share(node string, nodes int, d Demand) Demand {
	if nodes < 2 || d.Count <= 0 {
		return d
	}
	each := float64(d.Count) / float64(nodes) * (1 + float64(max(d.Age, 0))/float64(widen))
	whole := math.Floor(each)
	if lot(node, d.Profile) < each-whole {
		whole++
	}
	d.Count = int(min(whole, float64(d.Count)))
	return d
}

// lot is a number from 0 up to 1.
func lot(node, profile string) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node + "\x00" + profile))
	x := h.Sum64()
	x ^= x >> 33 // FNV alone leaves names that differ in the last letter near each other
	x *= 0xff51afd7ed558ccd
	return float64(x>>11) / (1 << 53)
}
