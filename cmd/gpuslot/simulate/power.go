package simulate

import "github.com/gpuslot/gpuslot/cmd/gpuslot/sharing"

// activity is what the jobs of one slot keep busy, and how fast they are.
type activity struct {
	// kernel is how much of the time some job's kernel runs, summed over jobs; sms is
	// how many GPUs' multiprocessors are busy, threads how many CPUs.
	kernel, sms, threads float64
	// rate is the number of jobs done in a second, work their time alone on their GPUs.
	rate, work float64
	// gpus is how many GPUs have a job, 1 for a shared one.
	gpus float64
	// vram is what was given to jobs.
	vram float64
}

// add counts one job.
func (a *activity) add(p *sharing.Part, contention, total float64, r *run, sh *shape, stretch float64) {
	w := r.job.work()
	gpus := 1.0
	if sh.kind == whole {
		gpus = float64(r.takes.gpus)
	}
	a.kernel += gpus * contention * p.Kernel / total
	a.sms += gpus * p.SMs * sh.hw.sms / total
	a.threads += float64(r.takes.cpus) * stretch * w.Seconds * (1 - w.Kernel) / total
	a.rate += 1 / total
	a.work += gpus * (w.Seconds + w.Dead) / total
	a.vram += float64(r.takes.vram)
	a.gpus += gpus
	if sh.kind == shared {
		a.gpus = 1
	}
}

// account replaces what a slot kept busy. A kernel runs on a GPU at most all the
// time, whatever its slots add up to.
func (w *world) account(s *slot, sh *shape, now activity) {
	was := s.does
	active := now.kernel - was.kernel
	gpus := now.gpus - was.gpus
	if s.gpu >= 0 {
		before := w.busy[s.gpu]
		after := max(0, before+active)
		if now.kernel == 0 && after < 1e-9 {
			after = 0
		}
		w.busy[s.gpu] = after
		active = min(1, after) - min(1, before)
		gpus = w.occupied(s, now)
	}
	watts := sh.power.Active*active + sh.power.Full*(now.sms-was.sms) + sh.power.Thread*(now.threads-was.threads)
	w.sums.change(watts, gpus, now.sms-was.sms, now.vram-was.vram, now.rate-was.rate, now.work-was.work)
	s.does = now
}

// occupied is by how much the number of GPUs with a job changes: a GPU with several
// MIG devices counts once.
func (w *world) occupied(s *slot, now activity) float64 {
	if (now.gpus > 0) == (s.does.gpus > 0) {
		return 0
	}
	n := w.nodes[s.node]
	for i := n.first; i < n.last; i++ {
		o := &w.slots[i]
		if o != s && o.gpu == s.gpu && o.does.gpus > 0 {
			return 0
		}
	}
	return now.gpus - s.does.gpus
}
