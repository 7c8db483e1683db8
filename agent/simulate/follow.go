package simulate

import "math"

// follower lets MIG layouts follow the work that waits.
type follower struct {
	// at is the next look.
	at float64
}

func newFollower(*world) *follower { return &follower{at: math.Inf(1)} }

func (f *follower) wake(*world)                {}
func (f *follower) look(*world) error          { f.at = math.Inf(1); return nil }
func (f *follower) admits(*shape, *class) bool { return true }
