package config

// table is one sharing table as written: nil fields were not set.
type table struct{}
