package truth

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"time"
)

func ownUID() int { return os.Getuid() }

// tryNamespaces runs clients in namespaces of their own, as HTCondor and
// containers do.
func tryNamespaces(ctx context.Context, l *Lab, n *Notes) error {
	d, err := l.limited(ctx, n, "0", "2G")
	if err != nil {
		return err
	}
	for _, s := range ownSpaces {
		if s.ownProc && l.Simulated {
			continue // the simulated node looks for its processes in the node's /proc
		}
		if err := exec.CommandContext(ctx, s.under[0], append(s.under[1:], "true")...).Run(); err != nil {
			n.Record(s.name, strings.Join(s.under, " "), "it cannot be had here: "+err.Error())
			continue // nothing is learnt, which is not "does not attach"
		}
		if err := l.runIn(ctx, n, d, s); err != nil {
			return err
		}
	}
	return nil
}

// space is a way to start a client in a namespace of its own.
type space struct {
	name    string
	under   []string
	ownProc bool
}

// ownSpaces: containers mount a /proc of their own with a PID namespace; "pid" is without.
var ownSpaces = []space{
	{"shm", []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", `mount -t tmpfs tmpfs /dev/shm && exec "$@"`, "sh"}, false},
	{"ipc", []string{"unshare", "--ipc"}, false},
	{"pid", []string{"unshare", "--pid", "--fork", "--kill-child"}, false},
	{"pid_proc", []string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}, true},
}

// runIn says whether a client attaches there and is limited.
func (l *Lab) runIn(ctx context.Context, n *Notes, d *Daemon, s space) error {
	j, err := l.Start(ctx, n, Order{Name: s.name, Daemon: d, Under: s.under, Words: "go on info fill 32 until eof"})
	if err != nil {
		return err
	}
	defer j.Kill()
	line, err := j.Await(ctx, "cuInit", 15*time.Second)
	if err == nil {
		n.Set(s.name+"_init_code", line.Code)
	}
	if err == nil && line.Code == 0 {
		line, err = j.Await(ctx, "fill", 15*time.Second)
	}
	if ctx.Err() != nil {
		return ctx.Err() // not "does not attach"
	}
	ran := err == nil && line.MiB != nil
	n.Set(s.name+"_ran", ran)
	if ran {
		n.Set(s.name+"_mib", *line.MiB)
		n.Set(s.name+"_clients", d.clients(ctx))
	}
	return nil
}

// clients counts those of all servers.
func (d *Daemon) clients(ctx context.Context) int {
	servers, err := d.Servers(ctx)
	if err != nil {
		return 0
	}
	count := 0
	for _, s := range servers {
		count += len(s.Clients)
	}
	return count
}

func attachedAndLimited(name string) func(Values) bool {
	return func(v Values) bool {
		return v.True(name+"_ran") && v.Number(name+"_clients") >= 1 && v.Number(name+"_mib") <= 2048
	}
}

var namespaceClaims = []Claim{
	{"A client in a /dev/shm of its own attaches and is limited.", []string{"shm_ran"}, attachedAndLimited("shm")},
	{"A client in an IPC namespace of its own attaches and is limited.", []string{"ipc_ran"}, attachedAndLimited("ipc")},
	{"A client in a PID namespace of its own with the host's /proc does not attach (580).", []string{"pid_ran"}, func(v Values) bool { return !v.True("pid_ran") }},
	{"A client in a PID namespace of its own with its own /proc attaches and is limited, if the daemon is in the host's.", []string{"pid_proc_ran"}, attachedAndLimited("pid_proc")},
}

// Two accounts that own nothing: numbers suffice.
const (
	oneUID   = 64001
	otherUID = 64002
)

// tryUsers has two accounts meet, with one server for each account and with one
// for all.
func tryUsers(ctx context.Context, l *Lab, n *Notes) error {
	d, err := l.Daemon(ctx, n)
	if err != nil {
		return err
	}
	one, err := l.Start(ctx, n, Order{Name: "one", Daemon: d, UID: oneUID, Words: "context until eof"})
	if err != nil {
		return err
	}
	if err := one.Must(ctx, "context"); err != nil {
		return err
	}
	other, err := l.Start(ctx, n, Order{Name: "other", Daemon: d, UID: otherUID, Words: "context until eof"})
	if err != nil {
		return err
	}
	_, err = other.Await(ctx, "cuInit", 2*time.Second)
	n.Set("waits", err != nil && !other.gone())
	if err := one.End(ctx); err != nil {
		return err
	}
	left := time.Now()
	line, err := other.Await(ctx, "context", 20*time.Second)
	if err == nil {
		n.Set("served_after_ms", float64(time.Since(left).Milliseconds()))
		n.Set("served_code", line.Code)
	}
	return other.End(ctx)
}

func tryMultiUser(ctx context.Context, l *Lab, n *Notes) error {
	found, err := l.capabilities(ctx, n)
	if err != nil {
		return err
	}
	n.Set("multi_user", found.MultiUser.Has)
	if !found.MultiUser.Has {
		return nil
	}
	d, err := l.Daemon(ctx, n, "-multiuser-server")
	if err != nil {
		return err
	}
	var jobs []*Job
	for i, uid := range []uint32{oneUID, otherUID} {
		j, err := l.Start(ctx, n, Order{Name: []string{"one", "other"}[i], Daemon: d, UID: uid, Words: "context until eof"})
		if err != nil {
			return err
		}
		n.Set([]string{"one", "other"}[i]+"_served", j.Must(ctx, "context") == nil)
		jobs = append(jobs, j)
	}
	if servers, err := d.Servers(ctx); err == nil && len(servers) == 1 {
		n.Set("server_uid", int(servers[0].UID))
	}
	for _, j := range jobs {
		if err := j.End(ctx); err != nil {
			return err
		}
	}
	return nil
}

var userClaims = []Claim{
	{"Without multi-user mode the second account waits in cuInit.", []string{"waits"}, func(v Values) bool { return v.True("waits") }},
	{"It is served once the first account's clients are gone.", []string{"served_code"}, func(v Values) bool { return v.Number("served_code") == 0 }},
}

var multiUserClaims = []Claim{
	{"With -multiuser-server two accounts are served at once.", []string{"one_served", "other_served"}, func(v Values) bool { return v.True("one_served") && v.True("other_served") }},
	{"Their server is root's.", []string{"server_uid"}, func(v Values) bool { return v.Number("server_uid") == 0 }},
}

// tryPrivileges has another account command a server that is ready.
func tryPrivileges(ctx context.Context, l *Lab, n *Notes) error {
	d, err := l.Daemon(ctx, n)
	if err != nil {
		return err
	}
	j, err := l.Start(ctx, n, Order{Name: "one", Daemon: d, UID: oneUID, Words: "go on context until eof"})
	if err != nil {
		return err
	}
	if err := j.Must(ctx, "context"); err != nil {
		return err
	}
	servers, err := d.Servers(ctx)
	if err != nil || len(servers) != 1 || len(servers[0].Clients) != 1 {
		return errOr(err, "there is not one server with one client")
	}
	d.commandAs(ctx, n, otherUID, "other", servers[0].PID, servers[0].Clients[0])
	_, hit := j.Line("until eof")
	n.Set("client_of_other_survives", !hit && !j.gone())
	d.commandAs(ctx, n, oneUID, "own", servers[0].PID, servers[0].Clients[0])
	err = until(ctx, 3*time.Second, func() bool { _, hit := j.Line("until eof"); return hit })
	n.Set("own_terminates", err == nil)
	return nil
}

func (d *Daemon) commandAs(ctx context.Context, n *Notes, uid uint32, name string, server, client int) {
	n.Set(name+"_set", d.TellAs(ctx, uid, commandf("set_device_pinned_mem_limit %d 0 1G", server)))
	n.Set(name+"_limit_after", d.TellAs(ctx, uid, commandf("get_device_pinned_mem_limit %d 0", server)))
	n.Set(name+"_terminate", d.TellAs(ctx, uid, commandf("terminate_client %d %d", server, client)))
	if name == "other" {
		n.Set(name+"_shutdown", d.TellAs(ctx, uid, commandf("shutdown_server %d", server)))
	}
}

var privilegeClaims = []Claim{
	{"Another account can neither change nor end a server that is not its own, nor its clients.", []string{"client_of_other_survives", "other_limit_after"}, func(v Values) bool {
		return v.True("client_of_other_survives") && v.Text("other_limit_after") != "1G"
	}},
	{"An account can end clients of its own server.", []string{"own_terminates"}, func(v Values) bool { return v.True("own_terminates") }},
}

// tryFIFO takes the log's FIFO away from everybody but the daemon's account.
func tryFIFO(ctx context.Context, l *Lab, n *Notes) error {
	d, err := l.Daemon(ctx, n)
	if err != nil {
		return err
	}
	if err := os.Chmod(d.PipeDirectory()+"/log", 0o600); err != nil {
		return err
	}
	j, err := l.Start(ctx, n, Order{Name: "one", Daemon: d, UID: oneUID, Words: "context until eof"})
	if err != nil {
		return err
	}
	n.Set("served", j.Must(ctx, "context") == nil && d.clients(ctx) == 1)
	return nil
}

var fifoClaims = []Claim{
	{"Server and clients of another account work where the log's FIFO has mode 0600.", []string{"served"}, func(v Values) bool { return v.True("served") }},
}
