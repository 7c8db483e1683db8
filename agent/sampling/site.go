package sampling

import (
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/rules"
	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

// site is the node as package usage asks for it.
type site struct{ *Loop }

// Slot is the slot of a process whose job was admitted.
func (s site) Slot(pid int, started uint64) (usage.SlotKey, bool) {
	owner, ok := s.Jobs.StarterOf(pid)
	if !ok || !s.Processes.Runs(process.ID{PID: pid, Started: started}) {
		return usage.SlotKey{}, false
	}
	return rules.SlotKey(owner), true
}

// Reservations are the running slots. A docker universe job has none: which processes are its own is
// not known, and a slot without a process would count as one that uses nothing.
func (s site) Reservations() []usage.Reservation {
	n, running, together := s.Node(), s.Jobs.Running(), map[gpu.UUID]int{}
	for _, r := range running {
		together[r.GPU]++
	}
	var out []usage.Reservation
	for _, r := range running {
		g, ok := n.Plan.Find(r.GPU)
		if !ok || r.Work.Docker {
			continue
		}
		b := usage.Reservation{Slot: rules.SlotKey(r.Starter), Device: Device(g), Share: 1, Cap: 1}
		if r.Beside {
			b.Share = 1 / float64(max(1, together[r.GPU]))
		}
		if g.Shared() {
			b.Share = float64(r.Budget) / float64(max(g.Pool, 1))
		}
		if g.MPS() {
			b.MPS, b.Cap = true, n.capOf(r.GPU)
		}
		out = append(out, b)
	}
	return out
}

// Device is a GPU or MIG device of the plan in the words of package usage.
func Device(g *plan.GPU) usage.Device {
	if g.MIGDevice() {
		return usage.Device{GPU: g.Parent, MIG: g.Device}
	}
	return usage.Device{GPU: g.UUID}
}

// capOf is the part of a GPU's multiprocessors that its control daemon lets one client have. The
// daemon rounds down to what the hardware grants, so its percentage is an upper bound. Without
// privilege checks (up to driver 535) any account can raise it, and a server with other limits has
// its own.
func (n Node) capOf(u gpu.UUID) float64 {
	s := n.Daemons[u]
	if !n.PrivilegeChecks || s.Err != nil || s.Checked.PID == 0 || len(s.Checked.Stale) > 0 {
		return 1
	}
	return min(1, s.Wanted.ThreadPercentage/100)
}

// Server says that a process is an MPS server: a control daemon listed it, or has started it since
// it was last asked.
func (s site) Server(pid int, started uint64) bool {
	states := s.Node().Daemons
	for _, d := range states {
		for _, server := range d.Checked.States {
			if server.PID == pid && server.Started == started {
				return true
			}
		}
	}
	// Its name and its program do not count: any account may use them. Its parent does: the control
	// daemon that answered last, or the process that holds the daemon's lock now.
	return s.Processes.StartedBy(process.ID{PID: pid, Started: started}, func(parent process.ID) bool {
		for u, d := range states {
			if d.Checked.Process() == parent ||
				s.Daemons.QuickCheck(u, mps.Checked{PID: parent.PID, Started: parent.Started}).Err == nil {
				return true
			}
		}
		return false
	})
}
