package page

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/test/together"
)

// TestTogether: the page is read while the history grows.
func TestTogether(t *testing.T) {
	var h History
	now := func() Node { return Node{At: time.Now(), GPUs: []GPU{{Device: Device{UUID: one}}}} }
	page, err := Handler(now, &h)
	if err != nil {
		t.Fatal(err)
	}
	together.Methods(t, &h, now(), &usage.Snapshot{At: time.Now()}, together.Call(func() {
		page.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}))
}
