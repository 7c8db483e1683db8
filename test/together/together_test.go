package together

import (
	"context"
	"sync/atomic"
	"testing"
)

type shared struct{ read, wrote, left atomic.Int64 }

func (s *shared) Read(context.Context, string) int { return int(s.read.Add(1)) }
func (s *shared) Write(n int64, more ...string)    { s.wrote.Add(n + int64(len(more))) }
func (s *shared) Wait()                            { s.left.Add(1) }

// TestMethods: every method is called with what fits, but for those left out.
func TestMethods(t *testing.T) {
	var s shared
	var called atomic.Int64
	Methods(t, &s, "text", int64(2), Except{"Wait"}, Call(func() { called.Add(1) }))
	if s.read.Load() != 2*rounds || s.wrote.Load() != 3*2*rounds || s.left.Load() != 0 || called.Load() != 2*rounds {
		t.Errorf("read %d, wrote %d, left out %d, called %d", s.read.Load(), s.wrote.Load(), s.left.Load(), called.Load())
	}
}
