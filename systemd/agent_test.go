package systemd_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
	"github.com/gpuslot/gpuslot/systemd"
)

// The node runs this test binary as /usr/sbin/gpuslotd: a small agent in the
// real unit, with its sandbox, that does what it is told over the socket.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "spin" {
		spin()
		return
	}
	if filepath.Base(os.Args[0]) == "gpuslotd" {
		if err := smallAgent(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// scrapes is the address that the small agent has kept over its restarts, and answers
// on with its PID.
const scrapes = "127.0.0.1:9847"

// won is there when a job has got that port.
const won = "/run/won"

// spin is a job that wants the port of metrics.
func spin() {
	for {
		if l, err := net.Listen("tcp", scrapes); err == nil {
			_ = os.WriteFile(won, nil, 0o644)
			_, _ = l.Accept()
		}
	}
}

func answerScrapes(sockets *systemd.Sockets) error {
	l, err := sockets.Kept(scrapes)
	if l == nil && err == nil {
		if l, err = net.Listen("tcp", scrapes); err == nil {
			err = sockets.Keep(scrapes, l)
		}
	}
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintln(c, os.Getpid())
			_ = c.Close()
		}
	}()
	return nil
}

type order struct {
	Do    string // set, start, stop, admit, admitted, running, state, prove, proc, log, hang
	GPUs  []gpu.UUID
	Since time.Time
	UID   uint32
}

type answer struct {
	Results []result     `json:",omitempty"`
	Running []gpu.UUID   `json:",omitempty"`
	State   any          `json:",omitempty"`
	UIDs    []uint32     `json:",omitempty"`
	Lines   []string     `json:",omitempty"`
	Checked *mps.Checked `json:",omitempty"`
	Process process.ID   `json:",omitzero"`
	Err     string       `json:",omitempty"`
}

type result struct {
	GPU    gpu.UUID
	Action mps.Action
	PID    int
	Err    string
}

// smallAgent is straight wiring.
func smallAgent(ctx context.Context) error {
	sockets, err := systemd.TakeSockets()
	if err != nil {
		return err
	}
	listeners := sockets.Listeners("agent")
	if len(listeners) != 1 {
		return fmt.Errorf("%d sockets named agent", len(listeners))
	}
	if _, ok := listeners[0].(*net.UnixListener); !ok {
		return fmt.Errorf("the socket is a %T", listeners[0])
	}
	if err := answerScrapes(sockets); err != nil {
		return err
	}
	var manager systemd.Manager
	interval, err := manager.WatchdogInterval()
	if err != nil || interval == 0 {
		return fmt.Errorf("watchdog: %v, %w", interval, err)
	}
	hang := make(chan struct{})
	go func() {
		for {
			select {
			case <-hang:
				return
			case <-time.After(interval):
				_ = manager.Alive()
			}
		}
	}()
	if err := errors.Join(manager.Status("small agent"), manager.Ready()); err != nil {
		return err
	}
	daemons := mps.New(root, mps.Program, systemd.MPSUnits{})
	for {
		c, err := listeners[0].Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			var o order
			line, err := bufio.NewReader(c).ReadBytes('\n')
			if err == nil {
				err = json.Unmarshal(line, &o)
			}
			if o.Do == "hang" {
				close(hang)
			}
			a, doErr := obey(ctx, daemons, o)
			if err = errors.Join(err, doErr); err != nil {
				a.Err = err.Error()
			}
			_ = json.NewEncoder(c).Encode(a)
		}()
	}
}

func obey(ctx context.Context, daemons *mps.Daemons, o order) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if o.Do == "running" || o.Do == "set" {
		var wanted []mps.Wanted
		for _, u := range o.GPUs {
			wanted = append(wanted, mps.Wanted{GPU: u, Limit: 32256, ThreadPercentage: 50})
		}
		if o.Do == "set" {
			var results []mps.Result
			results, err = daemons.Set(ctx, wanted)
			for _, r := range results {
				a.Results = append(a.Results, result{r.GPU, r.Action, r.Checked.PID, fmt.Sprint(r.Err)})
			}
			return a, err
		}
		a.Running, err = systemd.MPSUnits{}.Running(ctx)
		return a, err
	}
	if o.Do == "kmsg" {
		text, err := os.ReadFile("/dev/kmsg")
		a.Lines = strings.Fields(string(text))
		return a, err
	}
	if o.Do == "proc" {
		_, err = os.ReadFile("/proc/1/environ")
		return a, err
	}
	if len(o.GPUs) != 1 {
		return a, nil
	}
	u := o.GPUs[0]
	d, err := daemons.Daemon(u)
	if err != nil {
		return a, err
	}
	switch o.Do {
	case "start":
		err = systemd.MPSUnits{}.Start(ctx, u)
	case "stop":
		err = systemd.MPSUnits{}.Stop(ctx, u)
	case "state":
		a.State, err = systemd.MPSUnits{}.State(ctx, u)
	case "admit":
		err = mps.Admit(d.PipeDirectory(), o.UID)
	case "admitted":
		a.UIDs, err = mps.Admitted(d.PipeDirectory())
	case "log":
		a.Lines, err = daemons.Log(ctx, u, o.Since)
	case "alive":
		a.Process, err = d.Alive()
	case "prove":
		var p mps.Checked
		p, err = d.Check(ctx, mps.Wanted{GPU: u, Limit: 32256, ThreadPercentage: 50})
		a.Checked = &p
	}
	return a, err
}
