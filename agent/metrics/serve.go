package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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

// Serve answers scrapes on a listener until the context ends. WebConfig is an
// exporter-toolkit configuration file for TLS and basic authentication; empty
// means plain HTTP. Ready says whether the agent has a plan in force.
func (m *Metrics) Serve(ctx context.Context, l net.Listener, webConfig string, ready func() bool, log *slog.Logger) error {
	h, err := m.Handler(ready)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
	}
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
	})
	defer stop()
	err = web.Serve(l, srv, &web.FlagConfig{WebConfigFile: &webConfig}, log)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("metrics listener on %s: %w", l.Addr(), err)
}

// Handler serves /metrics, /-/healthy, /-/ready and a landing page.
func (m *Metrics) Handler(ready func() bool) (http.Handler, error) {
	landing, err := web.NewLandingPage(web.LandingConfig{
		Name:        "gpuslotd",
		Description: "Shares NVIDIA GPUs among HTCondor jobs",
		Links:       []web.LandingLinks{{Address: "/metrics", Text: "Metrics"}},
		Profiling:   "false",
	})
	if err != nil {
		return nil, fmt.Errorf("landing page: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", landing)
	mux.Handle("/metrics", promhttp.InstrumentMetricHandler(m.registry, promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 4,
		Timeout:             requestTimeout / 2,
	})))
	mux.HandleFunc("/-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "gpuslotd is healthy.") })
	mux.HandleFunc("/-/ready", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "gpuslotd has no plan in force yet.", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "gpuslotd is ready.")
	})
	return mux, nil
}
