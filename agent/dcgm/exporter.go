// Package dcgm works with the site's own dcgm-exporter. It reads the activity of GPUs that NVML does not
// report (before Hopper), and writes the files by which the exporter labels its metrics with jobs.
//
// Start at Exporter, which reads, and Mapping, which writes.
package dcgm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpuslot/gpuslot/agent/usage"
	"github.com/gpuslot/gpuslot/gpu"
)

// smActive is the field of NVIDIA's DCGM: the share of cycles in which an SM
// had a warp, averaged over all SMs. The exporter's default counters leave it out.
const smActive = "DCGM_FI_PROF_SM_ACTIVE"

// The most that is read, and that is parsed of it. 16 GPUs with 7 instances each and 30 counters,
// with lines of 450 bytes as those of pods, are 1.7 MiB, and 60 KiB of it are about smActive.
const (
	largestExposition = 2 << 20
	largestParsed     = 256 << 10
)

// Exporter reads the site's dcgm-exporter. Its values are as old as its
// collection interval (30 s unless set), so bounds that rest on them are as
// good as the load is steady: set it to the sampling interval.
type Exporter struct {
	url    string
	client *http.Client
}

// New takes the exporter's address, such as http://127.0.0.1:9400/metrics.
// It must be a loopback address: only this node may report what it does.
func New(address string) (*Exporter, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" || !loopback(u.Hostname()) {
		return nil, fmt.Errorf("dcgm-exporter at %.80q: "+
			"give an address on this machine, such as http://127.0.0.1:9400/metrics", address)
	}
	t := &http.Transport{Proxy: nil, DialContext: (&net.Dialer{}).DialContext, MaxIdleConnsPerHost: 1}
	refuse := func(*http.Request, []*http.Request) error { return errors.New("it redirects") }
	return &Exporter{url: u.String(), client: &http.Client{Transport: t, CheckRedirect: refuse}}, nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Activities asks the exporter once, within the context's deadline.
func (d *Exporter) Activities(ctx context.Context) (usage.Activities, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask dcgm-exporter: %w; see whether it runs", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask dcgm-exporter at %s: it answers %s", d.url, resp.Status)
	}
	body := &io.LimitedReader{R: resp.Body, N: largestExposition + 1}
	a, err := parse(body)
	if body.N <= 0 {
		return nil, fmt.Errorf("dcgm-exporter at %s prints more than %d bytes", d.url, largestExposition)
	}
	if err != nil {
		return nil, fmt.Errorf("dcgm-exporter at %s: %w", d.url, err)
	}
	return a, nil
}

// parse reads DCGM_FI_PROF_SM_ACTIVE from an exposition, and parses no other lines. A value that is no
// share, or of no GPU, is left out.
func parse(r io.Reader) (usage.Activities, error) {
	var about bytes.Buffer
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if line := bytes.TrimPrefix(lines.Bytes(), []byte("# TYPE ")); bytes.HasPrefix(line, []byte(smActive)) {
			about.Write(append(lines.Bytes(), '\n'))
		}
		if about.Len() > largestParsed {
			return nil, fmt.Errorf("it prints more than %d bytes of %s", largestParsed, smActive)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the exposition: %w", err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(&about)
	if err != nil {
		return nil, fmt.Errorf("read the exposition: %w", err)
	}
	family := families[smActive]
	if family == nil {
		return nil, fmt.Errorf("it does not print %s: add it to the exporter's list of counters (-f)", smActive)
	}
	out := usage.Activities{}
	for _, m := range family.GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		v := m.GetUntyped().GetValue() // some versions print no TYPE line
		if m.Gauge != nil {
			v = m.GetGauge().GetValue()
		}
		i, ok := instanceOf(labels["UUID"], labels["GPU_I_ID"])
		if ok && v >= 0 && v <= 1 {
			out[i] = v
		}
	}
	return out, nil
}

// instanceOf reads the labels UUID, which is the GPU's, and GPU_I_ID, which is
// missing or empty for a whole GPU.
func instanceOf(uuid, id string) (usage.Instance, bool) {
	u, err := gpu.ParseUUID(uuid)
	if err != nil || u.IsMIG() {
		return usage.Instance{}, false
	}
	if id == "" {
		return usage.Instance{GPU: u, ID: usage.WholeGPU}, true
	}
	n, err := strconv.ParseUint(id, 10, 16)
	return usage.Instance{GPU: u, ID: int(n)}, err == nil
}
