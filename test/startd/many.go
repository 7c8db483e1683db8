package startd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
)

// manyEnv makes a startd start the starters that it reads from its standard input.
const manyEnv = "GPUSLOT_STARTD_MANY"

// Many is one startd with many starters, as on a real node.
type Many struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	mu     sync.Mutex
	orders *json.Encoder
	// replies are awaited by the number of the order.
	replies map[int]chan reply
	next    int
}

type order struct {
	Number int
	Args   []string
	Input  json.RawMessage
}

type reply struct {
	Number int
	Output json.RawMessage
	Err    string
}

// NewMany starts the startd. Its starters, of the program named condor_starter, live until End.
func NewMany(program string, args ...string) (*Many, error) {
	// A context would kill it, and leave the processes of its jobs.
	c, err := Starter(context.Background(), program, args...)
	if err != nil {
		return nil, err
	}
	// There may be hundreds of starters.
	c.Env, c.Stderr = append(os.Environ(), manyEnv+"=1", "GOGC=10", "GOMAXPROCS=1"), os.Stderr
	m := &Many{cmd: c, replies: map[int]chan reply{}}
	out, err := c.StdoutPipe()
	if err == nil {
		m.input, err = c.StdinPipe()
	}
	if err != nil {
		return nil, err
	}
	m.orders = json.NewEncoder(m.input)
	if err := c.Start(); err != nil {
		return nil, err
	}
	go m.deliver(json.NewDecoder(out))
	return m, nil
}

// deliver hands each reply to who waits for it, until the startd ends.
func (m *Many) deliver(replies *json.Decoder) {
	for {
		var r reply
		err := replies.Decode(&r)
		m.mu.Lock()
		if err != nil {
			for _, waits := range m.replies {
				waits <- reply{Err: "the startd ended"}
			}
			m.mu.Unlock()
			return
		}
		m.replies[r.Number] <- r
		delete(m.replies, r.Number)
		m.mu.Unlock()
	}
}

// Start starts a starter, which reads input, and stays; output is the JSON value that it prints.
func (m *Many) Start(input []byte, args ...string) (output []byte, err error) {
	waits := make(chan reply, 1)
	m.mu.Lock()
	m.next++
	m.replies[m.next] = waits
	err = m.orders.Encode(order{m.next, args, input})
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r := <-waits
	if r.Err != "" {
		return nil, fmt.Errorf("starter %v: %s", args, r.Err)
	}
	return r.Output, nil
}

// End closes the input of all starters and waits until they have ended.
func (m *Many) End() error { return errors.Join(m.input.Close(), m.cmd.Wait()) }

// serve is the startd of Many.
func serve() error {
	var (
		mu      sync.Mutex
		replies = json.NewEncoder(os.Stdout)
		inputs  []io.Closer
		running sync.WaitGroup
	)
	orders := json.NewDecoder(os.Stdin)
	for {
		var o order
		if err := orders.Decode(&o); err != nil {
			for _, in := range inputs {
				_ = in.Close()
			}
			running.Wait()
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		c := exec.Command(starterOf(), o.Args...)
		c.Stderr = os.Stderr
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		in, err := c.StdinPipe()
		if err != nil {
			return err
		}
		out, err := c.StdoutPipe()
		if err != nil {
			return err
		}
		if err := c.Start(); err != nil {
			return err
		}
		inputs = append(inputs, in)
		running.Go(func() {
			r := reply{Number: o.Number}
			_, err := in.Write(o.Input)
			if err = errors.Join(err, json.NewDecoder(out).Decode(&r.Output)); err != nil {
				r.Err = err.Error()
			}
			mu.Lock()
			_ = replies.Encode(r) // who asked has ended, and this program with it
			mu.Unlock()
			_ = c.Wait() // it ends with its input
		})
	}
}

func starterOf() string {
	program, _ := os.Executable() // Run has asked for it already
	return filepath.Join(filepath.Dir(program), starterName)
}
