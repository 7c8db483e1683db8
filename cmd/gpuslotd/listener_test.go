package main

import (
	"net"
	"path/filepath"
	"testing"
)

// TestMetricsListener: systemd may hand over one socket of TCP, or none.
func TestMetricsListener(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	unix, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close()
	for _, c := range []struct {
		given []net.Listener
		want  net.Listener
		ok    bool
	}{{nil, nil, true}, {[]net.Listener{tcp}, tcp, true}, {[]net.Listener{unix}, nil, false}, {[]net.Listener{tcp, tcp}, nil, false}} {
		if got, err := metricsListener(c.given); got != c.want || (err == nil) != c.ok {
			t.Errorf("%d sockets: %v, %v", len(c.given), got, err)
		}
	}
}
