package metrics

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serving serves metrics until end is called, which the server must take well.
func serving(t *testing.T, w Web) (address string, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w.Ready = func() bool { return true }
	done := make(chan error, 1)
	go func() { done <- newTest(full()).Serve(ctx, l, w, slog.New(slog.DiscardHandler)) }()
	return l.Addr().String(), func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("end: %v", err)
		}
	}
}

// TestServe: basic authentication comes from the web configuration, and the
// listener ends with the context.
func TestServe(t *testing.T) {
	web := filepath.Join(t.TempDir(), "web.yml")
	// bcrypt of "secret", with a low cost.
	text := "basic_auth_users:\n  prometheus: $2a$04$vvp1Le43yslkKOT1sXrwbudXikqbD5dmXSs3fn/7E1FMwaV71F0ZW\n"
	if err := os.WriteFile(web, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address, end := serving(t, Web{Config: web})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(password string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if password != "" {
			req.SetBasicAuth("prometheus", password)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if code := get(""); code != http.StatusUnauthorized {
		t.Errorf("without a password: %d", code)
	}
	if code := get("secret"); code != http.StatusOK {
		t.Errorf("with the password: %d", code)
	}
	end()
}

// TestServeInACrowd: silent connections of a job take neither the file
// descriptors of the agent nor the scrapes of Prometheus.
func TestServeInACrowd(t *testing.T) {
	address, end := serving(t, Web{})
	var crowd []net.Conn
	defer func() {
		for _, c := range crowd {
			c.Close()
		}
		end()
	}()
	for i := range 2 * maxConnections {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // in the middle of a request
			if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\n"); err != nil {
				t.Fatal(err)
			}
		}
		crowd = append(crowd, c)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("a scrape in the crowd: %s", resp.Status)
	}
	for i, c := range crowd[:maxConnections] {
		_ = c.SetReadDeadline(time.Now().Add(headerTimeout / 2)) // well before the server's own
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d of %d is still held", i, len(crowd))
		}
	}
}

// TestScrapesInAFlood: a job that asks for metrics and for the page without end delays scrapes, and
// none of them is refused.
func TestScrapesInAFlood(t *testing.T) {
	h, err := newTest(busy(16, 8)).Handler(Web{Ready: func() bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	get := func(client *http.Client, path string) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+path, nil)
		if err != nil {
			return 0, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, errors.Join(err, resp.Body.Close())
	}
	flooded(ctx, t, cancel, 64, get, func(i, _ int) string { return []string{"/metrics", "/"}[i%2] }, "/metrics")
}

// TestPasswordsInAFlood: a job that tries passwords without end delays scrapes, and none is refused.
// The exporter toolkit compares one password at a time and remembers those it compared.
func TestPasswordsInAFlood(t *testing.T) {
	web := filepath.Join(t.TempDir(), "web.yml")
	// bcrypt of "secret", with a low cost.
	text := "basic_auth_users:\n  prometheus: $2a$04$vvp1Le43yslkKOT1sXrwbudXikqbD5dmXSs3fn/7E1FMwaV71F0ZW\n"
	if err := os.WriteFile(web, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- newTest(full()).Serve(ctx, l, Web{Config: web, Ready: func() bool { return true }}, slog.New(slog.DiscardHandler))
	}()
	get := func(client *http.Client, password string) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String()+"/metrics", nil)
		if err != nil {
			return 0, err
		}
		req.SetBasicAuth("prometheus", password)
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	flooded(ctx, t, cancel, 32, get, func(i, n int) string { return fmt.Sprint(i, n) }, "secret")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestCompressed: a client that accepts gzip gets the same series in less.
func TestCompressed(t *testing.T) {
	s := busy(16, 4)
	h, err := newTest(s).Handler(Web{Ready: func() bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	get := func(accept string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest(http.MethodGet, "/metrics", nil), httptest.NewRecorder()
		r.Header.Set("Accept-Encoding", accept)
		h.ServeHTTP(w, r)
		return w
	}
	plain, zipped := get("identity"), get("br, gzip;q=0.5")
	if a, b := plain.Header().Get("Content-Encoding"), zipped.Header().Get("Content-Encoding"); a != "" || b != "gzip" {
		t.Fatalf("encodings %q and %q", a, b)
	}
	size := zipped.Body.Len()
	z, err := gzip.NewReader(zipped.Body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if lines := strings.Count(plain.Body.String(), "\n"); err != nil || strings.Count(string(text), "\n") < lines || size > plain.Body.Len()/10 {
		t.Errorf("%v, %d bytes in %d, plain %d", err, len(text), size, plain.Body.Len())
	}
}

// TestNotCompressed: an error, and a reply to a client that does not take gzip, are plain.
func TestNotCompressed(t *testing.T) {
	for _, c := range []struct {
		accept string
		code   int
		zips   bool
	}{
		{"gzip", http.StatusOK, true}, {"deflate, gzip; q=1.0", http.StatusOK, true}, {"", http.StatusOK, false},
		{"gzip;q=0", http.StatusOK, false}, {"gzip; q=0.0, br", http.StatusOK, false}, {"x-gzip", http.StatusOK, false},
		{"gzip", http.StatusServiceUnavailable, false},
	} {
		h := make(turns, 1).complete(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "7")
			w.WriteHeader(c.code)
			_, _ = io.WriteString(w, "a line\n")
		}))
		r, w := httptest.NewRequest(http.MethodGet, "/metrics", nil), httptest.NewRecorder()
		r.Header.Set("Accept-Encoding", c.accept)
		h.ServeHTTP(w, r)
		zips, plain := w.Header().Get("Content-Encoding") == "gzip", w.Body.String() == "a line\n"
		if w.Code != c.code || zips != c.zips || plain == c.zips || zips && w.Header().Get("Content-Length") != "" {
			t.Errorf("%q, %d: %d, %v, %q", c.accept, c.code, w.Code, w.Header(), w.Body)
		}
	}
}

// TestSlowReaders: scrapes that nobody reads to their end keep no other from its
// reply.
func TestSlowReaders(t *testing.T) {
	h, err := newTest(full()).Handler(Web{Ready: func() bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	stuck := make(chan struct{})
	var ends sync.WaitGroup
	for range 2 * 4 { // twice the scrapes in flight that are allowed
		reading := make(chan struct{})
		ends.Go(func() {
			h.ServeHTTP(&slowReader{header: http.Header{}, reading: reading, stuck: stuck}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		})
		<-reading
	}
	reply := httptest.NewRecorder()
	h.ServeHTTP(reply, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if reply.Code != http.StatusOK || !strings.Contains(reply.Body.String(), "gpuslot_") {
		t.Errorf("a scrape beside slow readers: %d, %d bytes", reply.Code, reply.Body.Len())
	}
	close(stuck)
	ends.Wait()
}

// slowReader takes the first byte of a reply and waits.
type slowReader struct {
	header         http.Header
	reading, stuck chan struct{}
	once           sync.Once
}

func (r *slowReader) Header() http.Header { return r.header }
func (r *slowReader) WriteHeader(int)     {}
func (r *slowReader) Write(b []byte) (int, error) {
	r.once.Do(func() { close(r.reading) })
	<-r.stuck
	return len(b), nil
}

func TestServeRefusesABrokenWebConfiguration(t *testing.T) {
	web := filepath.Join(t.TempDir(), "web.yml")
	if err := os.WriteFile(web, []byte("basic_auth_userz: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := newTest(full()).Serve(t.Context(), l, Web{Config: web, Ready: func() bool { return true }}, slog.New(slog.NewTextHandler(io.Discard, nil))); err == nil {
		t.Error("served without the protection that was asked for")
	}
}

// flooded checks that scrapes are answered while this many clients ask without end. What says what the client i
// asks for at its request n, and scrape what a scrape asks for.
func flooded(ctx context.Context, t *testing.T, cancel func(), clients int,
	get func(*http.Client, string) (int, error), what func(i, n int) string, scrape string,
) {
	t.Helper()
	var flood sync.WaitGroup
	flows := make(chan struct{}, clients)
	for i := range clients {
		flood.Go(func() {
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = get(client, what(i, n)) // at the end it is broken off
				if n == 0 {
					flows <- struct{}{}
				}
			}
		})
	}
	for range clients {
		<-flows
	}
	client := &http.Client{Transport: &http.Transport{}}
	for range 5 {
		if code, err := get(client, scrape); err != nil || code != http.StatusOK {
			t.Errorf("a scrape: %d, %v", code, err)
		}
	}
	client.CloseIdleConnections()
	cancel()
	flood.Wait()
}
