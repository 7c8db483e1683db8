package server

import "sync"

// How many requests may be under way: of one account, far more than one node has slots, and of
// all accounts, a quarter of gpuslotd's descriptors (LimitNOFILE of its unit).
const (
	mostUnderWay      = 1024
	mostUnderWayInAll = 16384
)

// How many more may be under way of HTCondor's programs, with those of which it is not known yet
// whether they are.
const (
	mostBeyond      = 64
	mostBeyondInAll = 1024
)

// underWay counts the requests that are being answered, for each account and in all.
type underWay struct {
	each, all int
	exempt    func(uid uint32) bool

	mu  sync.Mutex
	of  map[uint32]int
	sum int
}

func newUnderWay(each, all int, exempt func(uid uint32) bool) *underWay {
	return &underWay{each: each, all: all, exempt: exempt, of: map[uint32]int{}}
}

// begin counts a request until end is called; where it is one too many ok is false, and
// it is not counted.
func (u *underWay) begin(uid uint32) (end func(), ok bool) {
	if u.exempt(uid) {
		return func() {}, true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.of[uid] >= u.each || u.sum >= u.all {
		return func() {}, false
	}
	u.of[uid]++
	u.sum++
	return func() { u.end(uid) }, true
}

func (u *underWay) end(uid uint32) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sum--
	if u.of[uid]--; u.of[uid] == 0 {
		delete(u.of, uid)
	}
}
