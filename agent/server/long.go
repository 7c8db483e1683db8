package server

import (
	"errors"
	"fmt"
	"io"
)

// How many requests may be longer than shortRequest at a time: of one account and of all. What gpuslot's programs send
// is shorter. Until the reply to a job ad is made, gpuslotd allocates up to 80 times the ad's length.
const (
	shortRequest  = 16 << 10
	mostLong      = 32
	mostLongInAll = 128
)

// errLong is the error of a long request while there are too many others.
var errLong = fmt.Errorf("gpuslotd keeps too much of long requests at this time: ask again, or with less than %d KiB",
	shortRequest>>10)

// longReader reads one request, which counts from its byte after the first shortRequest until done is called.
type longReader struct {
	r     io.Reader
	begin func() (end func(), ok bool)
	read  int
	end   func() // nil where it does not count
}

func (s *Server) longReader(r io.Reader, uid uint32) *longReader {
	return &longReader{r: r, begin: func() (end func(), ok bool) { return s.long.begin(uid, s.Owners.Of(uid)) }}
}

// Read returns errLong where there are too many others.
func (r *longReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.read += n
	if r.read <= shortRequest || r.end != nil {
		return n, err
	}
	end, ok := r.begin()
	if !ok {
		return 0, errors.Join(errLong, err)
	}
	r.end = end
	return n, err
}

// done ends the count: nothing of the request is kept any more.
func (r *longReader) done() {
	if r.end != nil {
		r.end()
	}
	r.end = nil
}
