package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// The part of CycloneDX 1.5 (cyclonedx.org/docs/1.5/json) that we write. It has
// no serial number and no time stamp: equal sources make equal bytes.
type document struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type     string    `json:"type"`
	Ref      string    `json:"bom-ref"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Hashes   []hash    `json:"hashes,omitempty"`
	Licences []licence `json:"licenses,omitempty"`
	PURL     string    `json:"purl"`
}

type hash struct {
	Alg     string `json:"alg"`
	Content string `json:"content"`
}

type licence struct {
	Licence struct {
		ID string `json:"id"`
	} `json:"license"`
}

const own = "github.com/gpuslot/gpuslot"

// sbom prints the document.
func sbom(version string, mods []module, licences map[module]found) ([]byte, error) {
	d := document{Format: "CycloneDX", Spec: "1.5", Version: 1}
	d.Metadata.Component = newComponent("application", module{Path: own, Version: version}, "Apache-2.0")
	for _, m := range mods {
		c := newComponent("library", m, licences[m].id)
		if m.Sum != "" {
			sum, err := decodeSum(m.Sum)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.Path, err)
			}
			c.Hashes = []hash{{"SHA-256", sum}}
		}
		d.Components = append(d.Components, c)
	}
	b, err := json.MarshalIndent(d, "", "  ")
	return append(b, '\n'), err
}

func newComponent(kind string, m module, id string) component {
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	if m.Path == glibc {
		purl = "pkg:generic/" + glibc + "@" + url.QueryEscape(m.Version)
	}
	c := component{Type: kind, Ref: purl, Name: m.Path, Version: m.Version, PURL: purl, Licences: make([]licence, 1)}
	c.Licences[0].Licence.ID = id
	return c
}

// decodeSum turns go.sum's form of a SHA-256 into CycloneDX's. It is that of the
// module's tree (golang.org/x/mod/sumdb/dirhash), as cyclonedx-gomod gives it, too.
func decodeSum(s string) (string, error) {
	text, ok := strings.CutPrefix(s, "h1:")
	b, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(b) != 32 {
		return "", fmt.Errorf("%q is no sum of a module", s)
	}
	return hex.EncodeToString(b), nil
}
