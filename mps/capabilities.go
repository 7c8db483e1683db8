package mps

import (
	"strconv"
	"strings"
)

// Answer is whether the installed MPS can do something, and how that was seen.
type Answer struct {
	// Has is meaningful where Known is true.
	Has   bool
	Known bool
	// How is one short sentence about what was done and seen.
	How string
}

func yes(how string) Answer { return Answer{Has: true, Known: true, How: how} }
func no(how string) Answer  { return Answer{Known: true, How: how} }
func unknown(how string) Answer {
	return Answer{How: how}
}

// Capabilities are what the installed control daemon can do, as a probe shows.
type Capabilities struct {
	// ServerStatus: get_server_status tells INITIALIZING, ACTIVE and FAULT (550 on).
	ServerStatus Answer
	// PrivilegeChecks: only the daemon's account and root change its defaults (550
	// on). Without them its limits do not bind the accounts it serves.
	PrivilegeChecks Answer
	// PIDFile: the daemon writes nvidia-cuda-mps-control.pid (550 on).
	PIDFile Answer
	// MultiUser: -multiuser-server, one server for all accounts (555 on).
	MultiUser Answer
	// StaticPartitions: -S, static SM partitions (R590 on).
	StaticPartitions Answer
	// ProtocolV3: -p 3, namespaces with limits of their own (R615 on).
	ProtocolV3 Answer
	// Version is what -v prints, empty up to R610 where there is no such flag.
	Version string
}

// Capability is one answer by name, fit for a metric label.
type Capability struct {
	Name string
	Answer
}

// All are the answers in fixed order.
func (c Capabilities) All() []Capability {
	return []Capability{
		{"server-status", c.ServerStatus},
		{"privilege-checks", c.PrivilegeChecks},
		{"pid-file", c.PIDFile},
		{"multi-user", c.MultiUser},
		{"static-partitions", c.StaticPartitions},
		{"protocol-v3", c.ProtocolV3},
	}
}

// Words are the names of what there is, in fixed order.
func (c Capabilities) Words() []string {
	var words []string
	for _, a := range c.All() {
		if a.Known && a.Has {
			words = append(words, a.Name)
		}
	}
	return words
}

// String are the words, and those that are unknown with a question mark.
func (c Capabilities) String() string {
	words := c.Words()
	for _, a := range c.All() {
		if !a.Known {
			words = append(words, a.Name+"?")
		}
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// ClientCeiling is how many client contexts a GPU takes at most with two
// connections each, by the driver's CUDA version ("12.4"): 48, and 60 from
// 13.1 on; false for a version that cannot be read. It is NVIDIA's figure:
// less memory and more connections lower it (an A16 was seen to take 5).
func ClientCeiling(cuda string) (int, bool) {
	major, minor, _ := strings.Cut(cuda, ".")
	a, errA := strconv.Atoi(major)
	b, errB := strconv.Atoi(minor)
	switch {
	case errA != nil || errB != nil || a < 1 || b < 0:
		return 0, false
	case a > 13 || a == 13 && b >= 1:
		return 60, true
	}
	return 48, true
}
