package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/test/poll"
)

// StartCondor starts condor.service and waits until the collector knows the schedd and at least one slot, 3 s
// later on a quiet machine.
func (n *Node) StartCondor(ctx context.Context) error {
	if _, err := n.Run(ctx, "systemctl", "start", "condor.service"); err != nil {
		return fmt.Errorf("start HTCondor: %w%s", err, n.diagnosis())
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := n.WaitSlots(ctx, 1); err != nil {
		return err
	}
	return n.Wait(ctx, "the schedd", func() bool {
		res, err := n.Run(ctx, "condor_status", "-schedd", "-af", "Name")
		return err == nil && strings.TrimSpace(res.Stdout) != ""
	})
}

// WaitSlots waits until the collector has at least so many slot ads, partitionable and dynamic ones together.
func (n *Node) WaitSlots(ctx context.Context, slots int) error {
	return n.Wait(ctx, fmt.Sprintf("%d slots", slots), func() bool {
		res, err := n.Run(ctx, "condor_status", "-af", "Name")
		return err == nil && len(strings.Fields(res.Stdout)) >= slots
	})
}

// Wait asks cond until it says true, ten times a second at first and then less often, because each question costs the
// node some programs: where answers come late, it waits longer (test/poll). It does so for twice Patience at most,
// unless the context has a deadline. When that ends first, the error says what was waited for and what the node has
// to say about it.
func (n *Node) Wait(ctx context.Context, what string, cond func() bool) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 2*Patience)
		defer cancel()
	}
	for pause := 100 * time.Millisecond; ; pause = min(pause*5/4, 800*time.Millisecond) {
		asked := time.Now()
		if cond() {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w%s%s", what, ctx.Err(), n.queue(), n.diagnosis())
		case <-time.After(poll.Pause(asked, pause)):
		}
	}
}

// queue is the state of the pool, for errors.
func (n *Node) queue() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var b strings.Builder
	for _, args := range [][]string{
		{"condor_status", "-af", "Name", "State", "Activity"},
		{"condor_q", "-all", "-af:jr", "Owner", "JobStatus", "HoldReason"},
		{"sh", "-c", "tail -n 5 /var/log/condor/StartLog /var/log/condor/StarterLog*"},
	} {
		if res, err := n.Run(ctx, args...); err == nil && res.Stdout != "" {
			fmt.Fprintf(&b, "\n%s:\n%s", args[0], strings.TrimRight(res.Stdout, "\n"))
		}
	}
	return b.String()
}

// Submit submits a job description as a user, from the user's home directory, and returns the cluster. Each of
// vars is NAME=value and defines $(NAME) in it; a default inside the description wins over it.
func (n *Node) Submit(ctx context.Context, user, submitFile string, vars ...string) (int, error) {
	args := append([]string{"condor_submit", "-terse"}, vars...)
	res, err := n.Exec(ctx, Cmd{User: user, Args: append(args, "-"), Stdin: strings.NewReader(submitFile)})
	if err != nil {
		return 0, fmt.Errorf("submit as %s: %w", user, err)
	}
	// "12.0 - 12.3": the first and the last job.
	first, _, found := strings.Cut(res.Stdout, ".")
	cluster, err := strconv.Atoi(first)
	if !found || err != nil {
		return 0, fmt.Errorf("submit as %s: no cluster in %q", user, res.Stdout)
	}
	return cluster, nil
}

// JobLog is all events of a cluster so far, in the words of a user's job log.
func (n *Node) JobLog(ctx context.Context, cluster int) (string, error) {
	log, err := n.ReadFile(ctx, eventLogFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	// An event begins "005 (012.000.000) …" and ends with a line of three dots.
	mark := fmt.Sprintf(" (%03d.", cluster)
	events := strings.SplitAfter(log, "\n...\n")
	var b strings.Builder
	for _, event := range events[:len(events)-1] { // the last is empty, or half written
		if head, _, _ := strings.Cut(event, "\n"); strings.Contains(head, mark) {
			b.WriteString(event)
		}
	}
	return b.String(), nil
}

// JobAttrs reads attributes of the jobs of a cluster, one row per job in the order of their numbers, from the
// queue or, when they have left it, from the history. Values are ClassAd literals: strings in quotes,
// "undefined" for what is not there.
func (n *Node) JobAttrs(ctx context.Context, cluster int, attrs ...string) ([][]string, error) {
	return n.rows(ctx, cluster, nil, attrs...)
}

// rows is JobAttrs, without rows if one in the queue is not wanted.
func (n *Node) rows(
	ctx context.Context, cluster int, unwanted func([]string) bool, attrs ...string,
) ([][]string, error) {
	all := append([]string{"TotalSubmitProcs"}, attrs...)
	// The queue first: a job that leaves it in between is then seen twice, not missed.
	jobs, err := n.jobs(ctx, queue, cluster, all...)
	if err != nil {
		return nil, err
	}
	complete := len(jobs) > 0
	for _, row := range jobs {
		if unwanted != nil && unwanted(row[1:]) {
			return nil, nil // without a look at the history
		}
		complete = complete && row[0] == strconv.Itoa(len(jobs))
	}
	if !complete {
		left, err := n.jobs(ctx, history, cluster, all...)
		if err != nil {
			return nil, err
		}
		maps.Copy(jobs, left)
	}
	var rows [][]string
	for _, proc := range slices.Sorted(maps.Keys(jobs)) {
		rows = append(rows, jobs[proc][1:])
	}
	return rows, nil
}

const eventLogFile = "/var/log/condor/EventLog"

var queue, history = []string{"condor_q", "-all"}, []string{"condor_history"}

// jobs are the attributes of a cluster's jobs that a command of HTCondor knows, by their numbers.
func (n *Node) jobs(ctx context.Context, command []string, cluster int, attrs ...string) (map[int][]string, error) {
	res, err := n.Run(ctx, slices.Concat(command, []string{strconv.Itoa(cluster), "-af:rt", "ProcId"}, attrs)...)
	if err != nil {
		return nil, err
	}
	jobs := map[int][]string{}
	for line := range strings.Lines(res.Stdout) {
		row := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		proc, err := strconv.Atoi(row[0])
		if err != nil {
			return nil, fmt.Errorf("%s: unexpected line %q", command[0], line)
		}
		jobs[proc] = row[1:]
	}
	return jobs, nil
}

// WaitJobs waits until every job of a cluster has one of the given states (HTCondor's JobStatus: 1 idle,
// 2 running, 4 completed, 5 held).
func (n *Node) WaitJobs(ctx context.Context, cluster int, states ...int) error {
	other := func(row []string) bool {
		status, err := strconv.Atoi(row[0])
		return err != nil || !slices.Contains(states, status)
	}
	asked := time.Now()
	return n.Wait(ctx, fmt.Sprintf("job %d in state %v", cluster, states), func() bool {
		log, err := n.JobLog(ctx, cluster)
		if err == nil && !logged(log, states) && time.Since(asked) < AskAnyway {
			return false
		}
		asked = time.Now()
		rows, err := n.rows(ctx, cluster, other, "JobStatus")
		return err == nil && len(rows) > 0 && !slices.ContainsFunc(rows, other)
	})
}

// AskAnyway is how often a daemon of HTCondor is asked while what costs no program says that it is too early. A job
// that waits for its hook runs for the schedd, and its program has not started for the event log.
const AskAnyway = 4 * time.Second

// stateAfter is the state of a job after an event.
var stateAfter = map[string]int{
	"000": 1, // submitted
	"001": 2, // executing
	"004": 1, // evicted
	"005": 4, // terminated
	"007": 1, // the shadow met an error
	"009": 3, // removed
	"012": 5, // held
	"013": 1, // released
}

// logged says whether by its events each job of a cluster is in one of the states. The schedd says so a moment later.
func logged(log string, states []int) bool {
	now := map[string]int{}
	for _, event := range eventLine.FindAllStringSubmatch(log, -1) {
		if state := stateAfter[event[1]]; state > 0 {
			now[event[2]] = state
		}
	}
	for _, state := range now {
		if !slices.Contains(states, state) {
			return false
		}
	}
	return len(now) > 0
}

// eventLine is the first line of an event: its kind, and the number of its job in the cluster.
var eventLine = regexp.MustCompile(`(?m)^(\d{3}) \(\d+\.(\d+)\.\d+\) `)
