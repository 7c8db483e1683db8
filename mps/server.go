package mps

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/gpuslot/gpuslot/gpu/process"
)

// ServerStatus is what a control daemon says of an MPS server, in its own
// words. Driver 535 has no such command.
type ServerStatus string

// The states of an MPS server.
const (
	StatusUnknown ServerStatus = ""             // 535, or the server does not answer the daemon
	Initializing  ServerStatus = "INITIALIZING" // clients wait
	Active        ServerStatus = "ACTIVE"       // clients come and go
	Faulted       ServerStatus = "FAULT"        // newcomers get 807 until every client that the fault met has ended
	Unreadable    ServerStatus = "UNREADABLE"   // a state, or clients, in a form that no driver was seen to print
)

// Server is one MPS server, as its control daemon and the kernel tell of it.
type Server struct {
	process.ID
	// UID is the account of the process; its clients are of the same one, or of
	// any where it is root's multi-user server.
	UID    uint32
	Status ServerStatus
	// Limit and ThreadPercentage are what its next client gets, in the daemon's
	// own words: "4G", "50.0". Both are empty while the server does not answer;
	// with a percentage and no limit, its clients have no limit.
	Limit            string
	ThreadPercentage string
	// Clients are the PIDs of its clients; none while the server is not ready.
	Clients []int
}

// Answers tells whether the server itself was reached: only then do its limits
// and clients mean anything.
func (s Server) Answers() bool { return s.ThreadPercentage != "" }

// Clients counts the clients of all servers.
func (p Checked) Clients() int {
	n := 0
	for _, s := range p.States {
		n += len(s.Clients)
	}
	return n
}

// Servers asks for the daemon's servers and their clients. It is one run of
// the command line unless a server came or went since the last look.
func (d *Daemon) Servers(ctx context.Context) ([]Server, error) {
	_, servers, _, err := d.survey(ctx, nil)
	return servers, err
}

// Clients asks for the PIDs of one server's clients.
func (d *Daemon) Clients(ctx context.Context, server int) ([]int, error) {
	reply, err := d.Command(ctx, "get_client_list "+strconv.Itoa(server))
	if err != nil {
		return nil, err
	}
	if notFound(reply, server) {
		return nil, d.noServer(server)
	}
	pids, err := parsePIDs(reply)
	if err != nil {
		return nil, d.fault(Refused, err, "its client list of server %d reads %s: this driver answers in a form that "+
			"gpuslot does not know", server, printable(reply))
	}
	return pids, nil
}

func pidsOf(servers []Server) []int {
	var pids []int
	for _, s := range servers {
		pids = append(pids, s.PID)
	}
	return pids
}

// serverCommands ask for all that a daemon knows of a server.
func serverCommands(pid int) []string {
	p := strconv.Itoa(pid)
	return []string{
		"get_server_status " + p,
		"get_active_thread_percentage " + p,
		"get_device_pinned_mem_limit " + p + " 0",
		"get_client_list " + p,
	}
}

// surveys bounds how often a survey is begun again because a server came or went.
const surveys = 3

// survey runs commands and asks for the servers, in one conversation where the
// servers are those of the last time: each conversation costs a process, and
// the daemon several lines of log. Sets of a Wanted may be repeated.
func (d *Daemon) survey(ctx context.Context, commands []string) ([]string, []Server, process.ID, error) {
	var first []string
	var before process.ID
	for n := 1; ; n++ {
		known := d.remembered()
		replies, who, err := d.converse(ctx, surveyScript(commands, known)...)
		if err != nil {
			return nil, nil, process.ID{}, err
		}
		if n == 1 {
			first, before = replies[:len(commands)], who
		} else if who != before {
			return nil, nil, process.ID{}, d.fault(Gone, nil, "process %d took the place of process %d while it was asked: "+
				"see its log for the cause", who.PID, before.PID)
		}
		listed, err := parsePIDs(replies[len(commands)])
		if err != nil {
			return nil, nil, process.ID{}, d.fault(WrongLimits, err, "its server list reads %s: this driver answers in a "+
				"form that gpuslot does not know", printable(replies[len(commands)]))
		}
		d.remember(listed)
		if n == surveys || sameSet(listed, known) {
			return first, readServers(listed, known, replies[len(commands)+1:]), who, nil
		}
		commands = nil
	}
}

func surveyScript(commands []string, known []int) []string {
	script := append(slices.Clone(commands), "get_server_list")
	for _, pid := range known {
		script = append(script, serverCommands(pid)...)
	}
	return script
}

func sameSet(a, b []int) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// readServers puts the replies for the servers asked about to those listed. A
// server that was not asked about, because it came meanwhile, is unknown but
// for its process; one that left meanwhile is left out.
func readServers(listed, asked []int, replies []string) []Server {
	var servers []Server
	per := len(serverCommands(0))
	for _, pid := range listed {
		s := Server{ID: process.ID{PID: pid}}
		if at := slices.Index(asked, pid); at >= 0 {
			var ok bool
			if s, ok = parseServer(pid, replies[at*per:(at+1)*per]); !ok {
				continue
			}
		}
		s.look()
		servers = append(servers, s)
	}
	return servers
}

// parseServer reads the replies to serverCommands; false for a server that is
// no longer there.
func parseServer(pid int, replies []string) (Server, bool) {
	s := Server{ID: process.ID{PID: pid}}
	for _, reply := range replies {
		if notFound(reply, pid) {
			return s, false
		}
	}
	switch st := ServerStatus(only(replies[0], statusLine)); {
	case st == Initializing, st == Active, st == Faulted:
		s.Status = st
	case !isRefusal(replies[0]):
		s.Status = Unreadable
	}
	percentage := only(replies[1], percentageLine)
	if _, err := parsePercentage(percentage); err != nil {
		return s, true // it is not ready: 535 to 555 answer nothing
	}
	s.ThreadPercentage, s.Limit = percentage, only(replies[2], limitLine)
	var err error
	if s.Clients, err = parsePIDs(replies[3]); err != nil {
		s.Status = Unreadable // it may have clients
	}
	return s, true
}

// look adds what the kernel knows: who it is, and whose.
func (s *Server) look() {
	st, err := proc.Stat(s.PID)
	if err != nil || st.Ended() {
		return // it ended meanwhile: a start time of 0 is no living process
	}
	s.ID = st.ID
	of, _ := proc.Owner(s.PID) // none if it has ended
	s.UID = of.UID
}

func notFound(reply string, pid int) bool {
	return lineIndex(reply, fmt.Sprintf("Server %d not found", pid)) >= 0
}

func (d *Daemon) noServer(pid int) error {
	return d.fault(NoServer, nil, "it has no server %d: ask it for its servers again", pid)
}

// remembered are the servers of the last survey.
func (d *Daemon) remembered() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.servers
}

func (d *Daemon) remember(pids []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.servers = pids
}
