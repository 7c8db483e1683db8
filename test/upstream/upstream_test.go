package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/test/node"
)

// JobStatus in HTCondor's numbers.
const (
	idle      = 1
	running   = 2
	completed = 4
	held      = 5
)

// reproduction shows the defect of one report on the node, or returns an error.
type reproduction struct {
	page  string
	run   func(context.Context, *node.Node, page) error
	alone bool
}

// reproductions run side by side, but for those that harm the jobs beside them: a match
// that the startd refuses spoils others of its cycle, and the last ends the negotiator.
var reproductions = []reproduction{
	{"modify-request", modifyRequest, false},
	{"failed-hook", failedHook, false},
	{"environment-offsets", environmentOffsets, false},
	{"units", units, false},
	{"empty-request", emptyRequest, false},
	{"retry-request", retryRequest, false},
	{"device-hiding", deviceHiding, false},
	{"unmatched-jobs", unmatchedJobs, false},
	{"scope-of-my", scopeOfMy, true},
}

// TestReproductions boots one node for all reports: each has its own resources, hook or
// slots, and one has its own user.
func TestReproductions(t *testing.T) {
	if err := node.Available(); err != nil {
		t.Skip(err.Error())
	}
	all := readPages(t)
	o := node.Options{Name: "upstream", Files: make(map[string]node.File)}
	if testing.Verbose() {
		o.Progress = os.Stderr
	}
	for name, p := range all {
		if p.config != "" {
			o.Files["/etc/condor/config.d/60-"+name+".config"] = node.File{Data: p.config, Mode: 0o644}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*node.Patience)
	defer cancel()
	n, err := node.Boot(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	for name, p := range all {
		if p.prepare == "" {
			continue
		}
		if _, err := n.Run(ctx, "sh", "-euc", p.prepare); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if err := n.StartCondor(ctx); err != nil {
		t.Fatal(err)
	}
	t.Run("side by side", func(t *testing.T) {
		for _, r := range reproductions {
			if !r.alone {
				t.Run(r.page, func(t *testing.T) { t.Parallel(); r.test(ctx, t, n, all[r.page]) })
			}
		}
	})
	for _, r := range reproductions {
		if r.alone {
			t.Run(r.page, func(t *testing.T) { r.test(ctx, t, n, all[r.page]) })
		}
	}
}

func (r reproduction) test(ctx context.Context, t *testing.T, n *node.Node, p page) {
	t.Helper()
	if err := r.run(ctx, n, p); err != nil {
		t.Errorf("docs/upstream/%s.md: the defect does not show; is it mended? %v", r.page, err)
	}
}

// done submits the first submit file of a page and waits for its jobs to end.
func done(ctx context.Context, n *node.Node, p page, vars ...string) (int, error) {
	cluster, err := n.Submit(ctx, "alice", p.submits[0], vars...)
	if err != nil {
		return 0, err
	}
	return cluster, n.WaitJobs(ctx, cluster, completed)
}

func modifyRequest(ctx context.Context, n *node.Node, p page) error {
	cluster, err := done(ctx, n, p)
	if err != nil {
		return err
	}
	rows, err := n.JobAttrs(ctx, cluster, "MemoryProvisioned", "VRAMProvisioned")
	if err != nil {
		return err
	}
	return same("memory and VRAM of the slot", strings.Join(rows[0], " "), "128 1500")
}

// failedHook: the starter is still there when the job is held already.
func failedHook(ctx context.Context, n *node.Node, p page) error {
	cluster, err := n.Submit(ctx, "alice", p.submits[0])
	if err != nil {
		return err
	}
	if err := n.WaitJobs(ctx, cluster, held); err != nil {
		return err
	}
	log, err := n.JobLog(ctx, cluster)
	if err != nil {
		return err
	}
	slot := regexp.MustCompile(`Error from starter on (slot\d+_\d+)@`).FindStringSubmatch(log)
	if slot == nil {
		return fmt.Errorf("the job's log names no slot: %s", log)
	}
	_, err = n.Run(ctx, "pgrep", "-f", "^condor_starter .*-a "+slot[1]+" ")
	return err
}

func environmentOffsets(ctx context.Context, n *node.Node, p page) error {
	if _, err := done(ctx, n, p); err != nil {
		return err
	}
	out, err := n.ReadFile(ctx, "/home/alice/environment-offsets.out")
	if err != nil {
		return err
	}
	line := regexp.MustCompile(`(?m)^SHORT=.*$`).FindString(out)
	return same("the variable", line, "SHORT=oneone-s1")
}

// failingSubmit is what condor_submit says and ends with.
func failingSubmit(ctx context.Context, n *node.Node, p page) (node.Result, error) {
	_, err := n.Submit(ctx, "alice", p.submits[0])
	exit := (*node.ExitError)(nil)
	if !errors.As(err, &exit) {
		return node.Result{}, fmt.Errorf("condor_submit takes it: %w", err)
	}
	return exit.Result, nil
}

func units(ctx context.Context, n *node.Node, p page) error {
	said, err := failingSubmit(ctx, n, p)
	if err != nil {
		return err
	}
	text := strings.Join(strings.Fields(said.Stderr), " ")
	if !strings.Contains(text, "Parse error in expression: Requestvram = 4GB") {
		return fmt.Errorf("condor_submit: %s", text)
	}
	return nil
}

func emptyRequest(ctx context.Context, n *node.Node, p page) error {
	said, err := failingSubmit(ctx, n, p)
	if err != nil {
		return err
	}
	const segmentationFault = 128 + 11
	return same("the exit code", strconv.Itoa(said.Code), strconv.Itoa(segmentationFault))
}

func retryRequest(ctx context.Context, n *node.Node, p page) error {
	said, err := n.Exec(ctx, node.Cmd{
		User: "alice", Args: []string{"condor_submit", "-dry-run", "-", "-"}, Stdin: strings.NewReader(p.submits[0]),
	})
	if err != nil {
		return err
	}
	if !strings.Contains(said.Stderr, "'retry_request_vram = 2000' was unused") {
		return fmt.Errorf("condor_submit: %s", said.Stderr)
	}
	bodies := regexp.MustCompile(`(?m)^TransformBody_\w+`).FindAllString(said.Stdout, -1)
	return same("transforms", strings.Join(slices.Compact(bodies), " "), "TransformBody_RequestMemory")
}

// deviceHiding: with one share the other GPU's node is closed, with two none is.
func deviceHiding(ctx context.Context, n *node.Node, p page) error {
	for count, closed := range map[string]int{"1": 1, "2": 0} {
		if _, err := done(ctx, n, p, "COUNT="+count); err != nil {
			return err
		}
		out, err := n.ReadFile(ctx, "/home/alice/device-hiding-"+count+".out")
		if err != nil {
			return err
		}
		if strings.Count(out, "Operation not permitted") != closed || strings.Count(out, "No such device") != 2-closed {
			return fmt.Errorf("with %s shares: %s", count, out)
		}
	}
	log, err := n.Run(ctx, "sh", "-c", "cat /var/log/condor/StarterLog*")
	if err != nil {
		return err
	}
	if !strings.Contains(log.Stdout, "Unknown GPU GPU-a in NVIDIA_VISIBLE_DEVICES, skipping device hiding") {
		return errors.New("the starters' logs do not say that hiding was skipped")
	}
	return nil
}

// scopeOfMy: of two expressions that mean the same, the startd refuses the one whose
// argument has no parentheses.
func scopeOfMy(ctx context.Context, n *node.Node, p page) error {
	if _, err := done(ctx, n, p, "FORM=2"); err != nil {
		return err
	}
	broken, err := n.Submit(ctx, "alice", p.submits[0], "FORM=1")
	if err != nil {
		return err
	}
	err = n.Wait(ctx, "the startd to refuse a match", func() bool {
		log, err := n.ReadFile(ctx, "/var/log/condor/StartLog")
		return err == nil && strings.Contains(log, "STARTD Requirements expression no longer evaluates to a boolean") &&
			strings.Contains(log, fmt.Sprintf("Job %d.0 has the following attributes", broken))
	})
	if err != nil {
		return err
	}
	rows, err := n.JobAttrs(ctx, broken, "JobStatus", "NumShadowStarts")
	if err != nil {
		return err
	}
	_, err = n.Run(ctx, "condor_rm", strconv.Itoa(broken))
	return errors.Join(err, same("the job", strings.Join(rows[0], " "), fmt.Sprint(idle, " undefined")))
}

// unmatchedJobs: the negotiator hears of the second kind only when the limit of offers is
// lifted, as sites are told to.
func unmatchedJobs(ctx context.Context, n *node.Node, p page) error {
	var clusters [2]int
	for i, submit := range p.submits {
		cluster, err := n.Submit(ctx, "bob", submit)
		if err != nil {
			return err
		}
		clusters[i] = cluster
	}
	requests := func(cluster int) int {
		log, err := n.ReadFile(ctx, "/var/log/condor/NegotiatorLog")
		if err != nil {
			return 0
		}
		return strings.Count(log, fmt.Sprintf("    Request %05d.", cluster))
	}
	seen := requests(clusters[0])
	if err := n.Wait(ctx, "five more cycles", func() bool { return requests(clusters[0]) >= seen+5 }); err != nil {
		return err
	}
	offered := requests(clusters[1])
	unlimited := node.File{Data: "MAX_CONCURRENT_UPLOADS_PER_USER = 0\n", Mode: 0o644}
	if err := n.WriteFile(ctx, "/etc/condor/config.d/70-unlimited.config", unlimited); err != nil {
		return err
	}
	if _, err := n.Run(ctx, "condor_reconfig", "-daemon", "schedd"); err != nil {
		return err
	}
	if err := n.WaitJobs(ctx, clusters[1], completed); err != nil {
		return err
	}
	_, err := n.Run(ctx, "condor_rm", strconv.Itoa(clusters[0]))
	return errors.Join(err, same("requests of the second kind", strconv.Itoa(offered), "0"))
}

func same(what, got, want string) error {
	if got != want {
		return fmt.Errorf("%s: %q, not %q", what, got, want)
	}
	return nil
}
