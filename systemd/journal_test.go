package systemd_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/systemd"
)

// testJournal: the log of a running daemon is in the namespace alone, bounded as
// the packaged file says, and reaches the agent in its sandbox.
func testJournal(ctx context.Context, l lab, pid int) {
	mark := func(text string) { // one word that the daemon does not know
		l.run(ctx, "sh", "-c", "echo "+text+" | CUDA_MPS_PIPE_DIRECTORY="+root+"/"+string(uuidA)+" nvidia-cuda-mps-control")
	}
	show := func(args ...string) string {
		return l.run(ctx, append([]string{"journalctl", "--no-pager", "-q", "-o", "cat", "-u", "gpuslot-mps@*"}, args...)...)
	}
	logged := func(since time.Time, text string) bool {
		a, err := l.ask(order{Do: "log", GPUs: []gpu.UUID{uuidA}, Since: since})
		if err != nil || a.Err != "" {
			l.t.Fatalf("the agent reads the log: %v %s", err, a.Err)
		}
		return slices.ContainsFunc(a.Lines, func(s string) bool { return strings.Contains(s, text) })
	}
	mark("early-word")
	l.wait(ctx, "the early word is logged", func() bool { return logged(time.Time{}, "early-word") })
	middle := time.Now()
	mark("late-word")
	l.wait(ctx, "the late word is logged", func() bool { return logged(middle, "late-word") })
	if logged(middle, "early-word") {
		l.t.Error("the early word is told as late")
	}
	if got := show("--namespace=" + systemd.JournalNamespace); !strings.Contains(got, "early-word") || !strings.Contains(got, "Control") {
		l.t.Errorf("the namespace shows:\n%s", got)
	}
	if got := show(); strings.Contains(got, "early-word") || !strings.Contains(got, "Start") {
		l.t.Errorf("the machine's journal is to show what systemd says of the units, not their log:\n%s", got)
	}
	if got := l.run(ctx, "sh", "-c", strings.Replace(systemd.JournalCommand(systemd.MPSUnit(uuidA)), "-u", "-q -o cat -u", 1)); !strings.Contains(got, "early-word") || !strings.Contains(got, "Start") {
		l.t.Errorf("the command of our messages shows:\n%s", got)
	}
	// Its service may end in any way: the daemons go on, and so does their log.
	journald := "systemd-journald@" + systemd.JournalNamespace + ".service"
	for _, how := range []string{"KILL", "TERM", "restart"} {
		before := l.show(ctx, journald, "MainPID")
		if how == "restart" {
			l.run(ctx, "systemctl", "restart", journald)
		} else {
			l.run(ctx, "kill", "-"+how, before)
		}
		l.wait(ctx, "its journald runs again after "+how, func() bool {
			now := l.show(ctx, journald, "MainPID")
			return now != before && now != "0" && l.show(ctx, journald, "ActiveState") == "active"
		})
		mark("word-after-" + how)
		l.wait(ctx, "the log goes on after "+how, func() bool { return logged(middle, "word-after-"+how) })
	}
	if got := l.show(ctx, systemd.MPSUnit(uuidA), "MainPID"); got != strconv.Itoa(pid) {
		l.t.Errorf("the control daemon is %s, was %d", got, pid)
	}
	l.t.Logf("its journald: %s", l.run(ctx, "sh", "-c", "grep -h -e VmRSS -e RssAnon -e RssFile /proc/$(systemctl show -P MainPID "+journald+")/status | tr -s '\\t\\n ' ' '; journalctl --namespace=gpuslot --disk-usage"))
}
