package room

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	// mostSubuid is how much of the file is read.
	mostSubuid = 1 << 20
	// IPA and SSSD give ranges of 65,536 from here on, which no file names. There are no accounts of users.
	firstOfServices = 1 << 31
	rangeOfServices = 1 << 16
)

// Owners say which accounts count as one in what their requests may cost. A user with a range in
// /etc/subuid is all accounts of it to the kernel. Users of a directory often have neighbouring uids, so
// no other accounts below firstOfServices count as one. If it is nil, it reads no file.
type Owners struct {
	file string

	mu sync.Mutex
	// read is the file whose ranges these are; nil if there is none.
	read   fs.FileInfo
	ranges []span
}

// span is the accounts of one owner, which has the name of the first.
type span struct{ first, last uint32 }

// NewOwners are those of a file such as /etc/subuid, which it is where empty.
func NewOwners(file string) *Owners { return &Owners{file: cmp.Or(file, "/etc/subuid")} }

// Of is the owner of an account: the first account of its range, or itself.
func (o *Owners) Of(uid uint32) uint32 {
	ranges := o.current()
	i, is := slices.BinarySearchFunc(ranges, uid, func(s span, uid uint32) int { return cmp.Compare(s.first, uid) })
	if !is {
		i--
	}
	switch {
	case i >= 0 && uid <= ranges[i].last:
		return ranges[i].first
	case uid >= firstOfServices:
		return Block(uid)
	default:
		return uid
	}
}

// Part is one bound of a caller: how many of those with its key may have a place.
type Part struct {
	Key  uint64
	Most int
}

// Parts are the bounds of an account: its own, which the accounts of a named range share, and half of all
// places for the 65,536 accounts around its owner. A range that no file names is such accounts, each an
// owner; so are the users of a directory.
func Parts(uid, owner uint32, each, all int) []Part {
	if uid < firstOfServices {
		uid = owner
	}
	return []Part{{uint64(uid), each}, {1<<32 | uint64(cmp.Or(Block(owner), owner)), max(each, all/2)}}
}

// Block has the name of the first of the 65,536 accounts around one; 0 for those below 65,536.
func Block(owner uint32) uint32 { return owner &^ (rangeOfServices - 1) }

// current are the ranges of the file as it is, or as it could last be read.
func (o *Owners) current() []span {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now, err := os.Stat(o.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		o.read, o.ranges = nil, nil
	case err != nil || !now.Mode().IsRegular(), o.read != nil && same(now, o.read):
	default:
		if text, err := readSubuid(o.file); err == nil {
			o.read, o.ranges = now, parseSubuid(text)
		}
	}
	return o.ranges
}

func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// readSubuid reads the whole lines of a file up to mostSubuid.
func readSubuid(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, mostSubuid+1))
	text := string(b)
	if len(text) > mostSubuid {
		text = text[:strings.LastIndexByte(text[:mostSubuid], '\n')+1]
	}
	return text, err
}

// parseSubuid reads lines of name:first:count, and leaves out what is no such line. The ranges are in
// order, and those that overlap are one: their users can be the same accounts. Root has no bounds, and its
// ranges for containers may hold the accounts of users (LXD: root:1000000:1000000000).
func parseSubuid(text string) []span {
	var all []span
	for line := range strings.Lines(text) {
		name, numbers, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "" || name == "root" || name == "0" || name[0] == '#' {
			continue
		}
		from, count, _ := strings.Cut(numbers, ":")
		first, no := strconv.ParseUint(from, 10, 32)
		n, none := strconv.ParseUint(count, 10, 32)
		if no != nil || none != nil || n == 0 || first+n > 1<<32 {
			continue
		}
		all = append(all, span{uint32(first), uint32(first + n - 1)})
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	var apart []span
	for _, s := range all {
		if end := len(apart) - 1; end >= 0 && s.first <= apart[end].last {
			apart[end].last = max(apart[end].last, s.last)
			continue
		}
		apart = append(apart, s)
	}
	return apart
}
