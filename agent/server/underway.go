package server

import (
	"slices"
	"sync"

	"github.com/gpuslot/gpuslot/agent/room"
)

// How many requests may be under way: of one account, far more than one node has slots, and of
// all accounts, a quarter of gpuslotd's descriptors (LimitNOFILE of its unit).
const (
	mostUnderWay      = 1024
	mostUnderWayInAll = 16384
)

// How many more may be under way of HTCondor's programs, of one owner (room.Owners) and of all, with
// those of which it is not known yet whether they are.
const (
	mostBeyond      = 64
	mostBeyondInAll = 1024
)

// How many bytes of replies may wait for callers that do not read them, beyond the first shortReply of each: of one
// account and of all. A reply with a job's environment can be three times as long as the request.
const (
	shortReply       = 16 << 10
	mostReplies      = 8 << 20
	mostRepliesInAll = 32 << 20
)

// underWay counts the requests that are being answered, or their bytes, for each account and in all.
type underWay struct {
	each, all int
	exempt    func(uid uint32) bool

	mu  sync.Mutex
	of  map[uint64]int // of each room.Part
	sum int
}

func newUnderWay(each, all int, exempt func(uid uint32) bool) *underWay {
	return &underWay{each: each, all: all, exempt: exempt, of: map[uint64]int{}}
}

// begin counts a request of an account and its owner until end is called; where it is one too many ok
// is false, and it is not counted.
func (u *underWay) begin(uid, owner uint32) (end func(), ok bool) { return u.beginMany(uid, owner, 1) }

// beginMany is begin for so many.
func (u *underWay) beginMany(uid, owner uint32, n int) (end func(), ok bool) {
	if n <= 0 || u.exempt(uid) {
		return func() {}, true
	}
	parts := room.Parts(uid, owner, u.each, u.all)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sum+n > u.all || slices.ContainsFunc(parts, func(p room.Part) bool { return u.of[p.Key]+n > p.Most }) {
		return func() {}, false
	}
	for _, p := range parts {
		u.of[p.Key] += n
	}
	u.sum += n
	return func() { u.end(parts, n) }, true
}

func (u *underWay) end(parts []room.Part, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sum -= n
	for _, p := range parts {
		if u.of[p.Key] -= n; u.of[p.Key] == 0 {
			delete(u.of, p.Key)
		}
	}
}
