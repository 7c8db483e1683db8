package simulate

import "math"

// sums add a run up.
type sums struct {
	begin, last                   float64
	jobs, refused, started, ended int
	running, most                 int
	wait                          histogram
	run                           float64
	// What is busy now, the VRAM that was given to jobs and the part of it that they
	// asked for; and each of them over time.
	watts, gpus, sms, vram, asked, rate, work    float64
	joules, gpuTime, smTime, vramTime, askedTime float64
	idle, gpusAll, vramAll                       float64
	// starving: at the last negotiation somebody went without.
	starving                                          bool
	fullTime, fullDone, fullWork, fullVRAM, fullAsked float64
	changes, over                                     int
}

// pass lets time go by.
func (s *sums) pass(dt float64) {
	if dt <= 0 || math.IsInf(dt, 1) {
		return
	}
	s.joules += max(0, s.watts) * dt
	s.gpuTime += s.gpus * dt
	s.smTime += s.sms * dt
	s.vramTime += s.vram * dt
	s.askedTime += s.asked * dt
	if s.starving {
		s.fullTime += dt
		s.fullDone += s.rate * dt
		s.fullWork += s.work * dt
		s.fullVRAM += s.vram * dt
		s.fullAsked += s.asked * dt
	}
}

func (s *sums) change(watts, gpus, sms, vram, rate, work float64) {
	s.watts += watts
	s.gpus += gpus
	s.sms += sms
	s.vram += vram
	s.rate += rate
	s.work += work
}

func (s *sums) start(wait, asked float64) {
	s.started++
	s.running++
	s.most = max(s.most, s.running)
	s.asked += asked
	s.wait.add(wait)
}

func (s *sums) end(took, asked float64) {
	s.ended++
	s.running--
	s.asked -= asked
	s.run += took
}

// result is what a run has come to.
func (w *world) result() Result {
	s := &w.sums
	span := s.last - s.begin
	r := Result{
		Policy: w.policy.Name, Note: w.policy.Note, Jobs: s.jobs, Refused: s.refused, Started: s.started,
		Ended: s.ended, Hours: span / 3600,
		Wait:       WaitTimes{s.wait.mean(), s.wait.quantile(0.5), s.wait.quantile(0.95)},
		Concurrent: s.most, Changes: s.changes, Over: s.over,
	}
	if s.ended > 0 {
		r.MeanRun = s.run / float64(s.ended)
	}
	joules := s.joules + s.idle*span
	r.KWh = joules / 3.6e6
	if span > 0 {
		r.PerHour = float64(s.ended) / r.Hours
		r.GPUBusy = s.gpuTime / span / s.gpusAll
		r.SM = s.smTime / span / s.gpusAll
		r.VRAM = s.vramTime / span / s.vramAll
		r.Asked = s.askedTime / span / s.vramAll
	}
	if s.ended > 0 {
		r.KJPerJob = joules / 1000 / float64(s.ended)
	}
	if s.fullTime > 0 {
		all := s.vramAll * s.fullTime
		r.Full = &Full{Hours: s.fullTime / 3600, PerHour: s.fullDone / s.fullTime * 3600, Work: s.fullWork / s.fullTime,
			Stranded: 1 - s.fullVRAM/all, Unasked: (s.fullVRAM - s.fullAsked) / all}
	}
	return r
}
