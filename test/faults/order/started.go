package order

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/gpuslot/gpuslot/test/startd"
)

// Started is a starter with its job, from the order to the end.
type Started struct {
	cmd *exec.Cmd
	in  io.Writer
	// answered is closed when the hook has answered, ended with the starter.
	answered, ended chan struct{}

	mu   sync.Mutex
	told Event
}

// Start runs a starter, the program built from test/faults/starter, for a slot.
func Start(program, slot string, o Order, stderr io.Writer) (*Started, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	cmd, err := startd.Starter(context.Background(), program, "-f", "-local-name", "slot_type_101", "-a", slot, "submit.example.org")
	if err != nil {
		return nil, err
	}
	s := &Started{cmd: cmd, answered: make(chan struct{}), ended: make(chan struct{})}
	s.cmd.Stderr, s.cmd.WaitDelay = stderr, time.Second
	out, errOut := s.cmd.StdoutPipe()
	in, errIn := s.cmd.StdinPipe()
	if err := errors.Join(errOut, errIn, s.cmd.Start()); err != nil {
		return nil, err
	}
	s.in = in
	go s.follow(out)
	s.Say(string(text)) // one that cannot be told ends without an answer
	return s, nil
}

// follow reads what the starter tells until it ends.
func (s *Started) follow(out io.Reader) {
	defer close(s.ended)
	answer := sync.OnceFunc(func() { close(s.answered) })
	defer answer()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		s.mu.Lock()
		if err := json.Unmarshal(lines.Bytes(), &s.told); err != nil {
			s.told.Failed = err.Error()
		}
		s.mu.Unlock()
		answer()
	}
	_ = s.cmd.Wait()
}

// Told is all that the starter told so far.
func (s *Started) Told() Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told
}

// Answer waits for the hook's: nil where the job runs.
func (s *Started) Answer(ctx context.Context) error {
	select {
	case <-s.answered:
	case <-ctx.Done():
		return errors.New("the hook does not answer")
	}
	switch e := s.Told(); {
	case e.Failed != "":
		return errors.New(e.Failed)
	case e.PID == 0:
		return fmt.Errorf("refused (%d): %s", e.Code, e.Message)
	}
	return nil
}

// Say gives the starter a command. One that has ended hears nothing.
func (s *Started) Say(command string) { _, _ = io.WriteString(s.in, command+"\n") }

// Ended is closed when the starter has ended, and with it the job's claim.
func (s *Started) Ended() <-chan struct{} { return s.ended }

// Over says whether it has.
func (s *Started) Over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// OverWithin says whether it has, some time later at most.
func (s *Started) OverWithin(most time.Duration) bool {
	select {
	case <-s.ended:
		return true
	case <-time.After(most):
		return false
	}
}

// Kill ends the job by force, and its starter: with it the job ends, but for what
// hangs in the driver.
func (s *Started) Kill() {
	s.Say(Kill)
	if !s.OverWithin(5 * time.Second) {
		_ = s.cmd.Process.Kill()
		s.OverWithin(5 * time.Second)
	}
}
