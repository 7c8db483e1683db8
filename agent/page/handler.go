package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"time"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed style.css
	styleCSS string
	//go:embed live.js
	liveJS string
)

// Handler serves the page at "/". Now is called for each request and must be
// quick. Everything but GET and HEAD of "/" is refused.
func Handler(now func() Node, h *History) (http.Handler, error) {
	t, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return nil, fmt.Errorf("the node page: %w", err)
	}
	policy := fmt.Sprintf("default-src 'none'; style-src '%s'; script-src '%s'; connect-src 'self'; base-uri 'none'; "+
		"form-action 'none'; frame-ancestors 'none'",
		digest(styleCSS), digest(liveJS))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the page can be read, nothing else", http.StatusMethodNotAllowed)
			return
		}
		var out bytes.Buffer
		v := viewOf(now(), h, time.Now())
		v.CSS, v.JS = template.CSS(styleCSS), template.JS(liveJS)
		if err := t.Execute(&out, v); err != nil {
			http.Error(w, "the page cannot be made: "+err.Error(), http.StatusInternalServerError)
			return
		}
		header := w.Header()
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-store")
		_, _ = w.Write(out.Bytes()) // who does not listen any more misses nothing
	}), nil
}

// digest names a script or style in a Content-Security-Policy.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
