package condor

import (
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// TestWithin: what the site set bounds the host. HTCondor's defaults, zero and expressions do not.
func TestWithin(t *testing.T) {
	const site = "/etc/condor/config.d/90-site.conf"
	host := gpu.Host{CPUs: 96, Memory: 385024}
	for name, c := range map[string]struct {
		s    Settings
		want gpu.Host
	}{
		"nothing set":    {Settings{}, host},
		"both":           {Settings{"num_cpus": {Value: "64", Place: site}, "memory": {Value: "200000", Place: site}}, gpu.Host{CPUs: 64, Memory: 200000}},
		"defaults":       {Settings{"num_cpus": {Value: "64"}, "memory": {Value: "200000"}}, host},
		"zero":           {Settings{"num_cpus": {Value: "0", Place: site}, "memory": {Value: "0", Place: site}}, host},
		"expressions":    {Settings{"num_cpus": {Value: "$(DETECTED_CPUS)", Place: site}, "memory": {Value: "0.9 * 5", Place: site}}, host},
		"more than is":   {Settings{"num_cpus": {Value: "128", Place: site}, "memory": {Value: "900000", Place: site}}, host},
		"one CPU":        {Settings{"num_cpus": {Value: "1", Place: site}, "memory": {Value: "1", Place: site}}, gpu.Host{CPUs: 1, Memory: 1}},
		"reserved":       {Settings{"reserved_memory": {Value: "4096", Place: site}}, gpu.Host{CPUs: 96, Memory: 385024 - 4096}},
		"all but one":    {Settings{"reserved_memory": {Value: "385023", Place: site}}, gpu.Host{CPUs: 96, Memory: 1}},
		"more than all":  {Settings{"reserved_memory": {Value: "385025", Place: site}}, host},
		"exactly all":    {Settings{"reserved_memory": {Value: "385024", Place: site}}, host},
		"less than zero": {Settings{"reserved_memory": {Value: "-1", Place: site}, "memory": {Value: "-1", Place: site}}, host},
	} {
		if got := c.s.Within(host); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
