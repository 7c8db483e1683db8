package config

import "time"

// maxChangesPerHour is one a minute.
const maxChangesPerHour = 60

// repartitionKeys are [repartition].
func repartitionKeys() []Key {
	return []Key{
		{Table: "repartition", Name: "interval", Type: "a time with its unit", Default: `"1m"`,
			Meaning: "The time between two looks at what waits. Work must wait in two looks in a row to count.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Repartition.Interval)(duration(v, time.Second, time.Hour))
			}},
		{Table: "repartition", Name: "dwell", Type: "a time with its unit", Default: `"10m"`,
			Meaning: "The shortest life of a MIG device before a change removes it.",
			set: func(c *Config, _ *table, v any) string {
				return put(&c.Repartition.Dwell)(duration(v, 0, 24*time.Hour))
			}},
		{Table: "repartition", Name: "changes_per_hour", Type: "1 to 60", Default: "6",
			Meaning: "The most changes of one GPU in any hour.",
			set: func(c *Config, _ *table, v any) string {
				n, p := wholeNumber(v, 1, maxChangesPerHour, "a number of changes")
				return put(&c.Repartition.ChangesPerHour)(int(n), p)
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
