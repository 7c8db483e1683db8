// Package dcgm works with the site's own dcgm-exporter. It reads the activity of GPUs that NVML does not
// report (before Hopper), and writes the files by which the exporter labels its metrics with jobs.
//
// Start at Exporter, which reads, and Mapping, which writes.
package dcgm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

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
	// read is ask, but in tests. reading: it has not returned yet.
	read    func(context.Context) (usage.Activities, error)
	reading atomic.Bool
}

// New takes the exporter's address, such as http://127.0.0.1:9400/metrics.
// It must be a loopback address: only this node may report what it does.
func New(address string) (*Exporter, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" || !loopback(u.Hostname()) {
		return nil, fmt.Errorf("dcgm-exporter at %.80q: "+
			"give an address on this machine, such as http://127.0.0.1:9400/metrics", address)
	}
	if u.Hostname() == "localhost" { // it may be ::1 too, and a job can take the port there
		u.Host = strings.TrimSuffix("127.0.0.1:"+u.Port(), ":")
	}
	t := &http.Transport{Proxy: nil, DialContext: (&net.Dialer{}).DialContext, MaxIdleConnsPerHost: 1}
	refuse := func(*http.Request, []*http.Request) error { return errors.New("it redirects") }
	d := &Exporter{url: u.String(), client: &http.Client{Transport: t, CheckRedirect: refuse}}
	d.read = d.ask
	return d, nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Activities asks the exporter once, within the context's deadline. An answer that takes longer to read
// delays no sample, and the exporter is not asked again before it was read.
func (d *Exporter) Activities(ctx context.Context) (usage.Activities, error) {
	if !d.reading.CompareAndSwap(false, true) {
		return nil, fmt.Errorf("dcgm-exporter at %s: its last answer is still being read", d.url)
	}
	type reply struct {
		activities usage.Activities
		err        error
	}
	replies := make(chan reply, 1)
	go func() {
		a, err := d.read(ctx)
		d.reading.Store(false)
		replies <- reply{a, err}
	}()
	select {
	case r := <-replies:
		return r.activities, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("dcgm-exporter at %s has not answered in time: %w; see whether it runs", d.url, ctx.Err())
	}
}

// ask puts the question and reads the answer.
func (d *Exporter) ask(ctx context.Context) (usage.Activities, error) {
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

// parse reads DCGM_FI_PROF_SM_ACTIVE from an exposition, and no other lines. A value that is no
// share, or of no GPU, is left out.
func parse(r io.Reader) (usage.Activities, error) {
	out, read := usage.Activities{}, 0
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		rest, its := strings.CutPrefix(lines.Text(), smActive)
		if !its || rest == "" || !strings.ContainsRune("{ \t", rune(rest[0])) {
			continue // another field or a comment
		}
		if read += len(lines.Bytes()) + 1; read > largestParsed {
			return nil, fmt.Errorf("it prints more than %d bytes of %s", largestParsed, smActive)
		}
		labels, v, ok := parseSample(rest)
		if !ok {
			return nil, fmt.Errorf("read the exposition: %.80q is no line of it", lines.Text())
		}
		i, ok := instanceOf(labels["UUID"], labels["GPU_I_ID"])
		if ok && v >= 0 && v <= 1 {
			out[i] = v
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the exposition: %w", err)
	}
	if read == 0 {
		return nil, fmt.Errorf("it does not print %s: add it to the exporter's list of counters (-f)", smActive)
	}
	return out, nil
}

// parseSample reads what follows the name in a line: {label="value",…} 0.5, and perhaps a time. A job in the
// exporter's place may print thousands of labels. The time that this takes grows as the line; in the parser
// of prometheus/common it grows as its square.
func parseSample(text string) (labels map[string]string, value float64, ok bool) {
	labels = map[string]string{}
	text, more := strings.CutPrefix(strings.TrimLeft(text, " \t"), "{")
	for more {
		text = strings.TrimLeft(text, " \t")
		if rest, ended := strings.CutPrefix(text, "}"); ended {
			text = rest
			break
		}
		name, rest, _ := strings.Cut(text, "=")
		rest = strings.TrimLeft(rest, " \t")
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil || quoted[0] != '"' {
			return nil, 0, false
		}
		labels[strings.TrimSpace(name)] = quoted[1 : len(quoted)-1] // no value of ours has escapes
		text = strings.TrimPrefix(strings.TrimLeft(rest[len(quoted):], " \t"), ",")
	}
	fields := strings.Fields(text)
	if len(fields) < 1 || len(fields) > 2 {
		return nil, 0, false
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	return labels, value, err == nil
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
