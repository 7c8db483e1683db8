package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// encodeBundle writes the archive.
func encodeBundle(w io.Writer, m manifest) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	about, err := encoded(m)
	if err != nil {
		return err
	}
	for _, file := range append([]had{{Name: bundleManifest, text: about}}, m.Files...) {
		if err := addFile(t, file, m.Made); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

// bundleFolder is what a report unpacks to.
const bundleFolder = "gpuslot-report/"

func addFile(t *tar.Writer, file had, made time.Time) error {
	h := &tar.Header{Name: bundleFolder + file.Name, Mode: 0o600, Size: int64(len(file.text)), ModTime: made,
		Format: tar.FormatPAX}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := t.Write(file.text)
	return err
}

// Bounds of a report that is read: it comes from elsewhere.
const (
	mostFiles      = 200
	mostUnpacked   = 256 << 20
	mostOfOneThing = 16 << 20
)

// bundle is what the plan of a report follows from.
type bundle struct {
	config    config.Config
	inventory gpu.Inventory
	// inForce is the plan that the agent had applied; nil if it is not there.
	inForce *plan.Plan
}

// readBundle reads a report's file.
func readBundle(name string) (bundle, error) {
	f, err := os.Open(name)
	if err != nil {
		return bundle{}, fmt.Errorf("read report: %w", err)
	}
	defer f.Close()
	b, err := decodeBundle(f)
	if err != nil {
		return bundle{}, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

func decodeBundle(r io.Reader) (bundle, error) {
	files, err := unpack(r)
	if err != nil {
		return bundle{}, fmt.Errorf("not a report of gpuslot: %w", err)
	}
	var m manifest
	if err := json.Unmarshal(files[bundleManifest], &m); err != nil || m.Schema != bundleSchema {
		return bundle{}, fmt.Errorf("not a report of this gpuslot: %s has the schema %.40q, not %q", bundleManifest, m.Schema,
			bundleSchema)
	}
	var b bundle
	switch text, ok := files[bundleConfig]; {
	case ok:
		if b.config, err = config.Parse(m.ConfigFile, text); err != nil {
			return bundle{}, err
		}
	case m.ConfigAbsent:
		b.config = config.Default()
	default:
		return bundle{}, lacks(m, bundleConfig)
	}
	text, ok := files[bundleInventory]
	if !ok {
		return bundle{}, lacks(m, bundleInventory)
	}
	if b.inventory, err = gpu.DecodeInventory(bytes.NewReader(text)); err != nil {
		return bundle{}, err
	}
	if text, ok := files[bundlePlan]; ok {
		p, err := plan.Decode(text)
		if err != nil {
			return bundle{}, err
		}
		b.inForce = &p
	}
	return b, nil
}

// lacks says why a file is not in a report.
func lacks(m manifest, name string) error {
	for _, missing := range m.Missing {
		if missing.Name == name {
			return fmt.Errorf("the report has no %s: %s", name, missing.Why)
		}
	}
	return fmt.Errorf("the report has no %s", name)
}

// unpack reads the files that a plan follows from, and bounds the rest.
func unpack(r io.Reader) (map[string][]byte, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	t := tar.NewReader(io.LimitReader(z, mostUnpacked))
	for range mostFiles {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(h.Name, bundleFolder)
		switch name {
		case bundleManifest, bundleConfig, bundleInventory, bundlePlan:
			if files[name], err = io.ReadAll(io.LimitReader(t, mostOfOneThing)); err != nil {
				return nil, err
			}
		}
	}
	return nil, fmt.Errorf("it has more than %d files", mostFiles)
}
