package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
)

// endTimeout bounds how long a job's end may wait for the agent, which itself
// waits a few seconds at most for a control daemon.
const endTimeout = 8 * time.Second

// holdTimeout is how long a job that is to be held may outlive its program:
// the startd looks at its policy every POLLING_INTERVAL, 5 s by default.
const holdTimeout = 60 * time.Second

// supervise asks the agent to put the limits of its cgroup in force, where this
// node has any, and becomes the job or runs it as a child. An MPS client that a signal ends with work
// in flight can take its neighbours along, so before a signal that would end
// the job is passed on, and before this process ends and HTCondor kills what
// is left in the cgroup, the agent lets the job's clients leave. A job that
// catches the signal gets it first: it may want to save its work on the GPU.
func (p program) supervise(args []string) int {
	o, err := p.parse("supervise", args, endTimeout)
	if err != nil || len(o.args) == 0 {
		fmt.Fprintln(p.stderr, "gpuslot-condor: supervise needs a command")
		return usage
	}
	command := o.args
	if site := siteWrapper(o.socket); site != "" {
		command = append([]string{site}, command...)
	}
	path, err := exec.LookPath(command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return p.giveUp(fmt.Sprintf("gpuslot cannot find the job's program: %v", err), notFound)
	}
	started, err := p.start(o)
	if err != nil {
		return p.requeue(fmt.Sprintf("gpuslot does not start the job: %v", err))
	}
	if !started.Supervise {
		err = syscall.Exec(path, command, os.Environ())
		return p.giveUp(fmt.Sprintf("gpuslot cannot execute %s: %v", path, err), notExecutable)
	}
	signals, children := caught()
	env := withBinds(os.Environ(), o.args, bindsForHere(o.socket))
	job, err := syscall.ForkExec(path, command, &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}})
	if err != nil {
		return p.giveUp(fmt.Sprintf("gpuslot cannot execute %s: %v", path, err), notExecutable)
	}
	return p.follow(o, job, started.Reserved, signals, children)
}

// early are the signals by which HTCondor and users end a job or tell it
// something. To catch one costs two switches between threads: all others wait
// until the job is lateAfter old.
var early = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1,
	syscall.SIGUSR2}

const lateAfter = 2 * time.Second

// caught begins to catch signals; that of a child's end has a channel of its own and is
// never lost among others.
func caught() (signals, children chan os.Signal) {
	signals, children = make(chan os.Signal, 16), make(chan os.Signal, 1)
	signal.Notify(signals, early...)
	signal.Notify(children, syscall.SIGCHLD)
	return signals, children
}

// siteWrapper is the job wrapper that the site had before; the agent links it
// beside its other files.
func siteWrapper(socket string) string {
	path, err := os.Readlink(filepath.Join(filepath.Dir(socket), "condor", "job-wrapper"))
	if err != nil {
		return ""
	}
	return path
}

// follow passes signals on until the job ends, and ends like it. The job's
// number is its own until this process has waited for it. Reserved: the driver
// keeps VRAM for the job, which the agent gives back at its end.
func (p program) follow(o options, job int, reserved bool, signals, children chan os.Signal) int {
	told := false
	late := time.NewTimer(lateAfter)
	defer late.Stop()
	for {
		select {
		case s := <-signals:
			told = told || ends(s)
			p.pass(o, job, s.(syscall.Signal))
		case <-late.C:
			signal.Notify(signals)
		case <-children:
			var status syscall.WaitStatus
			ended, err := syscall.Wait4(job, &status, syscall.WNOHANG, nil)
			if err != nil { // no other process waits for it
				fmt.Fprintf(p.stderr, "gpuslot-condor: wait for the job: %v\n", err)
			}
			if ended == job || err != nil {
				if reserved || !lastOne("/sys/fs/cgroup") || holdDue(o.socket) {
					p.linger(o, signals, told)
				}
				return endLike(status, err)
			}
		}
	}
}

// ends: HTCondor sends it to end a job.
func ends(s os.Signal) bool {
	return s == syscall.SIGTERM || s == syscall.SIGQUIT || s == syscall.SIGINT
}

// pass hands a signal on. One that would end the job waits for its MPS clients.
func (p program) pass(o options, job int, s syscall.Signal) {
	switch s {
	case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE:
		return // our own: the Go runtime preempts with SIGURG
	case syscall.SIGCONT, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU:
	default:
		if !handles(job, s) {
			p.end(o)
		}
	}
	// A job that ended meanwhile needs no signal.
	_ = syscall.Kill(job, s)
}

// end lets the slot's MPS clients leave. Without an agent the job ends as it
// would have without us.
func (p program) end(o options) api.Ended {
	reply, err := o.call(api.Request{Op: api.OpEnd})
	if err != nil {
		fmt.Fprintf(p.stderr, "gpuslot-condor: the job's MPS clients were not asked to leave: %v\n", err)
	}
	if reply.Ended == nil {
		return api.Ended{}
	}
	return *reply.Ended
}

// linger ends what the job left running, and waits for a hold that is due: a
// program that meets error 810 (its client was terminated) may end before it.
// Told: HTCondor's signal has come already.
func (p program) linger(o options, signals <-chan os.Signal, told bool) {
	ended := p.end(o)
	if ended.Wait == "" || told {
		return
	}
	fmt.Fprintf(p.stderr, "gpuslot: %s\n", ended.Wait)
	late := time.NewTimer(holdTimeout)
	defer late.Stop()
	for {
		select {
		case s := <-signals:
			if ends(s) {
				return
			}
		case <-late.C:
			return
		}
	}
}

// endLike is the job's exit status; a job that a signal ended is followed by
// the same signal.
func endLike(w syscall.WaitStatus, err error) int {
	if err != nil {
		return notAdmitted
	}
	if !w.Signaled() {
		return w.ExitStatus()
	}
	// The job's core file, if any, is written: not a second one.
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	signal.Reset(w.Signal())
	_ = syscall.Kill(os.Getpid(), w.Signal())
	time.Sleep(time.Second)      // a signal that Go does not let end us
	return 128 + int(w.Signal()) // as a shell says it
}

// handles says whether a process catches or ignores a signal, by the masks in
// /proc/<pid>/status. What cannot be read does not.
func handles(pid int, s syscall.Signal) bool {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	return masked(string(status), "SigCgt:", s) || masked(string(status), "SigIgn:", s)
}

func masked(status, field string, s syscall.Signal) bool {
	_, rest, ok := strings.Cut(status, field)
	if !ok {
		return false
	}
	line, _, _ := strings.Cut(rest, "\n")
	mask, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && mask&(1<<(uint(s)-1)) != 0
}
