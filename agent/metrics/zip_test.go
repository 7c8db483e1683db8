package metrics

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestZipped: whoever takes gzip gets the same text in less; errors are plain.
func TestZipped(t *testing.T) {
	s := busy(4)
	h, err := New(Build{}, func() Snapshot { return s }).Handler(Web{Ready: func() bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(accept string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept-Encoding", accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	plain := ask("").Body.String()
	for accept, zips := range map[string]bool{"gzip": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0.0": false, "identity": false, "": false} {
		w := ask(accept)
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != zips {
			t.Errorf("%q: compressed %v", accept, got)
			continue
		}
		if !zips {
			continue
		}
		size := w.Body.Len()
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil || strings.Count(string(text), "\n") < strings.Count(plain, "\n") || size > len(plain)/10 {
			t.Errorf("%q: %v, %d bytes in %d, plain %d", accept, err, len(text), size, len(plain))
		}
	}
	h, err = New(Build{}, func() Snapshot { return s }).Handler(Web{Ready: func() bool { return true }, Page: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("<div>a page of many slots</div>", 1000))
	})})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept-Encoding", "gzip, deflate, br")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Header().Get("Content-Encoding") != "gzip" || w.Body.Len() > 1000 {
		t.Errorf("the page: %v, %d bytes", w.Header(), w.Body.Len())
	}
	refuse := zipped(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "too many", http.StatusServiceUnavailable)
	}))
	r = httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	w = httptest.NewRecorder()
	refuse.ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Content-Encoding") != "" || w.Body.String() != "too many\n" {
		t.Errorf("a refusal: %d %v %q", w.Code, w.Header(), w.Body)
	}
}
