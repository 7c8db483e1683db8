// Package paper prints advice as one page that needs nothing else: no network, no
// script; for screens, light and dark, and for paper. Start at HTML.
package paper

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/advise"
)

var (
	//go:embed paper.html
	paperHTML string
	//go:embed paper.css
	paperCSS string
)

// HTML is the page.
func HTML(a advise.Advice) ([]byte, error) {
	t, err := template.New("paper").Parse(paperHTML)
	if err != nil {
		return nil, fmt.Errorf("the page of advice: %w", err)
	}
	v := viewOf(a)
	v.CSS = template.CSS(paperCSS) //nolint:gosec // our own
	var b bytes.Buffer
	if err := t.Execute(&b, v); err != nil {
		return nil, fmt.Errorf("the page of advice: %w", err)
	}
	return b.Bytes(), nil
}
