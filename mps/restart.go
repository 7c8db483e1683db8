package mps

import "context"

// Restart ends a control daemon with its servers and starts it again with its
// limits. Clients die with their server: end them first (EndClients).
func (s *Daemons) Restart(ctx context.Context, w Wanted) Result {
	if r := s.drop(ctx, w.GPU); r.Err != nil {
		return r
	}
	return s.have(ctx, w)
}
