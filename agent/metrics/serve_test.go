package metrics

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestServe: basic authentication comes from the web configuration, and the
// listener ends with the context.
func TestServe(t *testing.T) {
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
		done <- newTest(full()).Serve(ctx, l, Web{Config: web, Ready: func() bool { return true }}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	}()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(password string) int {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String()+"/metrics", nil)
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
	cancel()
	if err := <-done; err != nil {
		t.Errorf("end: %v", err)
	}
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
