package usage

import (
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

	"github.com/gpuslot/gpuslot/gpu"
)

// Activities are shares of busy multiprocessors, 0 to 1.
type Activities map[Instance]float64

// Instance is a whole GPU or one of its GPU instances.
type Instance struct {
	GPU gpu.UUID
	// ID is NVML's id of the GPU instance, or WholeGPU.
	ID int
}

// WholeGPU stands in Instance for the GPU itself.
const WholeGPU = -1

// ActivitySource tells what NVML does not on GPUs before Hopper.
type ActivitySource interface {
	Activities(ctx context.Context) (Activities, error)
}

// smActive is the field of NVIDIA's DCGM: the share of cycles in which an SM
// had a warp, averaged over all SMs. The exporter's default counters leave it out.
const smActive = "DCGM_FI_PROF_SM_ACTIVE"

// largestExposition is far above what an exporter of 16 GPUs with 7 instances
// each prints.
const largestExposition = 8 << 20

// DCGM reads the site's own dcgm-exporter. Its values are as old as its
// collection interval (30 s unless set), so bounds that rest on them are as
// good as the load is steady: set it to the sampling interval.
type DCGM struct {
	url    string
	client *http.Client
}

// NewDCGM takes the exporter's address, such as http://127.0.0.1:9400/metrics.
// It must be a loopback address: only this node may report what it does.
func NewDCGM(address string) (*DCGM, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" || !loopback(u.Hostname()) {
		return nil, fmt.Errorf("dcgm-exporter at %.80q: "+
			"give an address on this machine, such as http://127.0.0.1:9400/metrics", address)
	}
	t := &http.Transport{Proxy: nil, DialContext: (&net.Dialer{}).DialContext, MaxIdleConnsPerHost: 1}
	refuse := func(*http.Request, []*http.Request) error { return errors.New("it redirects") }
	return &DCGM{url: u.String(), client: &http.Client{Transport: t, CheckRedirect: refuse}}, nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Activities asks the exporter once, within the context's deadline.
func (d *DCGM) Activities(ctx context.Context) (Activities, error) {
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
	a, err := parseDCGM(body)
	if body.N <= 0 {
		return nil, fmt.Errorf("dcgm-exporter at %s prints more than %d bytes", d.url, largestExposition)
	}
	if err != nil {
		return nil, fmt.Errorf("dcgm-exporter at %s: %w", d.url, err)
	}
	return a, nil
}

// parseDCGM reads DCGM_FI_PROF_SM_ACTIVE from an exposition. A value that is no
// share, or of no GPU, is left out.
func parseDCGM(r io.Reader) (Activities, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("read the exposition: %w", err)
	}
	family := families[smActive]
	if family == nil {
		return nil, fmt.Errorf("it does not print %s: add it to the exporter's list of counters (-f)", smActive)
	}
	out := Activities{}
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
func instanceOf(uuid, id string) (Instance, bool) {
	u, err := gpu.ParseUUID(uuid)
	if err != nil || u.IsMIG() {
		return Instance{}, false
	}
	if id == "" {
		return Instance{GPU: u, ID: WholeGPU}, true
	}
	n, err := strconv.ParseUint(id, 10, 16)
	return Instance{GPU: u, ID: int(n)}, err == nil
}
