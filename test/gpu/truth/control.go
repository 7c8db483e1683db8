package truth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/mps"
)

// nobody tries what only root may do: the machine has no other jobs.
const nobody = 65534

// capabilities are found by trial.
func (l *Lab) capabilities(ctx context.Context, n *Notes) (mps.Capabilities, error) {
	c, err := mps.Probe(ctx, l.Control, filepath.Join(l.Dir, "p"), l.GPU, nobody)
	if err != nil {
		return c, err
	}
	for _, a := range c.All() {
		n.Record("control", a.Name, fmt.Sprintf("has %v, known %v: %s", a.Has, a.Known, a.How))
	}
	return c, nil
}

func tryVersion(ctx context.Context, l *Lab, n *Notes) error {
	c, err := l.capabilities(ctx, n)
	if err != nil {
		return err
	}
	for _, a := range c.All() {
		if a.Known {
			n.Set(a.Name, a.Has)
		}
	}
	n.Set("version", c.Version)
	n.Set("driver", l.Driver)
	n.Set("cuda", l.CUDA)
	for _, flag := range []string{"-v", "--help"} {
		n.Record("control", flag, l.run(ctx, "", flag).text)
	}
	return nil
}

// tryServer has one client served. Without that no other trial that needs a server
// tells anything but the same once more, each after a long wait.
func tryServer(ctx context.Context, l *Lab, n *Notes) error {
	n.Set("serves", false)
	d, err := l.Daemon(ctx, n)
	if err != nil {
		return err
	}
	began := time.Now()
	// A server whose words are not understood may serve all the same.
	_, errServer := d.Server(ctx, uint32(ownUID()))
	if errServer == nil {
		n.Set("server_ms", float64(time.Since(began).Milliseconds()))
	}
	j, err := l.Do(ctx, n, Order{Name: "client", Daemon: d, Words: "alloc 64 load 10 10"})
	if err != nil {
		return errors.Join(errServer, err)
	}
	for _, step := range []string{"cuInit", "context"} {
		if line, ok := j.Line(step); ok {
			n.Set(step+"_ms", line.MS)
		}
	}
	err = j.Must(ctx, "load")
	n.Set("serves", err == nil)
	return errors.Join(errServer, err)
}

var serverClaims = []Claim{
	{"A control daemon brings up a server, which serves a client.", []string{"serves"}, func(v Values) bool { return v.True("serves") }},
}

// said is what the control program said without us between.
type said struct {
	text string
	ok   bool
}

// run runs the control program as anybody would.
func (l *Lab) run(ctx context.Context, pipes, command string, args ...string) said {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if command != "" && strings.HasPrefix(command, "-") {
		args = append(args, command)
		command = ""
	}
	cmd := exec.CommandContext(ctx, l.Control, args...)
	cmd.Env, cmd.WaitDelay = environment("CUDA_MPS_PIPE_DIRECTORY="+pipes), time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if command != "" {
		cmd.Stdin = strings.NewReader(command + "\n")
	}
	err := cmd.Run()
	return said{strings.TrimSpace(out.String()), err == nil}
}

const (
	askers = 4
	asked  = 50
)

// tryCrowdedControl asks a daemon from several processes at once, first as they
// come, then through gpuslot's one conversation at a time.
func tryCrowdedControl(ctx context.Context, l *Lab, n *Notes) error {
	d, err := l.Daemon(ctx, n)
	if err != nil {
		return err
	}
	if _, err := d.Server(ctx, uint32(ownUID())); err != nil {
		return err
	}
	const question = "get_default_active_thread_percentage"
	var answered, silent, refused int
	l.crowded(func(mu *sync.Mutex) {
		got := l.run(ctx, d.PipeDirectory(), question)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case got.ok && got.text == "100.0":
			answered++
		case got.ok && got.text == "":
			silent++
		default:
			refused++
		}
	})
	n.Set("answered", answered)
	n.Set("silent", silent)
	n.Set("refused", refused)
	if ctx.Err() != nil { // else what there was no time for would count as failed
		return ctx.Err()
	}
	failed := 0
	l.crowded(func(mu *sync.Mutex) {
		reply, err := d.Command(ctx, question)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || reply != "100.0" {
			failed++
		}
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	n.Set("serialised_failed", failed)
	n.Record("control", fmt.Sprintf("%d at once, %d times each", askers, asked), fmt.Sprintf("%d answered, %d silent with status 0, %d refused; one at a time %d failed", answered, silent, refused, failed))
	return nil
}

func (l *Lab) crowded(ask func(*sync.Mutex)) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for range askers {
		all.Go(func() {
			for range asked {
				ask(&mu)
			}
		})
	}
	all.Wait()
}

var crowdedClaims = []Claim{
	{"Of commands given at once some get no answer.", []string{"answered"}, func(v Values) bool { return v.Number("answered") < askers*asked }},
	{"Given one at a time, with an end marker, none fails.", []string{"serialised_failed"}, func(v Values) bool { return v.Number("serialised_failed") == 0 }},
}

// words are commands with the replies of drivers 535 to 555 and 580, as measured.
var words = []struct{ name, command, then, want string }{
	{"default_percentage", "", "get_default_active_thread_percentage", "100.0"},
	{"percentage", "set_default_active_thread_percentage 33.3", "get_default_active_thread_percentage", "33.3"},
	{"percentage_cut", "set_default_active_thread_percentage 12.345", "get_default_active_thread_percentage", "12.3"},
	{"percentage_zero", "set_default_active_thread_percentage 0", "get_default_active_thread_percentage", "12.3"},
	{"percentage_high", "set_default_active_thread_percentage 150", "get_default_active_thread_percentage", "12.3"},
	{"no_limit", "", "get_default_device_pinned_mem_limit 0", ""},
	{"limit", "set_default_device_pinned_mem_limit 0 500M", "get_default_device_pinned_mem_limit 0", "500M"},
	{"limit_cut", "set_default_device_pinned_mem_limit 0 1500M", "get_default_device_pinned_mem_limit 0", "1G"},
	{"limit_tera", "set_default_device_pinned_mem_limit 0 1T", "get_default_device_pinned_mem_limit 0", "1M"},
	{"limit_decimal", "set_default_device_pinned_mem_limit 0 1.5G", "get_default_device_pinned_mem_limit 0", "1M"},
	{"limit_kilo", "set_default_device_pinned_mem_limit 0 1024K", "get_default_device_pinned_mem_limit 0", "1G"},
	{"limit_mb", "set_default_device_pinned_mem_limit 0 512MB", "get_default_device_pinned_mem_limit 0", "512M"},
	{"limit_cleared", "set_default_device_pinned_mem_limit 0 0G", "get_default_device_pinned_mem_limit 0", ""},
	{"unknown", "", "bogus", `Unknown command "bogus"`},
	{"no_server", "", "get_client_list 1", "Server 1 not found"},
	{"ps", "", "ps", "Server not found"},
}

// tryWords gives commands, bad ones too, and compares the replies with those
// that gpuslot knows.
func tryWords(ctx context.Context, l *Lab, n *Notes) error {
	d, err := l.Daemon(ctx, n)
	if err != nil {
		return err
	}
	var errs []error
	for _, w := range words {
		var err error
		if w.command != "" {
			_, err = d.Tell(ctx, w.command)
		}
		if err == nil {
			var reply string
			if reply, err = d.Tell(ctx, w.then); err == nil {
				n.Set(w.name, reply)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func wordClaims() []Claim {
	var out []Claim
	for _, w := range words {
		text := fmt.Sprintf("%q is answered with %q.", w.then, w.want)
		if w.command != "" {
			text = fmt.Sprintf("After %q, %q is answered with %q.", w.command, w.then, w.want)
		}
		out = append(out, Claim{text, []string{w.name}, func(v Values) bool { return v.Text(w.name) == w.want }})
	}
	return out
}

// trySeen looks at two busy clients with NVML, and at the sums of its lists with
// none, one, two and five clients.
func trySeen(ctx context.Context, l *Lab, n *Notes) error {
	if err := l.sums(ctx, n, "before"); err != nil {
		return err
	}
	d, err := l.limited(ctx, n, "0", "8G") // so that the server's log has a line of it
	if err != nil {
		return err
	}
	s, err := d.Server(ctx, uint32(ownUID()))
	if err != nil {
		return err
	}
	if err := l.sums(ctx, n, "clients_0"); err != nil {
		return err
	}
	sizes := []int{300, 900}
	var jobs []*Job
	for _, mib := range sizes {
		j, err := l.Start(ctx, n, Order{Name: fmt.Sprint(mib), Daemon: d, Words: fmt.Sprintf("alloc %d busy 30 20", mib)})
		if err != nil {
			return err
		}
		if err := j.Must(ctx, "alloc"); err != nil {
			return err
		}
		jobs = append(jobs, j)
		if err := l.sums(ctx, n, fmt.Sprintf("clients_%d", len(jobs))); err != nil {
			return err
		}
	}
	looks, err := l.See(ctx, n, 30, 100) // NVML's samples of processes are up to a second apart
	if err != nil {
		return err
	}
	last := looks[len(looks)-1]
	for i, j := range jobs {
		l.place(n, fmt.Sprintf("client_%d", sizes[i]), j.cmd.Process.Pid, last, looks)
	}
	l.place(n, "server", s.PID, last, looks)
	if last.UsedMiB != nil {
		n.Set("used_mib", int(*last.UsedMiB))
	}
	for i := range fiveClients - len(jobs) {
		j, err := l.Start(ctx, n, Order{Name: fmt.Sprintf("more_%d", i+1), Daemon: d, Words: "alloc 100 until eof"})
		if err == nil {
			err = j.Must(ctx, "alloc")
		}
		if err != nil {
			return err
		}
	}
	d.limitLine(ctx, n)
	return l.sums(ctx, n, fmt.Sprintf("clients_%d", fiveClients))
}

// fiveClients are the most that trySeen and tryContexts look at.
const fiveClients = 5

// sums sets <name>_used_mib, what the device uses, and <name>_listed_mib, what the
// processes in NVML's lists use together. A list without a process's memory, or
// without any process, has no sum: unknown is not zero.
func (l *Lab) sums(ctx context.Context, n *Notes, name string) error {
	looks, err := l.See(ctx, n, 1, 0)
	if err != nil {
		return err
	}
	look := looks[0]
	if look.UsedMiB != nil {
		n.Set(name+"_used_mib", int(*look.UsedMiB))
	}
	bytes, known := map[int]int64{}, true
	for _, p := range append(look.Compute, look.MPS...) { // some stand in both lists
		if known = known && p.Bytes != nil; known {
			bytes[p.PID] = *p.Bytes
		}
	}
	n.Set(name+"_listed", len(bytes))
	if known && len(bytes) > 0 {
		var sum int64
		for _, b := range bytes {
			sum += b
		}
		n.Set(name+"_listed_mib", int(sum>>20))
	}
	return nil
}

// limitLine keeps the line in which a server's log names its limit: drivers from
// 580 on print it in bytes.
func (d *Daemon) limitLine(ctx context.Context, n *Notes) {
	for _, line := range d.Log(ctx) {
		if strings.Contains(line, "pinned memory limit") || strings.Contains(line, "Device pinned") {
			n.Set("log_limit_line", strings.TrimSpace(line))
		}
	}
}

// allListed: what the device uses beyond the time before is what NVML lists.
func allListed(clients ...int) Claim {
	c := Claim{Text: "NVML lists all memory of MPS clients and their server: for 1, 2 and 5 clients its sum is what the device uses beyond before, within 64 MiB.", Needs: []string{"before_used_mib"}}
	for _, i := range clients {
		c.Needs = append(c.Needs, fmt.Sprintf("clients_%d_used_mib", i), fmt.Sprintf("clients_%d_listed_mib", i))
	}
	c.Holds = func(v Values) bool {
		for _, i := range clients {
			grown := v.Number(fmt.Sprintf("clients_%d_used_mib", i)) - v.Number("before_used_mib")
			if d := grown - v.Number(fmt.Sprintf("clients_%d_listed_mib", i)); d < -64 || d > 64 {
				return false
			}
		}
		return true
	}
	return c
}

// tryPlain looks at two processes that have nothing to do with MPS.
func tryPlain(ctx context.Context, l *Lab, n *Notes) error {
	if err := l.sums(ctx, n, "before"); err != nil {
		return err
	}
	for i, mib := range []int{300, 900} {
		j, err := l.Start(ctx, n, Order{Name: fmt.Sprint(mib), Words: fmt.Sprintf("alloc %d until eof", mib)})
		if err == nil {
			err = j.Must(ctx, "alloc")
		}
		if err == nil {
			err = l.sums(ctx, n, fmt.Sprintf("clients_%d", i+1))
		}
		if err != nil {
			return err
		}
		looks, err := l.See(ctx, n, 1, 0)
		if err != nil {
			return err
		}
		l.place(n, fmt.Sprintf("process_%d", mib), j.cmd.Process.Pid, looks[0], looks)
	}
	return nil
}

var plainClaims = []Claim{
	usesNode("A process without MPS", "process_300"),
	{"NVML lists a process without MPS, with its memory.", []string{"process_300_in_compute", "process_900_in_compute"}, func(v Values) bool {
		return v.True("process_300_in_compute") && v.True("process_900_in_compute")
	}},
	{"Two processes differ by what they allocated, within 16 MiB.", []string{"process_300_mib", "process_900_mib"}, func(v Values) bool {
		d := v.Number("process_900_mib") - v.Number("process_300_mib")
		return d > 584 && d < 616
	}},
	{"What NVML lists is what the device uses beyond before, within 64 MiB.", []string{"before_used_mib", "clients_2_used_mib", "clients_2_listed_mib"}, func(v Values) bool {
		d := v.Number("clients_2_used_mib") - v.Number("before_used_mib") - v.Number("clients_2_listed_mib")
		return d > -64 && d < 64
	}},
}

var logLineClaim = Claim{"The server's log prints a limit in bytes (580 on).", []string{"log_limit_line"}, func(v Values) bool {
	return strings.Contains(v.Text("log_limit_line"), "set to 0x200000000 bytes")
}}

// place is where a process stands in NVML's lists, and which nodes of the driver it uses.
func (l *Lab) place(n *Notes, name string, pid int, last Look, looks []Look) {
	if its, err := nodesOf(pid); err == nil {
		n.Set(name+"_nodes", its)
	}
	for list, in := range map[string][]Seen{"compute": last.Compute, "mps": last.MPS} {
		p, there := listed(in, pid)
		n.Set(name+"_in_"+list, there)
		if there && p.Bytes != nil {
			n.Set(name+"_mib", int(*p.Bytes>>20))
		}
	}
	most, sampled := 0, false
	for _, k := range looks {
		sampled = sampled || len(k.Samples) > 0
		if p, ok := listed(k.Samples, pid); ok && p.SM <= 100 {
			most = max(most, p.SM)
		}
	}
	if sampled { // processes without a sample did nothing only where others have some
		n.Set(name+"_sm_percent", most)
	}
}

var seenClaims = []Claim{
	usesNode("An MPS client", "client_300"),
	allListed(1, 2, fiveClients),
	logLineClaim,
	{"Every client stands in both lists, the server in that of compute processes alone (580).", []string{"client_300_in_compute", "client_900_in_compute", "client_300_in_mps", "client_900_in_mps", "server_in_compute", "server_in_mps"}, func(v Values) bool {
		return v.True("client_300_in_compute") && v.True("client_300_in_mps") && v.True("client_900_in_compute") && v.True("client_900_in_mps") &&
			v.True("server_in_compute") && !v.True("server_in_mps")
	}},
	{"Its memory is its own: two clients differ by what they allocated, within 16 MiB.", []string{"client_300_mib", "client_900_mib"}, func(v Values) bool {
		difference := v.Number("client_900_mib") - v.Number("client_300_mib")
		return difference > 584 && difference < 616
	}},
	{"Utilisation is booked on the server.", []string{"server_sm_percent", "client_900_sm_percent"}, func(v Values) bool {
		return v.Number("server_sm_percent") > 0 && v.Number("client_900_sm_percent") == 0
	}},
	{"The server holds 20 to 96 MiB itself, which the plan keeps for it.", []string{"server_mib"}, between("server_mib", 20, 96)},
}

// mostClients bounds the search for the ceiling.
const mostClients = 66

// tryCeiling starts idle clients until one is refused, whole and capped ones.
func tryCeiling(ctx context.Context, l *Lab, n *Notes) error {
	return l.each(ctx, []step{
		{"whole", func() error { return l.pile(ctx, n, "whole", "100") }},
		{"one_percent", func() error { return l.pile(ctx, n, "one_percent", "1") }},
	})
}

func (l *Lab) pile(ctx context.Context, n *Notes, name, percentage string) error {
	d, err := l.Daemon(ctx, n)
	if err == nil {
		_, err = d.Tell(ctx, "set_default_active_thread_percentage "+percentage)
	}
	if err != nil {
		return err
	}
	for i := range mostClients {
		j, err := l.Start(ctx, n, Order{Name: fmt.Sprintf("%s_%d", name, i+1), Daemon: d, Words: "context until eof"})
		if err != nil {
			return err
		}
		line, err := j.Await(ctx, "context", 20*time.Second) // a job that was refused has ended
		if init, ok := j.Line("cuInit"); ok && init.Code != 0 {
			line, err = init, nil
		}
		if err != nil {
			return err
		}
		if line.Code != 0 {
			n.Set(name+"_clients", i)
			n.Set(name+"_code", line.Code)
			return nil
		}
	}
	n.Set(name+"_clients_at_least", mostClients)
	return errors.New("no client was refused")
}

var ceilingClaims = []Claim{
	{"48 clients are served up to CUDA 13.0, 60 from 13.1 on; the next gets CUDA_ERROR_MPS_MAX_CLIENTS_REACHED.", []string{"whole_clients", "whole_code"}, func(v Values) bool {
		return (v.Number("whole_clients") == 48 || v.Number("whole_clients") == 60) && v.Number("whole_code") == maxClients
	}},
	{"Fewer threads make no more clients.", []string{"whole_clients", "one_percent_clients"}, func(v Values) bool { return v.Number("one_percent_clients") == v.Number("whole_clients") }},
}
