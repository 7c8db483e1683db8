package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/driver"
	"github.com/gpuslot/gpuslot/test/sim"
	"github.com/gpuslot/gpuslot/test/startd"
)

// The node that is looked at.
const (
	seenGPUs  = 16
	seenModel = "H200"
	// A driver that lets more than 48 clients share a GPU: one of ours is kept
	// for tools. The nvidia-smi is of 550.
	seenDriver = "590.44.01"
	seenBranch = "590"
	seenSMI    = "550"
	// seenFirst is how long the agents sample before that counts, seenQuiet how long they do
	// while no client asks.
	seenFirst, seenQuiet = 5 * time.Second, 30 * time.Second
	// seenRounds is how often each is scraped, in turn with the others.
	seenRounds = 20
)

// watched is an agent that samples a simulated node of its own.
type watched struct {
	*agent
	what             string
	slots, processes int // of the node; processes of each slot
	state, url       string
	startd           *startd.Many
	// sampling is its CPU time in a second without a scrape, scraping what each
	// scrape added.
	sampling, scraping time.Duration
	// children is that of the programs that it runs: questions to control daemons.
	children time.Duration
	scrapes  []time.Duration
	bytes    int
	rss      float64
}

// seeing measures what it costs to see every slot, beside nvidia-smi.
func (b *bench) seeing(ctx context.Context) (rows []row, err error) {
	if os.Geteuid() != 0 {
		return []row{{what: "seeing every slot", got: "not measured: needs root, for compute modes"}}, nil
	}
	n, err := b.simulated(ctx)
	if err != nil {
		return nil, err
	}
	all := []*watched{
		{what: "empty", slots: 0}, {what: "192 x 1", slots: 192, processes: 1},
		{what: "768 x 1", slots: 768, processes: 1}, {what: "256 x 3", slots: 256, processes: 3},
	}
	defer func() {
		for _, w := range all {
			err = errors.Join(err, w.endJobs())
		}
	}()
	// All agents before all jobs: a starter older than an agent is a riddle to it.
	for _, w := range all {
		if err := b.watchNode(ctx, n, w); err != nil {
			return nil, fmt.Errorf("%s: %w", w.what, err)
		}
	}
	for _, w := range all {
		if err := b.fill(ctx, n, w); err != nil {
			return nil, fmt.Errorf("%s: %w", w.what, err)
		}
	}
	progress("seeing: %s of sampling alone, then %d scrapes of each in turn with nvidia-smi", seenQuiet, seenRounds)
	smi := &smiExporter{node: n, state: all[2].state, path: n.smi}
	if err := measureSeeing(ctx, all, smi); err != nil {
		return nil, err
	}
	return seeingRows(all, smi), nil
}

// simNode is what is shared by the simulated nodes: programs and libraries.
type simNode struct{ bin, lib, smi string }

func (b *bench) simulated(ctx context.Context) (simNode, error) {
	dir, err := sim.Build(ctx)
	if err != nil {
		return simNode{}, err
	}
	variant, err := sim.Variant(ctx, seenBranch)
	if err != nil {
		return simNode{}, err
	}
	fetched, err := driver.Fetch(ctx, seenSMI)
	if err != nil {
		return simNode{}, err
	}
	return simNode{bin: filepath.Join(dir, "bin"), lib: variant + ":" + filepath.Join(dir, "lib"),
		smi: filepath.Join(fetched, "usr/lib/nvidia/current/nvidia-smi")}, nil
}

// env makes a process see a state. Trust: the simulator's own look for dead
// processes is not what is measured.
func (n simNode) env(state string) []string {
	return []string{"GPUSLOT_SIM_STATE=" + state, "LD_LIBRARY_PATH=" + n.lib, "PATH=" + n.bin + ":" + os.Getenv("PATH"), "GPUSLOT_SIM_TRUST=1"}
}

// watchNode makes a node and starts its agent.
func (b *bench) watchNode(ctx context.Context, n simNode, w *watched) error {
	progress("seeing: a node of %d GPUs for %q", seenGPUs, w.what)
	w.agent = &agent{dir: b.path("see" + strings.ReplaceAll(w.what, " ", ""))}
	w.socket, w.state = filepath.Join(w.dir, "agent.sock"), filepath.Join(w.dir, "node")
	w.env, w.control = n.env(w.state), filepath.Join(n.bin, "nvidia-cuda-mps-control")
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		return err
	}
	// The plan gives every slot a CPU.
	cpus := filepath.Join(w.dir, "cpus")
	if err := os.WriteFile(cpus, []byte("0-1023\n"), 0o644); err != nil {
		return err
	}
	w.within = []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /sys/devices/system/cpu/online && exec "$@"`, cpus}
	models := strings.Fields(strings.Repeat(seenModel+" ", seenGPUs))
	if err := n.run(ctx, w.state, "simpoke", append([]string{"make", seenDriver}, models...)...); err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	w.url = "http://" + address
	shares := 48
	if w.processes > 1 {
		shares = 16 // the control daemon's clients are divided among them
	}
	return b.startAgent(ctx, w.agent, fmt.Sprintf("[sharing]\nshares = %d\n[metrics]\nlisten = %q\n", shares, address), seenGPUs)
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// measureSeeing lets all agents sample side by side, then scrapes them in turn.
func measureSeeing(ctx context.Context, all []*watched, smi *smiExporter) error {
	for _, w := range all {
		if err := w.seesAll(ctx); err != nil {
			return err
		}
	}
	// A process is found once: the first samples after it came are not what goes on.
	if err := pause(ctx, seenFirst); err != nil {
		return err
	}
	if err := eachCPU(all, func() error { return pause(ctx, seenQuiet) }, func(w *watched, own, children, took time.Duration) {
		w.sampling, w.children = perSecond(own, took), perSecond(children, took)
	}); err != nil {
		return err
	}
	err := eachCPU(all, func() error {
		for range seenRounds {
			for _, w := range all {
				if err := w.scrape(ctx); err != nil {
					return err
				}
			}
			if err := smi.scrape(ctx); err != nil {
				return err
			}
		}
		return nil
	}, func(w *watched, own, _, took time.Duration) {
		w.scraping = (own - time.Duration(float64(w.sampling)*took.Seconds())) / seenRounds
	})
	for _, w := range all {
		rss, e := w.residentMiB()
		w.rss, err = rss, errors.Join(err, e)
	}
	return err
}

func perSecond(d, took time.Duration) time.Duration {
	return time.Duration(float64(d) / took.Seconds())
}

// eachCPU tells what each agent, and the processes that it waited for, took
// during something.
func eachCPU(all []*watched, during func() error, tell func(w *watched, own, children, took time.Duration)) error {
	type cpu struct{ own, children time.Duration }
	look := func() (out []cpu, err error) {
		for _, w := range all {
			own, children, err := w.cpu()
			if err != nil {
				return nil, err
			}
			out = append(out, cpu{own, children})
		}
		return out, nil
	}
	begin := time.Now()
	before, err := look()
	if err != nil {
		return err
	}
	if err := during(); err != nil {
		return err
	}
	took := time.Since(begin)
	after, err := look()
	for i := range after {
		tell(all[i], after[i].own-before[i].own, after[i].children-before[i].children, took)
	}
	return err
}

// tick is that of proc(5) on every architecture that Go runs on.
const tick = 10 * time.Millisecond

// cpu adds up the agent's threads, in nanoseconds.
func (w *watched) cpu() (own, children time.Duration, err error) {
	p, err := procfs.NewProc(w.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	threads, err := procfs.AllThreads(w.cmd.Process.Pid)
	if err != nil {
		return 0, 0, err
	}
	for _, t := range threads {
		s, err := t.Schedstat()
		if err != nil {
			return 0, 0, err
		}
		own += time.Duration(s.RunningNanoseconds)
	}
	s, err := p.Stat()
	return own, time.Duration(s.CUTime+s.CSTime) * tick, err
}

// scrape is one look by Prometheus, which takes gzip, up to the last byte.
func (w *watched) scrape(ctx context.Context) error {
	begin := time.Now()
	text, err := w.page(ctx, "/metrics", "gzip")
	w.scrapes, w.bytes = append(w.scrapes, time.Since(begin)), len(text)
	return err
}

func (w *watched) page(ctx context.Context, path, encoding string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	if err != nil {
		return "", err
	}
	r.Header.Set("Accept-Encoding", encoding) // asked for by us, it comes as it is
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, reply.Status)
	}
	return string(text), err
}

// seesAll waits until the metrics have every slot with its memory and bounds.
func (w *watched) seesAll(ctx context.Context) error {
	memory, upper := 0, 0
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		text, err := w.page(ctx, "/metrics", "identity")
		if err != nil {
			return err
		}
		memory, upper = strings.Count(text, "\ngpuslot_slot_memory_used_bytes{"), strings.Count(text, "\ngpuslot_slot_sm_max_seconds_total{")
		if memory == w.slots && upper == w.slots {
			return nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
	log, _ := os.ReadFile(w.log.Name())
	return fmt.Errorf("%s: the memory of %d slots and the bounds of %d are told; the agent's log:\n%s", w.what, memory, upper, log)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func seeingRows(all []*watched, smi *smiExporter) (rows []row) {
	empty, fewer := all[0], all[1]
	for _, w := range all {
		core := 100 * w.sampling.Seconds()
		got := fmt.Sprintf("%.2f %% of a core (and %.2f %% asking control daemons), %.0f MiB, scrape %s (%d kB, %s CPU)", core, 100*w.children.Seconds(), w.rss, median(w.scrapes).Round(10*time.Microsecond), w.bytes/1000, w.scraping.Round(10*time.Microsecond))
		rows = append(rows, row{what: "16 GPUs, slots x processes: " + w.what, got: got})
		if w != empty {
			rows = append(rows, row{what: "  beside the empty agent", got: fmt.Sprintf("%.1f x CPU, %.1f x memory, %.1f x scrape",
				ratio(w.sampling, empty.sampling), w.rss/empty.rss, ratio(median(w.scrapes), median(empty.scrapes)))})
		}
		if w.slots < 256 {
			continue
		}
		rows = append(rows,
			row{"  sampling each second", fmt.Sprintf("%.2f %% of a core", core), "<= 2 %", core <= 2},
			row{"  resident", fmt.Sprintf("%.0f MiB", w.rss), "<= 60 MiB", w.rss <= 60},
			row{"  scrape, median", median(w.scrapes).String(), "<= 10ms", median(w.scrapes) <= 10*time.Millisecond},
			row{"  beside nvidia-smi for each scrape", fmt.Sprintf("CPU of a look %.2f x, its time %.2f x", ratio(w.sampling+w.scraping, smi.cpu()), ratio(median(w.scrapes), median(smi.took))), "", true})
	}
	rows = append(rows, row{what: "nvidia-smi for each scrape, on 768 x 1", got: fmt.Sprintf("%s CPU, %.0f MiB at most, median %s", smi.cpu().Round(10*time.Microsecond), float64(smi.rss)/gpu.BytesPerMiB, median(smi.took).Round(10*time.Microsecond))})
	return append(rows, linear(all[2], fewer, empty)...)
}

// most is how many times four times the slots may cost: linear, and room for noise.
const most = 8

// linear holds the growth from 192 to 768 slots, beyond the empty agent's, to
// less than the square.
func linear(more, fewer, empty *watched) []row {
	cpu := ratio(more.sampling-empty.sampling, max(fewer.sampling-empty.sampling, time.Millisecond))
	scrape := ratio(median(more.scrapes)-median(empty.scrapes), max(median(fewer.scrapes)-median(empty.scrapes), 100*time.Microsecond))
	target := fmt.Sprintf("<= %d", most)
	return []row{
		{"768 slots beside 192, beyond the empty agent: CPU", fmt.Sprintf("%.1f x", cpu), target, cpu <= most},
		{"  scrape", fmt.Sprintf("%.1f x", scrape), target, scrape <= most},
	}
}
