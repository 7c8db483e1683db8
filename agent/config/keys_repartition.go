package config

import "time"

// repartitionKeys are [repartition].
func repartitionKeys() []Key {
	return []Key{
		{Table: "repartition", Name: "dwell", Type: "a time with its unit", Default: `"10m"`,
			Meaning: "The shortest life of a MIG device before a change removes it. One GPU changes at most as often in an " +
				"hour as this fits into it, and at most once a minute.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Repartition.Dwell)(duration(v, 0, 24*time.Hour))
			}},
		{Table: "repartition", Name: "reserve_after", Type: "a time with its unit", Default: `"1h"`,
			Meaning: "How long work waits for a device that cannot be made of idle ones, before devices are kept free of new " +
				"jobs for it. No job is stopped.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Repartition.ReserveAfter)(duration(v, 0, 30*24*time.Hour))
			}},
		{Table: "repartition", Name: "reserve_for", Type: "a time with its unit", Default: `"12h"`,
			Meaning: "How long devices are kept free while no job on them ends. Make it as long as a usual job.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Repartition.ReserveFor)(duration(v, time.Second, 30*24*time.Hour))
			}},
	}
}
