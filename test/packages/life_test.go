package packages

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// life is a node on which a package lives.
type life struct {
	*site.Site
	t   *testing.T
	inv gpu.Inventory
	// told are the commands of the papers, and whether they were run.
	told map[string]bool
}

// TestLife takes a node from before the installation to after the purge, with
// jobs that attach to simulated MPS servers, and compares both ends. The commands
// of README and docs/install.md are those that it runs. It does so on the newest
// systemd and on the oldest that the package asks for, side by side. On the newest
// the life begins with a package of an older commit, if this clone has it. Leg: sim.
func TestLife(t *testing.T) {
	t.Parallel()
	if err := node.Available(); err != nil {
		t.Skip(err)
	}
	one, two := first(t).deb, withNewDefault(t, build(t, "v0.2.0").deb)
	t.Run("systemd 252", func(t *testing.T) {
		t.Parallel()
		testLife(t, "bookworm", one, two, one)
	})
	t.Run("systemd newest", func(t *testing.T) {
		t.Parallel()
		oldest, err := older(t.Context())
		if errors.Is(err, errNoHistory) {
			t.Run("older package", func(t *testing.T) { t.Skip(err) })
			oldest = one
		} else {
			must(t, err)
		}
		testLife(t, "", oldest, two, one)
	})
}

// testLife installs the first package, upgrades to the second, and goes back to the third.
func testLife(t *testing.T, systemd, first, second, third string) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	inv, err := gpu.ReadInventory("../site/testdata/v100s-2-h100.json")
	must(t, err)
	s, err := site.Boot(ctx, site.Options{Leg: site.Sim, Inventory: &inv, Package: first, Systemd: systemd, Progress: t.Output()})
	must(t, err)
	t.Cleanup(func() { must(t, s.Stop()) })
	told := commands(t, "debian", "../../README.md", "../../docs/install.md")
	step := func(name string, play func(l *life, ctx context.Context)) {
		t.Helper()
		if !t.Run(name, func(t *testing.T) { play(&life{s, t, inv, told}, ctx) }) {
			log, _ := s.Run(context.WithoutCancel(ctx), "journalctl", "--no-pager", "-b", "--namespace=+gpuslot", "-u", "gpuslot*", "-o", "short-precise")
			t.Fatalf("the node is not as the next step needs it\n%s", log.Stdout)
		}
	}
	var before snapshot
	step("before", func(l *life, ctx context.Context) {
		must(t, l.StartCondor(ctx))
		before = l.snapshot(ctx)
	})
	step("install", (*life).install)
	step("first job", (*life).firstJob)
	step("jobs run", (*life).jobsRun)
	step("a site's edits", (*life).edits)
	step("upgrade under load", func(l *life, ctx context.Context) { l.upgrade(ctx, second) })
	step("kill each unit", (*life).killUnits)
	step("full file systems", (*life).fill)
	step("reboot", (*life).reboot)
	step("downgrade", func(l *life, ctx context.Context) { l.downgrade(ctx, third) })
	step("remove", (*life).remove)
	step("purge", func(l *life, ctx context.Context) {
		l.tell(ctx, "apt-get purge -y gpuslot")
		compare(l.t, before, l.snapshot(ctx))
	})
	allRan(t, told)
}

func allRan(t *testing.T, told map[string]bool) {
	t.Helper()
	for command, ran := range told {
		if !ran {
			t.Errorf("the papers tell %q, which no step ran", command)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run is a command of the node that must succeed.
func (l *life) run(ctx context.Context, args ...string) string {
	l.t.Helper()
	res, err := l.Run(ctx, args...)
	if err != nil {
		l.t.Fatal(err)
	}
	return strings.TrimSpace(res.Stdout)
}

// sh is a line of a shell that must succeed.
func (l *life) sh(ctx context.Context, line string) string {
	l.t.Helper()
	return l.run(ctx, "sh", "-ec", line)
}

// commands are those of the blocks that papers mark as run.
func commands(t *testing.T, mark string, papers ...string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, path := range papers {
		text, err := os.ReadFile(path)
		must(t, err)
		blocks := strings.Split(string(text), "<!-- run: "+mark+" -->\n```sh\n")
		if len(blocks) < 2 {
			t.Errorf("%s has no commands to run", path)
		}
		for _, block := range blocks[1:] {
			block, _, _ = strings.Cut(block, "```")
			for line := range strings.Lines(block) {
				all[strings.TrimSpace(line)] = false
			}
		}
	}
	return all
}

// tell runs a command of the papers, which must be there. It may end with one of
// the codes that are findings and no failures, as the help tells them.
func (l *life) tell(ctx context.Context, command string, findings ...int) {
	l.t.Helper()
	if _, ok := l.told[command]; !ok {
		l.t.Errorf("the papers do not tell %q", command)
	}
	l.told[command] = true
	res, err := l.Run(ctx, "sh", "-ec", command)
	if err != nil && !slices.Contains(findings, res.Code) {
		l.t.Fatalf("%v\n%s", err, res.Stdout)
	}
}

func (l *life) wait(ctx context.Context, what string, cond func() bool) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	must(l.t, l.Wait(ctx, what, cond))
}

// install is what docs/install.md says for Debian.
func (l *life) install(ctx context.Context) {
	l.tell(ctx, "apt-get install -y ./gpuslot_*_amd64.deb")
	l.tell(ctx, "gpuslot plan")
	if got := l.sh(ctx, "systemctl is-enabled gpuslotd.service || :") + l.sh(ctx, "systemctl is-active gpuslotd.service || :"); got != "disabledinactive" {
		l.t.Errorf("after the installation the agent is %s: a node shares its GPUs when somebody says so", got)
	}
	l.tell(ctx, "systemctl enable --now gpuslotd")
	if got := l.run(ctx, "systemctl", "is-active", "gpuslotd.service", "gpuslotd.socket"); got != "active\nactive" {
		l.t.Errorf("started by one command: %q", got)
	}
	l.tell(ctx, "condor_restart -startd")
	l.tell(ctx, "gpuslot status")
	l.tell(ctx, "gpuslot condor-config --for access-point >/etc/condor/config.d/60-gpuslot-access-point.config")
	l.tell(ctx, "condor_reconfig -schedd")
	must(l.t, l.WaitAccept(ctx, len(l.inv.GPUs)))
	l.tell(ctx, "gpuslot doctor", 3)
}

// firstJob runs the one of docs/install.md.
func (l *life) firstJob(ctx context.Context) {
	text, err := os.ReadFile("../../docs/install.md")
	must(l.t, err)
	_, file, found := strings.Cut(string(text), "<!-- run: submit -->\n```\n")
	file, _, ended := strings.Cut(file, "```")
	if !found || !ended {
		l.t.Fatal("docs/install.md has no first job")
	}
	_, err = l.RunAs(ctx, "alice", "sh", "-ec", "printf '#!/bin/sh\nexec simjob alloc 1024\n' >train.sh; chmod +x train.sh")
	must(l.t, err)
	cluster, err := l.Submit(ctx, "alice", file)
	must(l.t, err)
	l.wellDone(ctx, cluster)
}

// jobOf is a job that attaches, takes VRAM and computes for so long.
func jobOf(seconds int) string {
	return jobWith("/usr/local/bin/simjob", fmt.Sprintf("alloc 1024 load 30 %ds", seconds))
}

// jobUntil is one that attaches and takes VRAM until a file of Hold ends.
func jobUntil(file string) string {
	return jobWith("/bin/sh", fmt.Sprintf("-c '/bin/cat %s | /usr/local/bin/simjob alloc 1024 until eof'", file))
}

func jobWith(program, arguments string) string {
	return fmt.Sprintf(`executable = %s
arguments = "%s"
output = job.$(Cluster).$(Process).out
error = job.$(Cluster).$(Process).err
should_transfer_files = yes
transfer_executable = false
request_cpus = 1
request_memory = 50
request_disk = 10M
request_gpus = 1
request_vram = 4000
queue 4
`, program, arguments)
}

func (l *life) submit(ctx context.Context, seconds int) int {
	l.t.Helper()
	cluster, err := l.Submit(ctx, "alice", jobOf(seconds))
	must(l.t, err)
	return cluster
}

// submitted has jobs that run until end is called, which waits for that.
func (l *life) submitted(ctx context.Context) (end func()) {
	l.t.Helper()
	file := fmt.Sprintf("/run/life-%d", time.Now().UnixNano())
	release, err := l.Hold(ctx, file)
	must(l.t, err)
	cluster, err := l.Submit(ctx, "alice", jobUntil(file))
	must(l.t, err)
	l.waitJobs(ctx, cluster, running)
	return func() {
		l.t.Helper()
		must(l.t, release())
		l.wellDone(ctx, cluster)
	}
}

// Job states of HTCondor.
const (
	running   = 2
	completed = 4
)

func (l *life) waitJobs(ctx context.Context, cluster, state int) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	must(l.t, l.WaitJobs(ctx, cluster, state))
}

// wellDone says that each job of a cluster started once and ended with 0.
func (l *life) wellDone(ctx context.Context, cluster int) {
	l.t.Helper()
	l.waitJobs(ctx, cluster, completed)
	rows, err := l.JobAttrs(ctx, cluster, "ExitCode", "NumJobStarts")
	must(l.t, err)
	for i, row := range rows {
		if !slices.Equal(row, []string{"0", "1"}) {
			out, _ := l.RunAs(ctx, "alice", "sh", "-c", fmt.Sprintf("cat job.%d.%d.*", cluster, i))
			l.t.Errorf("job %d.%d: exit code and starts %v\n%s", cluster, i, row, out.Stdout)
		}
	}
}

// daemons are the control daemons' processes, by their units' names.
func (l *life) daemons(ctx context.Context) map[string]string {
	l.t.Helper()
	pids := map[string]string{}
	for unit := range strings.FieldsSeq(l.sh(ctx, "systemctl list-units --plain --no-legend 'gpuslot-mps@*' | cut -d' ' -f1")) {
		pids[unit] = l.run(ctx, "systemctl", "show", "-P", "MainPID", unit)
	}
	return pids
}

func (l *life) jobsRun(ctx context.Context) {
	end := l.submitted(ctx)
	scores := func(processes string) string {
		return l.sh(ctx, "for p in $("+processes+"); do cat /proc/$p/oom_score_adj; done | sort -u")
	}
	l.wait(ctx, "the jobs' processes", func() bool { return l.sh(ctx, "pgrep -c -x simjob || :") == "4" })
	if got := scores("pgrep -x simjob; pgrep -x supervise"); strings.Contains(got, "-") {
		l.t.Errorf("jobs have the OOM score %s: who runs them is none of ours", got)
	}
	// This machine may forbid it, and systemd then goes on without.
	if _, err := l.Run(ctx, "sh", "-ec", "echo -900 >/proc/self/oom_score_adj"); err != nil {
		l.t.Log("low OOM scores are not seen: this machine does not allow them")
	} else if got := scores("pidof gpuslotd nvidia-cuda-mps-control"); got != "-900" {
		l.t.Errorf("the agent and the control daemons have the OOM score %s, want -900", got)
	}
	end()
	// What an upgrade of HTCondor may change, by one more job.
	out, err := l.Run(ctx, "gpuslot", "doctor", "--job", "alice", "--json")
	if exit := (*node.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.Result.Code != 3) || !regexp.MustCompile(`"ok",\s*"check": "one job"`).MatchString(out.Stdout) {
		l.t.Errorf("gpuslot doctor --job: %v\n%s", err, out.Stdout)
	}
}

// edits: a site's file is reloaded, a broken one is rejected, and told.
func (l *life) edits(ctx context.Context) {
	shares := func() string {
		return l.sh(ctx, "gpuslot status --json | tr , '\n' | grep -m1 '\"shares\"' | tr -dc 0-9")
	}
	was := shares()
	l.sh(ctx, "printf '[sharing]\\nshares = 5\\n' >/etc/gpuslot/gpuslot.toml")
	l.tell(ctx, "systemctl reload gpuslotd")
	l.wait(ctx, "the edited number of shares", func() bool { return shares() == "5" && was != "5" })
	rejected := func() string {
		return l.metric(ctx, "gpuslot_config_last_reload_successful")
	}
	l.sh(ctx, "echo 'shares =' >>/etc/gpuslot/gpuslot.toml && systemctl reload gpuslotd || :")
	l.wait(ctx, "the metric to tell of a broken file", func() bool { return rejected() == "0" })
	if got := l.run(ctx, "systemctl", "is-active", "gpuslotd.service"); got != "active" || shares() != "5" {
		l.t.Errorf("with a broken file the agent is %s and has %s shares", got, shares())
	}
	log, err := l.Journal(ctx, "gpuslotd.service")
	must(l.t, err)
	if !strings.Contains(log, "gpuslot.toml:") {
		l.t.Error("the journal does not name the line of the broken file")
	}
	l.sh(ctx, "sed -i '$d' /etc/gpuslot/gpuslot.toml && systemctl reload gpuslotd")
	l.wait(ctx, "the metric to tell of a good file", func() bool { return rejected() == "1" })
}

func (l *life) metric(ctx context.Context, name string) string {
	out, _ := l.Run(ctx, "perl", "-MIO::Socket::INET", "-e",
		`$s = IO::Socket::INET->new("127.0.0.1:9847") or exit; print $s "GET /metrics HTTP/1.0\r\n\r\n"; while (<$s>) { print $1 if /^`+name+` (\S+)/ }`)
	return out.Stdout
}

// upgrade installs another version while jobs run and more come.
func (l *life) upgrade(ctx context.Context, deb string) {
	jobs := l.submit(ctx, 12)
	l.waitJobs(ctx, jobs, running)
	daemons, agent := l.daemons(ctx), l.sh(ctx, "pidof gpuslotd")
	l.t.Log("upgrade from " + l.run(ctx, "gpuslot", "--version"))
	l.copyIn(ctx, deb, "/root/newer.deb")
	more := l.submit(ctx, 1)
	// dpkg asks whose gpuslot.toml it shall be; its default is the site's.
	if _, err := l.Exec(ctx, node.Cmd{Args: []string{"apt-get", "install", "-y", "/root/newer.deb"}, Stdin: strings.NewReader("\n")}); err != nil {
		l.t.Fatal(err)
	}
	if got := l.run(ctx, "gpuslot", "--version"); !strings.HasPrefix(got, "gpuslot v0.2.0 ") {
		l.t.Errorf("the command is %s", got)
	}
	if got := l.sh(ctx, "pidof gpuslotd"); got == agent {
		l.t.Error("the agent was not started anew")
	}
	if got := l.daemons(ctx); fmt.Sprint(got) != fmt.Sprint(daemons) || len(got) != len(l.inv.GPUs) {
		l.t.Errorf("control daemons %v, before %v", got, daemons)
	}
	if got := l.sh(ctx, "cat /etc/gpuslot/gpuslot.toml"); !strings.Contains(got, "shares = 5") {
		l.t.Errorf("the site's gpuslot.toml is gone: %s", got)
	}
	if got := l.sh(ctx, "tail -n 1 /etc/gpuslot/gpuslot.toml.dpkg-dist"); got != newDefault {
		l.t.Errorf("beside it is not the new version's gpuslot.toml: %s", got)
	}
	l.wellDone(ctx, more)
	l.wellDone(ctx, jobs)
}

// copyIn brings a file of the host into the node.
func (l *life) copyIn(ctx context.Context, from, to string) {
	l.t.Helper()
	f, err := os.Open(from)
	must(l.t, err)
	defer f.Close()
	_, err = l.Exec(ctx, node.Cmd{Args: []string{"sh", "-c", "cat >" + to}, Stdin: f})
	must(l.t, err)
}

// killUnits ends every process that the package started, one after the other.
func (l *life) killUnits(ctx context.Context) {
	units := append(slices.Sorted(maps.Keys(l.daemons(ctx))), "gpuslotd.service", "systemd-journald@gpuslot.service")
	for _, unit := range units {
		pid := l.run(ctx, "systemctl", "show", "-P", "MainPID", unit)
		l.run(ctx, "kill", "-KILL", pid)
		l.wait(ctx, unit+" to run again", func() bool {
			out, err := l.Run(ctx, "systemctl", "show", "-P", "MainPID", "-P", "ActiveState", unit)
			words := strings.Fields(out.Stdout)
			return err == nil && len(words) == 2 && !slices.Contains(words, pid) && !slices.Contains(words, "0") && slices.Contains(words, "active")
		})
	}
	must(l.t, l.WaitAccept(ctx, len(l.inv.GPUs)))
	l.wellDone(ctx, l.submit(ctx, 1))
}

// fill takes the last byte of /run, then of the agent's state; running jobs end
// well, and when there is room again the node is as before.
func (l *life) fill(ctx context.Context) {
	for _, dir := range []string{"/run", "/var/lib/gpuslot"} {
		// A node's /run is a tmpfs already; the state gets one that can be filled.
		if dir != "/run" {
			l.sh(ctx, "systemctl stop gpuslotd.service && cp -a "+dir+" /root/state && mount -t tmpfs -o size=1m,mode=755 state "+dir+" && cp -a /root/state/. "+dir+" && systemctl start gpuslotd.service")
			must(l.t, l.WaitAccept(ctx, len(l.inv.GPUs)))
		} else {
			l.sh(ctx, "mount -o remount,size=$(($(df --output=used -k /run | tail -1) + 64))k /run")
		}
		jobs := l.submit(ctx, 3)
		l.waitJobs(ctx, jobs, running)
		l.sh(ctx, "cat /dev/zero >"+dir+"/gpuslot-fill 2>/dev/null || :")
		l.run(ctx, "systemctl", "reload", "gpuslotd.service")
		l.wellDone(ctx, jobs)
		if got := l.run(ctx, "systemctl", "is-active", "gpuslotd.service"); got != "active" {
			l.t.Errorf("with %s full the agent is %s", dir, got)
		}
		l.sh(ctx, "rm "+dir+"/gpuslot-fill")
		if dir == "/run" {
			l.sh(ctx, "mount -o remount,size=50% /run")
		} else {
			l.sh(ctx, "systemctl stop gpuslotd.service && cp -a "+dir+"/. /root/state && umount "+dir+" && cp -a /root/state/. "+dir+" && rm -r /root/state && systemctl start gpuslotd.service")
		}
		must(l.t, l.WaitAccept(ctx, len(l.inv.GPUs)))
	}
}

// reboot: what is enabled comes again by itself, in the right order. A kernel
// that was started anew has GPUs as new.
func (l *life) reboot(ctx context.Context) {
	must(l.t, l.Reboot(ctx))
	must(l.t, l.Simulate(ctx, l.inv))
	l.wait(ctx, "the agent, which nobody started, to find the GPUs", func() bool {
		st, err := l.Status(ctx)
		return err == nil && len(st.GPUs) == len(l.inv.GPUs)
	})
	must(l.t, l.StartCondor(ctx))
	must(l.t, l.WaitAccept(ctx, len(l.inv.GPUs)))
	l.wellDone(ctx, l.submit(ctx, 1))
}

// downgrade: what a newer agent wrote is refused in words, and kept.
func (l *life) downgrade(ctx context.Context, deb string) {
	l.copyIn(ctx, deb, "/root/third.deb")
	l.sh(ctx, "cp /var/lib/gpuslot/undo.json /root/undo && sed -i 's#gpuslot-undo/1#gpuslot-undo/2#' /var/lib/gpuslot/undo.json && sed -i 's#gpuslot-plan/1#gpuslot-plan/2#' /run/gpuslot/plan.json && apt-get install -y --allow-downgrades -o Dpkg::Options::=--force-confold /root/third.deb")
	l.wait(ctx, "the older agent to say what it does not read", func() bool {
		log, err := l.Journal(ctx, "gpuslotd.service")
		return err == nil && strings.Contains(log, "gpuslot-undo/2")
	})
	l.sh(ctx, "grep -q gpuslot-undo/2 /var/lib/gpuslot/undo.json && cp /root/undo /var/lib/gpuslot/undo.json && rm /root/undo && systemctl restart gpuslotd.service")
	must(l.t, l.WaitAccept(ctx, len(l.inv.GPUs)))
}

// remove is refused while jobs share GPUs, and undoes everything when none do.
func (l *life) remove(ctx context.Context) {
	end := l.submitted(ctx)
	daemons := l.daemons(ctx)
	if res, err := l.Run(ctx, "apt-get", "remove", "-y", "gpuslot"); err == nil || !strings.Contains(res.Stdout+res.Stderr, "GPUSLOT_FORCE_REMOVE=1") {
		l.t.Fatalf("removed under running jobs, or refused without a word: %v\n%s%s", err, res.Stdout, res.Stderr)
	}
	if got := l.daemons(ctx); fmt.Sprint(got) != fmt.Sprint(daemons) {
		l.t.Errorf("after a refused removal the control daemons are %v, before %v", got, daemons)
	}
	end()
	must(l.t, l.WaitAccept(ctx, len(l.inv.GPUs)))
	l.wait(ctx, "the jobs' slots to be gone", func() bool {
		out, err := l.Run(ctx, "condor_status", "-constraint", `SlotType == "Dynamic"`, "-af", "Name")
		return err == nil && out.Stdout == ""
	})
	l.tell(ctx, "apt-get remove -y gpuslot")
	if got := l.sh(ctx, "pgrep -l 'gpuslot|nvidia-cuda-mps' || :"); got != "" {
		l.t.Errorf("left behind: %s", got)
	}
	l.sh(ctx, "rm /etc/condor/config.d/60-gpuslot-access-point.config && condor_reconfig -schedd >/dev/null")
	l.wait(ctx, "a startd that knows nothing of gpuslot", func() bool {
		out, err := l.Run(ctx, "condor_status", "-af", "GPUSlotUUID", "GPUs", "Name")
		return err == nil && strings.TrimSpace(out.Stdout) != "" && !strings.Contains(out.Stdout, "GPU-")
	})
}
