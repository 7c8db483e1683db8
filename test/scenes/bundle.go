package scenes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// checkBundle holds gpuslot report to a node that just ran its jobs: what it must
// have, that it names no user and no job, and that the node's plan follows from it.
func (st *Stage) checkBundle(ctx context.Context) error {
	const file, dir = "/var/tmp/report.tar.gz", "/var/tmp/gpuslot-report"
	said, err := st.Run(ctx, "sh", "-c", "gpuslot report --output "+file+" || test $? = 3")
	if err != nil {
		return err
	}
	defer func() { _, _ = st.Run(context.WithoutCancel(ctx), "rm", "-rf", file, dir) }()
	st.Say("  report  %s", strings.TrimSpace(said.Stdout))
	out, err := st.Run(ctx, "sh", "-c", fmt.Sprintf("tar -C /var/tmp -xzf %s && cat %s/report.json", file, dir))
	if err != nil {
		return err
	}
	var about struct {
		Files   []struct{ Name string }
		Missing []struct{ Name, Why string }
	}
	if err := json.Unmarshal([]byte(out.Stdout), &about); err != nil {
		return err
	}
	for _, m := range about.Missing {
		st.Say("  report  not had: %s: %s", m.Name, m.Why)
	}
	for _, want := range []string{"inventory.json", "plan.json", "doctor.json", "status.json", "metrics.txt", "history.jsonl", "condor/execution-point.conf", "condor/settings.txt", "condor/version.txt", "units.txt", "logs/gpuslotd.log", "logs/mps.log"} {
		had := slices.ContainsFunc(about.Files, func(f struct{ Name string }) bool { return f.Name == want })
		st.Check(had, "gpuslot report has %s", want)
	}
	// grep finds a name as a word, or a job's id where a log line or JSON says one.
	names, err := st.Run(ctx, "sh", "-c", fmt.Sprintf(`grep -rwE '%s|bob|job(=| |": ?")[0-9]+\.[0-9]+' %s | cut -c1-300 | head -5; true`, user, dir))
	if err != nil {
		return err
	}
	st.Check(names.Stdout == "", "gpuslot report names no user and no job %s", names.Stdout)
	settings, err := st.Run(ctx, "cat", dir+"/condor/settings.txt")
	if err != nil {
		return err
	}
	st.Contains(settings.Stdout, "SLOT_TYPE_101_START", "HTCondor's settings in the report")
	again, err := st.Run(ctx, "sh", "-c", fmt.Sprintf("gpuslot plan --from-report %s", file))
	st.Check(err == nil && !strings.Contains(again.Stdout, "differs:"), "the plan in force follows from the report")
	return nil
}
