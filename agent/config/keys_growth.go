package config

import "fmt"

// growthKeys are [growth].
func growthKeys() []Key {
	return []Key{
		{Table: "growth", Name: "retries", Type: "0 to 10", Default: "0",
			Meaning: "How often such a job runs again at most; 0 for never. A job asks for less with `+MaxRequestVRAM`. " +
				"Access points " +
				"need HTCondor 25.2.1.",
			set: func(c *Config, _ *table, v any) string {
				n, p := wholeNumber(v, 0, 10, "a whole number")
				return put(&c.Growth.Retries)(int(n), p)
			}},
		{Table: "growth", Name: "exit_codes", Type: "a list of exit codes", Default: "[]",
			Meaning: "The exit codes with which the site's programs report that CUDA had no memory left, such as `[85]`. " +
				"HTCondor sees no other sign, except that the job used 90 % of its budget in a sample.",
			set: func(c *Config, _ *table, v any) string { return put(&c.Growth.ExitCodes)(readExitCodes(v)) }},
		{Table: "growth", Name: "early_percent", Type: "0, or 50 to 100", Default: "0",
			Meaning: "Stops a job that may still grow as soon as a sample shows that it uses this percentage of its budget. " +
				"It is stopped as by `condor_vacate_job`, and runs again with a larger request, before it fails at its " +
				"limit. 0 for never: a job may use all it asked for without needing more.",
			set: func(c *Config, _ *table, v any) string {
				n, p := wholeNumber(v, 0, 100, "0, or a percentage")
				if n > 0 && n < 50 {
					p = "write 0, or a percentage from 50 to 100"
				}
				return put(&c.Growth.EarlyPercent)(int(n), p)
			}},
	}
}

// readExitCodes reads a list of exit codes that are no success.
func readExitCodes(v any) ([]int, string) {
	list, ok := v.([]any)
	if !ok {
		return nil, `write a list of exit codes, such as [85]`
	}
	var codes []int
	for _, e := range list {
		n, p := wholeNumber(e, 1, 255, "exit codes")
		if p != "" {
			return nil, fmt.Sprintf("%s; 0 is success", p)
		}
		codes = append(codes, int(n))
	}
	return codes, ""
}
