package published

import "fmt"

// Results are all results, in the order of the sources.
func Results() []Result {
	var out []Result
	out = append(out, kit()...)
	out = append(out, cern()...)
	out = append(out, others()...)
	return out
}

// exactly is a result with one number.
func exactly(key, source, what string, v float64, use Use) Result {
	return Result{Key: key, Source: source, What: what, Low: v, High: v, Use: use}
}

func kit() []Result {
	const figure2, table1, table2 = KIT + ", Figure 2", KIT + ", Table 1", KIT + ", Table 2"
	out := []Result{
		{Key: "kit-figure2-mps", Source: figure2, What: "throughput with 12 copies on one A100, MPS by time slicing",
			Low: 4.5, High: 5, Use: Predicted,
			Note: "printed as close to 5; Table 1's 41.43 by 10.56 minutes allow no more than 3.92"},
		{Key: "kit-figure2-flat", Source: figure2, What: "run time of 12 copies with MPS by that of one",
			Low: 1, High: 1.1, Use: Predicted, Note: "printed as almost flat"},
	}
	all := KITModes()
	exclusive := all[1]
	keys := []string{"cpu", "exclusive", "slicing", "mps", "mig"}
	// What is fitted: kernels' part of the time to simple sharing; the fastest MIG device; the
	// machine's power to the first three modes; the dead time to simple sharing.
	minutes := []Use{2: Fitted, 3: Predicted, 4: Fitted}
	power := []Use{Fitted, Fitted, Fitted, Predicted, Predicted}
	epochs := []Use{2: Fitted, 3: Predicted, 4: Predicted}
	for i, m := range all {
		if i >= 2 {
			what := "run time in minutes, " + m.Name
			out = append(out, exactly("kit-minutes-"+keys[i], table1, what, m.Minutes, minutes[i]))
		}
		watts := exactly("kit-watts-"+keys[i], table1, "power in watts, "+m.Name, m.Watts, power[i])
		kJ := exactly("kit-kj-"+keys[i], table1, "energy of a training in kJ, "+m.Name, m.KJ, power[i])
		watts.Doubt, kJ.Doubt = KITDoubt, KITDoubt
		out = append(out, watts, kJ)
	}
	for i, use := range epochs[2:] {
		m := all[2:][i]
		out = append(out, exactly("kit-htcondor-"+keys[2:][i], table2, "throughput in HTCondor by exclusive use, "+m.Name,
			m.EpochsPerSecond/exclusive.EpochsPerSecond, use))
	}
	rate := func(m KITMode) float64 { return float64(m.Instances) / m.Minutes }
	for i, use := range minutes[3:] {
		m := all[3:][i]
		what := "gain by exclusive use, " + m.Name
		out = append(out,
			exactly("kit-advise1-"+m.Name, table1, what, rate(m)/rate(exclusive), use),
			exactly("kit-advise2-"+m.Name, table2, what, m.EpochsPerSecond/exclusive.EpochsPerSecond, Predicted))
	}
	return out
}

func cern() []Result {
	var out []Result
	for _, f := range CERNAll() {
		for i, p := range Partitions() {
			what := f.Format + " on " + p + " by MIG off"
			out = append(out, exactly("cern-"+f.Format+"-"+p, CERN+", FLOPS", what, f.On[i]/f.Off, Fitted))
		}
	}
	for _, w := range cernTimes() {
		what := "run time on 7g by MIG off, " + w.work
		out = append(out, exactly("cern-"+w.work, CERN+", loss by MIG", what, w.on/w.off, Predicted))
	}
	scaled := func(key, what string, low, high float64) {
		out = append(out, Result{Key: key, Source: CERN + ", scaling", What: what, Low: low, High: high, Use: Predicted,
			Note: "7g by MIG off, times the printed ratio of instances"})
	}
	scaled("cern-simulation-3g", "run time on 3g by MIG off, simulation", 1.0891*2.16, 1.0937*2.20)
	scaled("cern-simulation-2g", "run time on 2g by MIG off, simulation", 1.0891*2.16*1.48, 1.0937*2.20*1.49)
	scaled("cern-simulation-1g", "run time on 1g by MIG off, simulation", 1.0891*2.16*1.48*1.97, 1.0937*2.20*1.49*1.98)
	scaled("cern-training-3g", "run time on 3g by MIG off, training", 1.0304*1.77, 1.0390*1.82)
	return out
}

func others() []Result {
	whole, on := GROMACS()
	out := []Result{
		exactly("njit-1g", NJIT, "GROMACS on 1g.10gb by the whole GPU", on[2]/whole, Fitted),
		exactly("njit-2g", NJIT, "GROMACS on 2g.20gb by the whole GPU", on[1]/whole, Predicted),
		exactly("njit-3g", NJIT, "GROMACS on 3g.40gb by the whole GPU", on[0]/whole, Predicted),
		{Key: "cern-training-2g", Source: CERN + ", scaling", What: "run time on 2g by 4g, training", Low: 1.87, High: 1.88,
			Use: Open, Note: "the time on 4g is not known"},
		{Key: "cern-training-1g", Source: CERN + ", scaling", What: "run time on 1g by 2g, training", Low: 1.93, High: 1.94,
			Use: Open, Note: "the time on 2g is not known"},
		{Key: "migperf-energy", Source: MIGPerf, What: "energy of a request, small by large instance",
			Use: Open, Note: "the larger instance uses less"},
		{Key: "migperf-tail", Source: MIGPerf, What: "tail latency at batch 8, MPS by MIG",
			Use: Open, Note: "MIG is steadier"},
	}
	for _, o := range []struct {
		source, what string
		value        float64
	}{
		{Spatial, "performance by MPS, favourable mix", 1.30},
		{Spatial, "energy by MPS, favourable mix", 0.80},
		{Spatial, "performance by MPS, contended memory", 0.70},
		{Dynamic, "throughput by MIG, general work", 6.20},
		{Dynamic, "energy by MIG, general work", 5.93},
		{Dynamic, "throughput by MIG, machine learning", 1.59},
		{Dynamic, "energy by MIG, machine learning", 1.12},
		{Dynamic, "throughput by MIG, language models", 1.43},
		{Dynamic, "energy by MIG, language models", 1.11},
	} {
		r := exactly(fmt.Sprintf("%s, %s", o.source, o.what), o.source, o.what, o.value, Open)
		r.Note = "the jobs' activity is not in the abstract"
		out = append(out, r)
	}
	return out
}
