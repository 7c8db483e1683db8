package mig_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mig"
)

var morning = time.Date(2026, time.March, 1, 6, 0, 0, 0, time.UTC)

// classic is a chip with its five plain profiles only, which is enough here.
func classic(t testing.TB) gpu.Chip {
	c := chip(t, "A100-40")
	c.Profiles = slices.DeleteFunc(slices.Clone(c.Profiles), func(p gpu.Profile) bool {
		return strings.Contains(p.Name, "+") || p.Name == "1g.10gb"
	})
	return c
}

func auto() mig.Rules {
	r := mig.DefaultRules()
	r.Repartition = mig.Auto
	return r
}

// pond is a node on which decisions are carried out at once, with jobs that end
// by the clock. It breaks the test when a decision breaks a promise.
type pond struct {
	fatal     func(string, ...any)
	catalogue mig.Catalogue
	rules     mig.Rules
	gpus      []gpu.MIGGPU
	past      mig.Past
	now       time.Time
	// ends are the times of jobs, born those of instances.
	ends, born map[string]time.Time
	changes    map[int][]time.Time
	destroyed  int
	last       mig.Decision
}

func newPond(t interface{ Fatalf(string, ...any) }, r mig.Rules, gpus ...gpu.MIGGPU) *pond {
	return &pond{fatal: t.Fatalf, rules: r, gpus: gpus, now: morning, ends: map[string]time.Time{}, born: map[string]time.Time{}, changes: map[int][]time.Time{}}
}

func key(g int, p gpu.Place) string { return fmt.Sprint(g, p.Profile, p.Start) }

// look lets a minute pass, ends jobs, and carries out what is decided.
func (p *pond) look(demand ...mig.Demand) mig.Decision {
	p.now = p.now.Add(time.Minute)
	for g := range p.gpus {
		for i := range p.gpus[g].Instances {
			in := &p.gpus[g].Instances[i]
			if end, busy := p.ends[key(g, in.Place)]; busy && !p.now.Before(end) {
				delete(p.ends, key(g, in.Place))
				in.Holders = nil
			}
			if _, known := p.born[key(g, in.Place)]; !known {
				p.born[key(g, in.Place)] = p.now
			}
		}
	}
	before, _ := json.Marshal(p.past)
	d, past, err := mig.Decide(&p.catalogue, p.rules, p.past, mig.Sight{At: p.now, GPUs: p.gpus, Demand: demand})
	if err != nil {
		p.fatal("%s", err)
	}
	if after, _ := json.Marshal(p.past); string(after) != string(before) {
		p.fatal("the past was changed in place")
	}
	if d.Why == "" {
		p.fatal("no reason for %s", d.Act)
	}
	p.past, p.last = past, d
	if d.Act == mig.Replan {
		p.carryOut(*d.Plan)
	}
	return d
}

func (p *pond) carryOut(plan mig.Plan) {
	if len(plan.Steps) == 0 {
		p.fatal("a change without steps")
	}
	for n, gp := range plan.GPUs {
		g := &p.gpus[n]
		if len(gp.Created)+len(gp.Destroyed) == 0 {
			continue
		}
		if err := mig.Legal(g.Chip, gp.Layout); err != nil {
			p.fatal("%s", err)
		}
		var left []gpu.Instance
		for _, in := range g.Instances {
			k := key(n, in.Place)
			switch {
			case gp.Layout.Contains(in.Place):
				left = append(left, in)
				continue
			case in.Pinned():
				p.fatal("%s destroys %s, which is pinned", gp.After, g.Chip.FormatPlace(in.Place))
			case p.now.Sub(p.born[k]) < p.rules.Dwell:
				p.fatal("%s is destroyed after %s", g.Chip.FormatPlace(in.Place), p.now.Sub(p.born[k]))
			}
			delete(p.born, k)
			p.destroyed++
		}
		had := g.Layout()
		for i, at := range gp.Layout.Without(had) {
			left = append(left, gpu.Instance{Place: at, ID: 100 + i, Owner: gpu.Ours})
			p.born[key(n, at)] = p.now
		}
		g.Instances = left
		p.changes[n] = append(p.changes[n], p.now)
		recent := slices.DeleteFunc(slices.Clone(p.changes[n]), func(t time.Time) bool { return p.now.Sub(t) >= time.Hour })
		if len(recent) > p.rules.PerHour {
			p.fatal("%d changes of GPU %d in an hour", len(recent), n)
		}
	}
}

// kept tells whether no job may start on an instance.
func (p *pond) kept(g int, at gpu.Place) bool {
	return slices.ContainsFunc(p.last.Reserved, func(r mig.Reservation) bool { return r.GPU == p.gpus[g].UUID && r.Keep.Contains(at) })
}

// fill starts jobs on idle instances; it returns how many on the profile.
func (p *pond) fill(profile gpu.ProfileID, lasts func() time.Duration) (n int) {
	for g := range p.gpus {
		for i := range p.gpus[g].Instances {
			in := &p.gpus[g].Instances[i]
			if in.Pinned() || p.kept(g, in.Place) {
				continue
			}
			if in.Profile == profile {
				n++
			}
			in.Holders = []gpu.Holder{{Slot: "slot1_1"}}
			p.ends[key(g, in.Place)] = p.now.Add(lasts())
		}
	}
	return n
}

// Whatever comes, no pinned instance is touched, nothing young is destroyed, and no hour
// has more changes than allowed: carryOut sees to it.
