package usage

// Part is somebody who may have used a device in an interval: a slot, or all the processes in no slot together.
type Part struct {
	// Cap is the largest share of the device's multiprocessors that it can have had, 0 to 1.
	Cap float64
	// Weight is what it is thought to have wanted, at most Cap; 0 if nothing was seen of it.
	Weight float64
}

// Range is a share of the multiprocessors' time, 0 to 1: Lower <= Estimate <= Upper.
type Range struct{ Lower, Estimate, Upper float64 }

// Division is the activity of a device divided among its parts.
type Division struct {
	// Parts in the order they were given.
	Parts []Range
	// Rest is the activity that the estimates leave over.
	Rest float64
	// Beyond is activity that no part can have caused: some cap is not
	// enforced, or somebody is missing. The bounds are wrong by so much.
	Beyond float64
}

// Divide gives each part its share of a device's activity (the mean share of busy multiprocessors, 0 to 1). For the
// share u_i of the multiprocessors' time in which part i had work, whatever the schedule and with overlap: u_i <= c_i,
// u_i <= A and A <= Σ u_j. So the bounds are
//
//	U_i = min(c_i, A)   L_i = max(0, A - Σ_{j≠i} min(c_j, A))
//
// and hold if every part is there and every cap is enforced. The estimate fills
// up the weights in proportion, then the caps; it is a guess.
func Divide(activity float64, parts []Part) Division {
	d := bounds(activity, parts)
	var weights, caps float64
	for _, p := range parts {
		weights += p.Weight
		caps += p.Cap
	}
	left := activity
	for i, p := range parts {
		e := p.Weight
		if weights > activity {
			e *= activity / weights
		} else if room := caps - weights; room > 0 {
			e += (p.Cap - p.Weight) * min(1, (activity-weights)/room)
		}
		left -= d.put(i, e)
	}
	d.Rest = max(left, 0)
	return d
}

// DivideMeasured divides by what was measured of each part: the weights are
// shares of time, and what they do not explain stays over.
func DivideMeasured(activity float64, parts []Part) Division {
	d := bounds(activity, parts)
	var lower, sum float64
	for i, p := range parts {
		lower += d.Parts[i].Lower
		sum += d.put(i, p.Weight)
	}
	if sum > activity && sum > lower {
		scale := max(activity-lower, 0) / (sum - lower)
		sum = 0
		for i, r := range d.Parts {
			sum += d.put(i, r.Lower+(r.Estimate-r.Lower)*scale)
		}
	}
	d.Rest = max(activity-sum, 0)
	return d
}

// put sets an estimate, inside the bounds whatever the rounding, and returns it.
func (d *Division) put(i int, estimate float64) float64 {
	r := &d.Parts[i]
	r.Estimate = min(max(estimate, r.Lower), r.Upper)
	return r.Estimate
}

func bounds(activity float64, parts []Part) Division {
	d := Division{Parts: make([]Range, len(parts))}
	var sum float64
	for _, p := range parts {
		sum += min(p.Cap, activity)
	}
	d.Beyond = max(activity-sum, 0)
	for i, p := range parts {
		upper := min(p.Cap, activity)
		d.Parts[i] = Range{Lower: min(max(activity-(sum-upper), 0), upper), Upper: upper}
	}
	return d
}
