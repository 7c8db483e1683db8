package server

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// How much of requests is kept. What the hook sends is a few KiB, and all requests
// together may have mostLong beyond the first shortRequest of each.
const (
	shortRequest = 16 << 10
	mostLong     = 32 << 20
)

// errLong is the error of a long request while too much of others is kept.
var errLong = fmt.Errorf("gpuslotd keeps too much of long requests at this time: ask again, or with less than %d KiB",
	shortRequest>>10)

// long bounds what is kept of all long requests.
type long struct {
	most int64
	kept atomic.Int64
}

// reader reads one request, and keeps its bytes counted until done is called.
func (l *long) reader(r io.Reader) *longReader { return &longReader{long: l, r: r} }

type longReader struct {
	long *long
	r    io.Reader
	read int64
	kept int64
}

// Read returns errLong where what it read is too much. The error is then that of each read.
func (r *longReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.read += int64(n)
	if more := r.read - shortRequest - r.kept; more > 0 {
		r.kept += more
		if r.long.kept.Add(more) > r.long.most {
			return 0, errors.Join(errLong, err)
		}
	}
	return n, err
}

// done ends the count: nothing of the request is kept any more.
func (r *longReader) done() {
	r.long.kept.Add(-r.kept)
	r.kept = 0
}
