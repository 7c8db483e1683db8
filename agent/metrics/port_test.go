package metrics

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

func newPort(s Sockets) *Port {
	return &Port{
		Metrics: newTest(full()), Sockets: s, Log: slog.New(slog.DiscardHandler), Web: Web{Ready: func() bool { return true }},
	}
}

// TestMetricsPortTaken: a job that has the port at the start loses it when it ends,
// and meanwhile the port says why metrics are not served.
func TestMetricsPortTaken(t *testing.T) {
	p := newPort(nil)
	job, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { p.Serve(ctx, nil, job.Addr().String()) })
	within := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("waited in vain for " + what)
			}
		}
	}
	down := func() bool { return p.Down() != "" }
	within("the reason", down)
	_ = job.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	within("metrics", func() bool {
		reply, err := client.Get("http://" + job.Addr().String() + "/-/healthy")
		if err != nil {
			return false
		}
		_ = reply.Body.Close()
		return reply.StatusCode == http.StatusOK
	})
	if down() {
		t.Error("the reason stays")
	}
	cancel()
	wg.Wait()
}

// fakeSockets keeps one socket.
type fakeSockets struct {
	address string
	l       net.Listener
}

func (p *fakeSockets) Keep(address string, l net.Listener) error {
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer f.Close()
	p.address = address
	p.l, err = net.FileListener(f)
	return err
}

func (p *fakeSockets) Kept(address string) (net.Listener, error) {
	l := p.l
	p.l = nil
	if l != nil && p.address != address {
		return nil, l.Close()
	}
	return l, nil
}

// TestMetricsPortKept: the port goes from one agent to the next, and is free when the
// next listens elsewhere or nowhere.
func TestMetricsPortKept(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, ports := free.Addr().String(), &fakeSockets{}
	_ = free.Close()
	life := func(listen string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { newPort(ports).Serve(ctx, nil, listen) })
		for end := time.Now().Add(2 * time.Minute); listen != ""; time.Sleep(10 * time.Millisecond) {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			reply, err := client.Get("http://" + listen + "/-/healthy")
			if err == nil {
				_ = reply.Body.Close()
				break
			}
			if time.Now().After(end) {
				t.Fatalf("waited in vain for metrics: %v; kept is %s", err, ports.address)
			}
		}
		cancel()
		wg.Wait()
	}
	life(address)
	if l, err := net.Listen("tcp", address); err == nil {
		t.Fatal("between two agents another process gets the port", l.Close())
	}
	life(address)
	if ports.l != nil {
		t.Error("the agent kept a socket that was kept already")
	}
	ports.l, err = net.Listen("tcp", address)
	if err != nil {
		t.Fatal("the socket was not handed to the second agent:", err)
	}
	life("")
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal("an agent without metrics has the port kept:", err)
	}
	_ = l.Close()
}

// TestScrapesOnASocketOfSystemd: it goes before the configured address.
func TestScrapesOnASocketOfSystemd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { newPort(nil).Serve(ctx, l, "192.0.2.1:1") })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Get("http://" + l.Addr().String() + "/-/healthy")
	if err != nil {
		t.Fatal(err)
	}
	_ = reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		t.Error(reply.Status)
	}
	cancel()
	wg.Wait()
}
