package mps

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// BenchmarkRound: what a health round costs with one server and eight clients,
// against one without a server.
func BenchmarkRound(b *testing.B) {
	for _, branch := range []string{"535", "555"} {
		for _, clients := range []int{-1, 8} {
			b.Run(fmt.Sprintf("real %s, %d clients", branch, max(clients, 0)), func(b *testing.B) { benchRound(b, branch, clients) })
		}
	}
}

func benchRound(b *testing.B, branch string, clients int) {
	s := newServed(b, branch, true)
	if clients >= 0 {
		s.server()
	}
	for range clients {
		s.guest()
	}
	checked, err := s.daemon.Check(b.Context(), s.wanted)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("Prove", func(b *testing.B) {
		lines := s.logLines()
		for b.Loop() {
			if _, err := s.daemon.Check(b.Context(), s.wanted); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(s.logLines()-lines)/float64(b.N), "log-lines/op")
	})
	b.Run("Pulse", func(b *testing.B) {
		for b.Loop() {
			if p := s.daemon.QuickCheck(checked); !p.OK() {
				b.Fatal(p)
			}
		}
	})
	b.Run("StillProven", func(b *testing.B) {
		for b.Loop() {
			if err := s.daemon.StillRuns(checked); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// logLines counts what the daemon and its servers wrote.
func (s *served) logLines() int {
	b, err := os.ReadFile(s.logFile())
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}
