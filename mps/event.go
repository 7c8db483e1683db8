package mps

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
)

// EventKind is what a line of a control daemon's log tells of, fit for a metric label.
type EventKind string

// The events that are told from the log of drivers 535 to 555.
const (
	ServerStarting   EventKind = "server-starting"   // Server, UID
	ServerReady      EventKind = "server-ready"      // Server
	ServerExited     EventKind = "server-exited"     // Server, Status
	ServerBroken     EventKind = "server-broken"     // a start or a server failed: Reason where the line says it
	ServerRefuses    EventKind = "server-refuses"    // Server is asked to end and stays: it has clients
	ServerForced     EventKind = "server-forced"     // Server gets the one SIGINT of a forced end
	GPUFault         EventKind = "gpu-fault"         // the Client of the line may be a neighbour
	GPURecovered     EventKind = "gpu-recovered"     // the server takes clients again
	ClientAttached   EventKind = "client-attached"   // Client, UID
	ClientWaits      EventKind = "client-waits"      // Client, UID: its server is not ready, or is another account's
	ClientTerminated EventKind = "client-terminated" // Client
	ServerLimited    EventKind = "server-limited"    // Bytes, of device 0: Writer is the server
)

// Event is one line of the log that means something. The log tells what no
// command does: exit codes and reasons. It proves nothing: whoever
// reaches the pipe directory can write such lines.
type Event struct {
	Kind EventKind
	// Writer is the process that wrote the line, by its own account.
	Writer int
	// Server and Client are PIDs, 0 where the line names none. A client without
	// valid credentials, one of another PID namespace, has none either.
	Server int
	Client int
	// UID is the account of Server or Client; HasUID tells 0 from none.
	UID    uint32
	HasUID bool
	// Status is a server's exit status. Death by a signal shows as 0.
	Status int
	// Bytes is the exact limit of device 0.
	Bytes gpu.Bytes
	// Reason is the driver's word on a failed start, such as "no CUDA-capable device is detected".
	Reason string
}

// logLine is the form of each line of control.log and server.log, which a
// daemon in the foreground writes to its standard output.
var logLine = regexp.MustCompile(
	`^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (?:Control|Server|Other|Client|Legacy Server) +(\d{1,9})\] (.*)$`,
)

// speaker precedes what a server says; drivers write it in several ways.
var speaker = regexp.MustCompile(`^(?:Volta )?MPS(?: Server)?: `)

// identity is how driver 580 writes a client, where older ones write its PID.
var identity = regexp.MustCompile(`\{PID: (\d{1,9}), Context ID: \d{1,10}\}`)

// eventForms are the lines that mean something. Named groups are fields of Event.
var eventForms = []struct {
	kind EventKind
	form *regexp.Regexp
}{
	{ServerStarting, regexp.MustCompile(`^Starting new server (?P<server>\d{1,9}) for user (?P<uid>\d{1,10})$`)},
	{ServerReady, regexp.MustCompile(`^NEW SERVER (?P<server>\d{1,9}): Ready$`)},
	{ServerExited, regexp.MustCompile(`^Server (?P<server>\d{1,9}) exited with status (?P<status>-?\d{1,9})$`)},
	{
		ServerBroken,
		regexp.MustCompile(`^Failed to start server using uid (?P<uid>\d{1,10})(?:\.|, error:) (?P<reason>[ -~]+)$`),
	},
	{ServerBroken, regexp.MustCompile(`^Failed to start ?: (?P<reason>[ -~]+)$`)},
	{ServerBroken, regexp.MustCompile(`^Server encountered a fatal exception\. Shutting down$`)},
	{
		ServerRefuses,
		regexp.MustCompile(`^Server (?P<server>\d{1,9}) has \d+ active worker threads\. Server will not shutdown\.$`),
	},
	{ServerForced, regexp.MustCompile(`^Force shutting down server (?P<server>\d{1,9})$`)},
	{GPUFault, regexp.MustCompile(`^Client (?:process )?(?P<client>\d{1,9}) encountered a fatal GPU error\.$`)},
	{
		GPUFault,
		regexp.MustCompile(`^Server is handling a fatal GPU error\.(?: Client (?P<client>\d{1,9}) encountered it)?$`),
	},
	{GPURecovered, regexp.MustCompile(`^Server has recovered from a fatal GPU error$`)},
	{
		ClientAttached,
		regexp.MustCompile(`^NEW CLIENT (?P<client>\d{1,9}) from user (?P<uid>\d{1,10}): Server already exists$`),
	},
	{
		ClientWaits,
		regexp.MustCompile(
			`^NEW CLIENT (?P<client>\d{1,9}) from user (?P<uid>\d{1,10}): Server is not ready, push client to pending list$`,
		),
	},
	// Driver 580 (bottlerocket-kernel-kit PR 415); 535 to 555 were not seen to write it.
	{ServerLimited, regexp.MustCompile(`^Device pinned memory limit for device 0 ` +
		`set to 0x(?P<bytes>[0-9a-f]{1,15}) bytes$`)},
	{ClientTerminated, regexp.MustCompile(`^Forcefully terminating client (?P<client>\d{1,9})$`)},
}

// ParseEvent reads one line of the log, as it stands in the journal or a file;
// false for the many lines that mean nothing.
func ParseEvent(line string) (Event, bool) {
	m := logLine.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
	if m == nil {
		return Event{}, false
	}
	writer, _ := strconv.Atoi(m[1])
	text := identity.ReplaceAllString(speaker.ReplaceAllString(m[2], ""), "$1")
	for _, f := range eventForms {
		if found := f.form.FindStringSubmatch(text); found != nil {
			e := Event{Kind: f.kind, Writer: writer}
			for i, name := range f.form.SubexpNames() {
				e.take(name, found[i])
			}
			return e, true
		}
	}
	return Event{}, false
}

// take stores a named group; the forms bound its digits.
func (e *Event) take(name, value string) {
	n, _ := strconv.ParseInt(value, 10, 64)
	switch name {
	case "bytes":
		n, _ = strconv.ParseInt(value, 16, 64)
		e.Bytes = gpu.Bytes(n)
	case "server":
		e.Server = int(n)
	case "client":
		e.Client = int(n)
	case "status":
		e.Status = int(n)
	case "uid":
		e.UID, e.HasUID = uint32(n), n < 1<<32
	case "reason":
		e.Reason = value
	}
}
