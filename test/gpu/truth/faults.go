package truth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/mps"
)

func commandf(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// crowd is a server with clients that wait.
func (l *Lab) crowd(ctx context.Context, n *Notes, d *Daemon, names ...string) (mps.Server, []*Job, error) {
	s, err := d.Server(ctx, uint32(ownUID()))
	if err != nil {
		return s, nil, err
	}
	var jobs []*Job
	for _, name := range names {
		j, err := l.Start(ctx, n, Order{Name: name, Daemon: d, Words: "go on alloc 64 until eof"})
		if err != nil {
			return s, nil, err
		}
		if err := j.Must(ctx, "alloc"); err != nil {
			return s, nil, err
		}
		jobs = append(jobs, j)
	}
	return s, jobs, nil
}

// status is what the daemon says of a server.
func (d *Daemon) status(ctx context.Context, server int) mps.ServerStatus {
	servers, err := d.Servers(ctx)
	if err != nil {
		return ""
	}
	for _, s := range servers {
		if s.PID == server {
			return s.Status
		}
	}
	return "gone"
}

// hitTime is how long nothing happens before a client counts as unharmed, harmTime the
// same where harm is expected: a slow machine has time to do it.
const (
	hitTime  = 1500 * time.Millisecond
	harmTime = 10 * time.Second
)

// hit is the code that a waiting client met; 0 if none came for a while.
func hit(ctx context.Context, j *Job) int { return hitIn(ctx, j, hitTime) }

func hitIn(ctx context.Context, j *Job, most time.Duration) int {
	line, err := j.Await(ctx, "until eof", most)
	if err != nil {
		return 0
	}
	return line.Code
}

var faultKinds = []string{"illegal_address", "misaligned_address", "launch_failed", "assert"}

// tryFaults has one client of three fault, in each way.
func tryFaults(ctx context.Context, l *Lab, n *Notes) error {
	var steps []step
	for _, kind := range faultKinds {
		steps = append(steps, step{kind, func() error { return l.fault(ctx, n, kind) }})
	}
	return l.each(ctx, steps)
}

func (l *Lab) fault(ctx context.Context, n *Notes, kind string) error {
	d, err := l.Daemon(ctx, n)
	if err != nil {
		return err
	}
	s, victims, err := l.crowd(ctx, n, d, kind+"_a", kind+"_b")
	if err != nil {
		return err
	}
	culprit, err := l.Start(ctx, n, Order{Name: kind + "_culprit", Daemon: d, Words: "go on context fault " + kind + " until eof"})
	if err != nil {
		return err
	}
	line, err := culprit.Await(ctx, "fault", 20*time.Second)
	if err != nil {
		return err
	}
	n.Set(kind+"_code", line.Code)
	n.Set(kind+"_neighbour_code", hit(ctx, victims[0]))
	n.Set(kind+"_status", string(d.status(ctx, s.PID)))
	newcomer, err := l.Start(ctx, n, Order{Name: kind + "_newcomer", Daemon: d, Words: "go on context"})
	if err != nil {
		return err
	}
	// Refused in cuInit it ends without a context; one that waits tells nothing.
	_, _ = newcomer.Await(ctx, "context", 5*time.Second)
	for _, step := range []string{"cuInit", "context"} {
		if c, ok := newcomer.Line(step); ok {
			n.Set(kind+"_newcomer_code", c.Code)
		}
	}
	return l.recover(ctx, n, kind, d, s, append(victims, culprit))
}

// recover ends everybody whom the fault met.
func (l *Lab) recover(ctx context.Context, n *Notes, kind string, d *Daemon, s mps.Server, met []*Job) error {
	began := time.Now()
	for _, j := range met {
		if j.End(ctx) != nil {
			n.Set(kind+"_hangs", true)
			j.Kill()
		}
	}
	err := until(ctx, 10*time.Second, func() bool { status := d.status(ctx, s.PID); return status != mps.Faulted && status != "" })
	n.Set(kind+"_recovers", err == nil)
	n.Set(kind+"_recovery_ms", float64(time.Since(began).Milliseconds()))
	j, err := l.Do(ctx, n, Order{Name: kind + "_after", Daemon: d, Words: "go on context"})
	if err != nil {
		return err
	}
	if line, ok := j.Line("context"); ok {
		n.Set(kind+"_after_code", line.Code)
	}
	for _, line := range d.Log(ctx) {
		if e, ok := mps.ParseEvent(line); ok && e.Kind == mps.GPUFault {
			n.Set(kind+"_event", true)
			named, _ := n.values[kind+"_culprit_named"].(bool)
			n.Set(kind+"_culprit_named", named || e.Client == met[len(met)-1].cmd.Process.Pid)
		}
	}
	return nil
}

var faultClaims = []Claim{
	{"An illegal address gives its own client CUDA_ERROR_ILLEGAL_ADDRESS.", []string{"illegal_address_code"}, func(v Values) bool { return v.Number("illegal_address_code") == illegalAddress }},
	{"Every client on the GPU meets the fault.", []string{"illegal_address_neighbour_code"}, func(v Values) bool { return v.Number("illegal_address_neighbour_code") != 0 }},
	{"The server is then in FAULT (550 on).", []string{"illegal_address_status"}, func(v Values) bool { return v.Text("illegal_address_status") == string(mps.Faulted) }},
	{"Newcomers get CUDA_ERROR_MPS_SERVER_NOT_READY meanwhile.", []string{"illegal_address_newcomer_code"}, func(v Values) bool { return v.Number("illegal_address_newcomer_code") == serverNotReady }},
	{"When the last client that met it has ended, clients are served again.", []string{"illegal_address_after_code"}, func(v Values) bool { return v.Number("illegal_address_after_code") == 0 }},
	{"The log tells of the fault in a line that gpuslot understands.", []string{"illegal_address_event"}, func(v Values) bool { return v.True("illegal_address_event") }},
	{"No line of a fault in the log names the culprit (580).", []string{"illegal_address_culprit_named", "misaligned_address_culprit_named", "launch_failed_culprit_named"}, func(v Values) bool {
		return !v.True("illegal_address_culprit_named") && !v.True("misaligned_address_culprit_named") && !v.True("launch_failed_culprit_named")
	}},
	{"A misaligned address and a trap are fatal to all clients as well.", []string{"misaligned_address_neighbour_code", "launch_failed_neighbour_code"}, func(v Values) bool {
		return v.Number("misaligned_address_neighbour_code") != 0 && v.Number("launch_failed_neighbour_code") != 0
	}},
	{"An assertion ends its own client alone, and the server serves on (580).", []string{"assert_code", "assert_neighbour_code", "assert_newcomer_code", "assert_status"}, func(v Values) bool {
		return v.Number("assert_code") == assertion && v.Number("assert_neighbour_code") == 0 && v.Number("assert_newcomer_code") == 0 && v.Text("assert_status") == string(mps.Active)
	}},
}

// tryKill ends a busy client, with and without terminate_client before.
func tryKill(ctx context.Context, l *Lab, n *Notes) error {
	return l.each(ctx, []step{
		{"terminated", func() error { return l.killBusy(ctx, n, "terminated") }},
		{"killed", func() error { return l.killBusy(ctx, n, "killed") }},
	})
}

// kernelTime is how long a kernel runs that is to be met under way, on a slow machine too.
const kernelTime = 2 * time.Second

func (l *Lab) killBusy(ctx context.Context, n *Notes, how string) error {
	d, err := l.Daemon(ctx, n)
	if err != nil {
		return err
	}
	s, neighbours, err := l.crowd(ctx, n, d, how+"_neighbour")
	if err != nil {
		return err
	}
	// It is told to end in the middle of a kernel: between two of them that harms no client.
	words := fmt.Sprintf("go on load 10 20 busy 30 %d until eof", kernelTime.Milliseconds())
	busy, err := l.Start(ctx, n, Order{Name: how + "_busy", Daemon: d, Words: words})
	if err != nil {
		return err
	}
	if err := busy.Must(ctx, "busy begins"); err != nil {
		return err
	}
	if how == "terminated" {
		err = l.terminate(ctx, n, d, s, busy)
	}
	busy.Kill()
	most := hitTime
	if how == "killed" {
		most = harmTime
	}
	n.Set(how+"_neighbour_code", hitIn(ctx, neighbours[0], most))
	n.Set(how+"_status", string(d.status(ctx, s.PID)))
	n.Set(how+"_neighbour_ends", neighbours[0].End(ctx) == nil) // one that hangs on the GPU tells no error
	after, errAfter := l.Do(ctx, n, Order{Name: how + "_after", Daemon: d, Words: "go on context"})
	if errAfter == nil {
		if line, ok := after.Line("context"); ok {
			n.Set(how+"_after_code", line.Code)
		}
	}
	return errors.Join(err, errAfter)
}

func (l *Lab) terminate(ctx context.Context, n *Notes, d *Daemon, s mps.Server, busy *Job) error {
	began := time.Now()
	answers, err := d.Terminate(ctx, s.ID, busy.cmd.Process.Pid)
	if err != nil {
		return err
	}
	n.Set("terminate_ms", float64(time.Since(began).Milliseconds()))
	n.Set("terminate_result", answers[0].Result)
	n.Record("control", "terminate_client", fmt.Sprintf("%+v", answers))
	if line, err := busy.Await(ctx, "busy 30", 10*time.Second); err == nil {
		n.Set("terminated_code", line.Code)
	}
	return nil
}

var killClaims = []Claim{
	{"terminate_client answers 0 for a busy client.", []string{"terminate_result"}, func(v Values) bool { return v.Number("terminate_result") == 0 }},
	{"The client then meets CUDA_ERROR_MPS_CLIENT_TERMINATED.", []string{"terminated_code"}, func(v Values) bool { return v.Number("terminated_code") == clientTerminated }},
	{"After terminate_client a SIGKILL harms no neighbour.", []string{"terminated_neighbour_code", "terminated_neighbour_ends"}, func(v Values) bool {
		return v.Number("terminated_neighbour_code") == 0 && v.True("terminated_neighbour_ends")
	}},
	{"A SIGKILL of a busy client without it takes its neighbours along (the manual says undefined).", []string{"killed_neighbour_code", "killed_neighbour_ends"}, func(v Values) bool {
		return v.Number("killed_neighbour_code") != 0 || !v.True("killed_neighbour_ends")
	}},
	{"Clients are served again after either.", []string{"killed_after_code", "terminated_after_code"}, func(v Values) bool {
		return v.Number("killed_after_code") == 0 && v.Number("terminated_after_code") == 0
	}},
}

// tryDeath kills a control daemon under its clients and starts another in the
// same directory; then it ends a server.
func tryDeath(ctx context.Context, l *Lab, n *Notes) error {
	d, err := l.Daemon(ctx, n)
	if err != nil {
		return err
	}
	s, clients, err := l.crowd(ctx, n, d, "client")
	if err != nil {
		return err
	}
	who, err := d.Alive()
	if err != nil {
		return err
	}
	if err := syscall.Kill(who.PID, syscall.SIGKILL); err != nil {
		return err
	}
	n.Set("client_code", hit(ctx, clients[0]))
	n.Set("server_survives", alive(s.PID))
	again, err := l.daemonIn(ctx, n, d.runner.Root) // it ends the old one's servers first, as gpuslot does
	n.Set("restarts", err == nil)
	if err != nil {
		return err
	}
	n.Set("server_after_restart", alive(s.PID))
	n.Set("client_after_restart_code", hit(ctx, clients[0]))
	_ = clients[0].End(ctx)
	s, clients, err = l.crowd(ctx, n, again, "later")
	if err != nil {
		return err
	}
	if err := syscall.Kill(s.PID, syscall.SIGINT); err != nil {
		return err
	}
	n.Set("interrupted_client_code", hit(ctx, clients[0]))
	n.Set("interrupted_server_ends", until(ctx, 5*time.Second, func() bool { return !alive(s.PID) }) == nil)
	return nil
}

// alive: there is such a process and it is no zombie.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

var deathClaims = []Claim{
	{"The server ends with its killed control daemon, and its clients meet an error (580).", []string{"server_survives", "client_code"}, func(v Values) bool { return !v.True("server_survives") && v.Number("client_code") != 0 }},
	{"A control daemon starts in the same directory, with the old server ended first.", []string{"restarts", "server_after_restart"}, func(v Values) bool { return v.True("restarts") && !v.True("server_after_restart") }},
	{"Clients of the ended server meet an error.", []string{"client_after_restart_code"}, func(v Values) bool { return v.Number("client_after_restart_code") != 0 }},
	{"A server ends on SIGINT.", []string{"interrupted_server_ends"}, func(v Values) bool { return v.True("interrupted_server_ends") }},
}
