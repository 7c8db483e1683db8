package scenes

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// What sites do with nodes besides running jobs: an execute directory that is full, jobs
// that save their state and go on, condor_defrag. Leg: real.
func TestSiteWork(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 2, site.Options{Condor: "DAEMON_LIST = $(DAEMON_LIST) DEFRAG\n" +
		"CLAIM_WORKLIFE = 1200\nDEFRAG_INTERVAL = 2\nDEFRAG_UPDATE_INTERVAL = 2\nDEFRAG_DRAINING_MACHINES_PER_HOUR = 3600\n"})
	must(t, st.WaitAccept(ctx, 2))
	must(t, st.fullExecute(ctx))
	must(t, st.checkpoints(ctx, t))
	must(t, st.defrag(ctx, t))
	done(t, st)
}

// fullExecute: while nothing can be written below EXECUTE HTCondor holds the jobs, and a GPU is
// neither taken nor closed for it. When there is room again the jobs run once they are released.
func (st *Stage) fullExecute(ctx context.Context) error {
	const script = `dir=$(condor_config_val EXECUTE)
mount -t tmpfs -o size=8m,mode=755 tmpfs "$dir" && chown condor: "$dir" && { cat /dev/zero >"$dir/fill" 2>/dev/null || :; }
test "$(stat -f -c %a "$dir")" = 0`
	if _, err := st.Run(ctx, "sh", "-ec", script); err != nil {
		return err
	}
	cluster, err := st.submit(ctx, job{Seconds: 1, Lines: vram(4000, "periodic_release = true"), Queue: "queue 4"})
	if err != nil {
		return err
	}
	var held []string
	err = st.Wait(ctx, "a job that HTCondor holds for want of room", func() bool {
		rows, err := st.JobAttrs(ctx, cluster, "JobStatus", "HoldReasonCode", "HoldReasonSubCode", "HoldReason")
		i := slices.IndexFunc(rows, func(r []string) bool { return r[0] == "5" })
		if err == nil && i >= 0 {
			held = rows[i]
		}
		return held != nil
	})
	if err != nil {
		return err
	}
	st.Check(slices.Equal(held[1:3], []string{"13", "28"}) && strings.Contains(held[3], "No space left on device"), "HTCondor says why it holds a job: %q", held)
	var s api.Status
	free := func() bool {
		s, err = st.Status(ctx)
		return err == nil && len(s.GPUs[0].Jobs)+len(s.GPUs[1].Jobs) == 0
	}
	if err := st.Wait(ctx, "GPUs that are not taken while the directory is full", free); err != nil {
		return err
	}
	for _, g := range s.GPUs {
		st.Check(g.Accept, "a full execute directory closes no GPU: %s %q", g.UUID, g.Reason)
	}
	if _, err := st.Run(ctx, "sh", "-ec", `rm "$(condor_config_val EXECUTE)/fill"`); err != nil {
		return err
	}
	if err := st.waitJobs(ctx, cluster, completed); err != nil {
		return err
	}
	err = st.Wait(ctx, "a job table without the jobs that failed", free)
	st.Check(err == nil, "with room again all jobs ran, and none is left in the job table")
	if err != nil {
		return err
	}
	_, err = st.Run(ctx, "sh", "-ec", `umount "$(condor_config_val EXECUTE)"`)
	return err
}

// starts is where a job notes each start, with the number in its state.
const starts = "/run/saving-starts"

// saving is a job that saves its state and exits to say so, until a file is gone.
const saving = `#!/bin/sh
n=$(cat state 2>/dev/null || echo 0)
n=$((n+1)); echo $n >state
echo "$n" >>` + starts + `
sleep 1
test -e "$1" && exit 85
exit 0
`

// checkpoints: a self-checkpointing job goes on in its slot, also after its GPU is closed;
// condor_vacate_job moves it to another GPU, with its state.
func (st *Stage) checkpoints(ctx context.Context, t *testing.T) error {
	if _, err := st.Run(ctx, "install", "-m", "666", "/dev/null", starts); err != nil {
		return err
	}
	path, release := holdFor(t, st, "saving")
	defer release()
	cluster, err := st.submit(ctx, job{
		Program: program{"saving.sh", saving}, Arguments: path,
		Lines: vram(4000, "checkpoint_exit_code = 85", "transfer_checkpoint_files = state"),
	})
	if err != nil {
		return err
	}
	noted := func() []string {
		out, _ := st.Run(ctx, "cat", starts)
		return strings.Fields(out.Stdout)
	}
	if err := st.Wait(ctx, "its second start", func() bool { return len(noted()) > 1 }); err != nil {
		return err
	}
	s, err := st.Status(ctx)
	if err != nil {
		return err
	}
	u := st.Inventory.GPUs[0].UUID
	if len(s.GPUs[0].Jobs) == 0 {
		u = st.Inventory.GPUs[1].UUID
	}
	if _, err := st.heard(ctx, u, false, "gpuslot", "gpu", "close", string(u), "--reason", "riser"); err != nil {
		return err
	}
	before := len(noted())
	if err := st.Wait(ctx, "two more starts", func() bool { return len(noted()) >= before+2 }); err != nil {
		return err
	}
	matches := func() string {
		rows, err := st.JobAttrs(ctx, cluster, "NumShadowStarts")
		if err != nil || len(rows) != 1 {
			return ""
		}
		return rows[0][0]
	}
	st.Check(matches() == "1", "it goes on in its slot of a closed GPU, from one checkpoint to the next")
	if _, err := st.RunAs(ctx, user, "condor_vacate_job", fmt.Sprint(cluster)); err != nil {
		return err
	}
	before = len(noted())
	if err := st.Wait(ctx, "a start elsewhere", func() bool { return matches() == "2" && len(noted()) > before }); err != nil {
		return err
	}
	if s, err = st.Status(ctx); err != nil {
		return err
	}
	for _, g := range s.GPUs {
		st.Check(len(g.Jobs) == 0 || g.UUID != string(u), "after condor_vacate_job nothing runs on the closed GPU")
	}
	release()
	if err := st.waitJobs(ctx, cluster, completed); err != nil {
		return err
	}
	all := noted()
	st.Check(!slices.Contains(all[1:], "1"), "each start had the state of the last checkpoint: %v", all)
	_, err = st.heard(ctx, u, true, "gpuslot", "gpu", "open", string(u))
	return err
}

// defrag: condor_defrag counts idle GPU slots as whole machines by its own rules, and no
// slot of gpuslot's with the lines of docs/operations.md.
func (st *Stage) defrag(ctx context.Context, t *testing.T) error {
	whole := func() string {
		out, err := st.Run(ctx, "condor_status", "-any", "-constraint", `MyType == "Defrag"`, "-af", "WholeMachines", "MachinesDraining")
		if err != nil {
			return ""
		}
		return strings.TrimSpace(out.Stdout)
	}
	if err := st.Wait(ctx, "condor_defrag to count idle slots", func() bool {
		text := whole()
		return text != "" && !strings.HasPrefix(text, "0 ") && !strings.HasPrefix(text, "undefined")
	}); err != nil {
		return err
	}
	lines := docLines(t, "operations.md", "    DEFRAG_")
	if err := st.WriteFile(ctx, "/etc/condor/config.d/95-defrag.config", node.File{Data: lines}); err != nil {
		return err
	}
	path, release := holdFor(t, st, "defrag")
	defer release()
	cluster, err := st.submit(ctx, job{Hold: path, Lines: vram(4000)})
	if err != nil {
		return err
	}
	if err := st.waitJobs(ctx, cluster, running); err != nil {
		return err
	}
	if _, err := st.Run(ctx, "condor_reconfig"); err != nil {
		return err
	}
	err = st.Wait(ctx, "condor_defrag to leave the GPU slots out", func() bool { return whole() == "0 0" })
	st.Check(err == nil, "with the lines of the documentation no GPU slot counts as a whole machine, and none drains: %s", whole())
	if err != nil {
		return err
	}
	if err := st.waitJobs(ctx, cluster, running); err != nil {
		return err
	}
	release()
	return st.waitJobs(ctx, cluster, completed)
}

// docLines are the lines of a page that begin so, as a file for HTCondor.
func docLines(t *testing.T, page, prefix string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	must(t, err)
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, prefix) {
			out.WriteString(strings.TrimSpace(line) + "\n")
		}
	}
	if out.Len() == 0 {
		t.Fatalf("docs/%s has no lines %q", page, prefix)
	}
	return out.String()
}
