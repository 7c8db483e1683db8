package mps

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/gpuslot/gpuslot/gpu/foreign"
	"github.com/gpuslot/gpuslot/gpu/process"
)

// Termination is the answer to one terminate_client.
type Termination struct {
	Client int
	// Result is the daemon's number: 0 when the client's outstanding work was
	// ended, else CUDA's code. 1 has two meanings: there is no such client, or the
	// server is not ready and nothing was done.
	Result int
	// Left says that the server itself answered in the same conversation and does
	// not list the client. An empty list of a server that is not ready is no such
	// answer. A client leaves the list when its process lets go of its contexts or ends.
	Left bool
}

// Ended says that the client is known to have no work on the GPU any more, so that a
// signal to its process harms nobody else. False means that this is not known.
func (t Termination) Ended() bool { return t.Result == 0 || t.Left }

// Terminate ends the outstanding work of clients of one server
// (terminate_client: they meet error 810) and looks who is left, in one run of
// the command line, bounded like every other. There is one answer per client,
// in their order. Its error says NoServer when the server process has ended.
func (d *Daemon) Terminate(ctx context.Context, server process.ID, clients ...int) ([]Termination, error) {
	if len(clients) == 0 {
		return nil, nil
	}
	pid := strconv.Itoa(server.PID)
	var script []string
	for _, c := range clients {
		script = append(script, fmt.Sprintf("terminate_client %s %d", pid, c))
	}
	// A server that is not ready has an empty list and no percentage, and it may
	// change between two commands: the percentage is asked for on both sides.
	ready, list := "get_active_thread_percentage "+pid, "get_client_list "+pid
	replies, _, err := d.converse(ctx, append(script, ready, list, ready)...)
	if err != nil {
		return nil, err
	}
	if !proc.Runs(server) {
		return nil, d.noServer(server.PID)
	}
	last := replies[len(clients):]
	if notFound(last[1], server.PID) {
		return nil, d.noServer(server.PID)
	}
	remaining, err := parsePIDs(last[1])
	if err != nil {
		return nil, d.fault(Refused, err, "it answers %s to %q: this driver answers in a form that gpuslot does not "+
			"know", printable(last[1]), list)
	}
	_, notBefore := parsePercentage(only(last[0], percentageLine))
	_, notAfter := parsePercentage(only(last[2], percentageLine))
	answers := notBefore == nil && notAfter == nil
	out := make([]Termination, len(clients))
	for i, c := range clients {
		if isRefusal(replies[i]) {
			return nil, d.refused(replies[i], script[i])
		}
		result, err := parseResult(replies[i])
		if err != nil {
			return nil, d.fault(Refused, err, "%v to %q: this driver answers in a form that gpuslot does not "+
				"know", err, script[i])
		}
		out[i] = Termination{Client: c, Result: result, Left: answers && !slices.Contains(remaining, c)}
	}
	return out, nil
}

// parseResult reads the number in a reply to terminate_client, beside which stand lines of words.
func parseResult(reply string) (int, error) {
	n, err := strconv.Atoi(only(reply, resultLine))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("it answers %s", printable(reply))
	}
	return n, nil
}

// StartServer asks for a server of an account (start_server -uid). The daemon
// only takes note: one of another account must end first, and whether it comes
// is seen in the servers. A server of that account that is there stays.
func (d *Daemon) StartServer(ctx context.Context, uid uint32) error {
	return d.order(ctx, "start_server -uid "+strconv.FormatUint(uint64(uid), 10), 0)
}

// ShutdownServer asks a server to end when its clients have ended.
func (d *Daemon) ShutdownServer(ctx context.Context, server int) error {
	return d.order(ctx, "shutdown_server "+strconv.Itoa(server), server)
}

// order gives a command whose only good answer is none.
func (d *Daemon) order(ctx context.Context, command string, server int) error {
	reply, err := d.Command(ctx, command)
	switch {
	case err != nil || reply == "":
		return err
	case notFound(reply, server):
		return d.noServer(server)
	}
	return d.refused(reply, command)
}

func (d *Daemon) refused(reply, command string) error {
	return d.fault(Refused, nil,
		"it answers %q to %q: run the agent as root or as the account that started the daemon", foreign.Clip(reply), command)
}
