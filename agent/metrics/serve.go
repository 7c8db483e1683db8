package metrics

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"
)

// Deadlines of the HTTP listener.
const (
	headerTimeout   = 5 * time.Second
	requestTimeout  = 20 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 3 * time.Second
)

// Web is what the listener serves besides metrics, and how.
type Web struct {
	// Config is an exporter-toolkit configuration file for TLS and basic
	// authentication; empty means plain HTTP.
	Config string
	// Ready says whether the agent has a plan in force.
	Ready func() bool
	// Page is served at "/"; nil serves a list of links.
	Page http.Handler
}

// Serve answers scrapes on a listener until the context ends.
func (m *Metrics) Serve(ctx context.Context, l net.Listener, w Web, log *slog.Logger) error {
	h, err := m.Handler(w)
	if err != nil {
		return err
	}
	srv := newServer(h, maxConnections)
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		_, _ = srv.Shutdown(ctx), srv.Close()
	})
	defer stop()
	err = web.Serve(listen(ctx, l), srv, &web.FlagConfig{WebConfigFile: &w.Config}, log)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("metrics listener on %s: %w", l.Addr(), err)
}

// newServer is the server of a handler, with so many connections at most.
func newServer(h http.Handler, most int) *http.Server {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    4 << 10, // short names take forty times of that
		ConnContext:       untilGone,
		ConnState:         newConnections(most).state,
		Protocols:         new(http.Protocols),
	}
	// Not HTTP/2, whose handlers live on after their connection, with what was sent to them: a job could have any
	// number of them.
	srv.Protocols.SetHTTP1(true)
	return srv
}

// Handler serves /metrics, /-/healthy, /-/ready and a page.
func (m *Metrics) Handler(w Web) (http.Handler, error) {
	page := w.Page
	if page == nil {
		var err error
		if page, err = landing(); err != nil {
			return nil, err
		}
	}
	made := make(turns, mostMade)
	mux := http.NewServeMux()
	mux.Handle("/", made.complete(page))
	scrape := promhttp.HandlerFor(m.Gatherer(), promhttp.HandlerOpts{
		ErrorHandling:      promhttp.ContinueOnError,
		DisableCompression: true, // complete does it
	})
	mux.Handle("/metrics", promhttp.InstrumentMetricHandler(m.registry, made.complete(scrape)))
	mux.HandleFunc("/-/healthy", func(reply http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(reply,
			"gpuslotd is healthy.")
	})
	mux.HandleFunc("/-/ready", func(reply http.ResponseWriter, _ *http.Request) {
		if !w.Ready() {
			http.Error(reply, "gpuslotd has no plan in force yet.", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(reply, "gpuslotd is ready.")
	})
	return mux, nil
}

// mostMade is how many replies are made at a time, because every job may ask without end. The other
// requests wait in the order in which they came, one for each connection at most, and end with it.
const mostMade = 2

type turns chan struct{}

// complete sends a reply once all of it is there: a client that reads slowly does not keep its turn.
// It compresses at gzip's fastest, which takes a quarter of the time of the default and makes 55 kB
// of 1.5 MB, in place of 50.
func (t turns) complete(h http.Handler) http.Handler {
	idle := sync.Pool{New: func() any {
		z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is one
		return z
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply := &completeReply{ResponseWriter: w, code: http.StatusOK}
		select {
		case t <- struct{}{}:
		case <-r.Context().Done():
			return // it does not listen any more
		}
		func() {
			defer func() { <-t }()
			if acceptsGzip(r.Header) {
				reply.zip = idle.Get().(*gzip.Writer)
				defer idle.Put(reply.zip)
				reply.zip.Reset(&reply.body)
			}
			h.ServeHTTP(reply, r)
			if reply.zips() {
				_ = reply.zip.Close() // a buffer takes everything
				w.Header().Set("Content-Encoding", "gzip")
				w.Header().Del("Content-Length")
			}
		}()
		w.Header().Add("Vary", "Accept-Encoding")
		w.WriteHeader(reply.code)
		_, _ = reply.body.WriteTo(w) // who does not listen any more misses nothing
	})
}

// acceptsGzip reads the names of RFC 9110, section 12.5.3, and of the weights that of 0.
func acceptsGzip(h http.Header) bool {
	for part := range strings.SplitSeq(h.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(part, " ", ""), ";")
		if name == "gzip" {
			return weight == "" || strings.Trim(weight, "q=0.") != ""
		}
	}
	return false
}

// completeReply keeps a reply, compressed if it is no error.
type completeReply struct {
	http.ResponseWriter
	code int
	// zip is nil for who does not take it.
	zip  *gzip.Writer
	body bytes.Buffer
}

func (w *completeReply) zips() bool { return w.zip != nil && w.code == http.StatusOK }

func (w *completeReply) WriteHeader(code int) { w.code = code }

func (w *completeReply) Write(b []byte) (int, error) {
	if w.zips() {
		return w.zip.Write(b)
	}
	return w.body.Write(b)
}

func landing() (http.Handler, error) {
	page, err := web.NewLandingPage(web.LandingConfig{
		Name:        "gpuslotd",
		Description: "Shares NVIDIA GPUs among HTCondor jobs",
		Links:       []web.LandingLinks{{Address: "/metrics", Text: "Metrics"}},
		Profiling:   "false",
	})
	if err != nil {
		return nil, fmt.Errorf("landing page: %w", err)
	}
	return page, nil
}
