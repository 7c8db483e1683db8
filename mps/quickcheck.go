package mps

import "github.com/gpuslot/gpuslot/gpu/process"

// QuickCheck is what can be seen of a proven daemon without talking to it.
type QuickCheck struct {
	// Err says what became of the daemon: see StillRuns. Nil: the proven
	// process holds its lock and runs.
	Err error
	// Died are servers of the health check whose processes have ended since.
	Died []Server
	// Suspended are servers stopped by a signal or a debugger: their clients
	// wait, and the daemon hangs when it asks them.
	Suspended []Server
}

// OK says that everything of the health check is alive.
func (p QuickCheck) OK() bool { return p.Err == nil && len(p.Died) == 0 && len(p.Suspended) == 0 }

// QuickCheck looks at the daemon of an earlier health check and at its servers, in
// microseconds: by the control lock and by PID and start time in /proc. It
// says nothing about limits, and nothing about servers that came since. A
// server also ends in good order, when it makes way for another account's.
func (d *Daemon) QuickCheck(p Checked) QuickCheck {
	out := QuickCheck{Err: d.StillRuns(p)}
	for _, s := range p.States {
		now, err := proc.Stat(s.PID)
		switch {
		case process.Gone(err) || err == nil && (now.Ended() || now.ID != s.ID):
			out.Died = append(out.Died, s)
		case err == nil && (now.State == 'T' || now.State == 't'):
			out.Suspended = append(out.Suspended, s)
		}
	}
	return out
}
