package scenes

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/gpuslot/gpuslot/test/node"
)

// diagnosis is one finding of gpuslot doctor.
type diagnosis struct{ Level, Check, What string }

func (st *Stage) doctor(ctx context.Context) ([]diagnosis, error) {
	out, err := st.Run(ctx, "gpuslot", "doctor", "--json")
	var exit *node.ExitError // by which it tells the worst level
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	var found []diagnosis
	return found, json.Unmarshal([]byte(out.Stdout), &found)
}

// overridden is what a site's own configuration may do to the generated one.
const overridden = `SLOT_TYPE_101_START = true
slot_type_101.STARTER_JOB_HOOK_KEYWORD = SITE
slot_type_101.USER_JOB_WRAPPER = /bin/true
MOUNT_UNDER_SCRATCH = "/tmp,/run"
`

// checkDoctor holds gpuslot doctor to a node that just ran its jobs, where it
// may warn and finds no error, and to HTCondor settings that override ours.
// The daemons never read those.
func (st *Stage) checkDoctor(ctx context.Context) error {
	found, err := st.doctor(ctx)
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.Level != "ok" {
			st.Say("  doctor  %-8s %-12s %s", f.Level, f.Check, f.What)
		}
	}
	st.Check(len(found) > 0 && !slices.ContainsFunc(found, func(f diagnosis) bool { return f.Level == "error" }),
		"gpuslot doctor finds no error on the node, of %d findings", len(found))
	const file = "/etc/condor/config.d/95-overridden.config"
	if err := st.WriteFile(ctx, file, node.File{Data: overridden}); err != nil {
		return err
	}
	worse, err := st.doctor(ctx)
	_, errRemove := st.Run(ctx, "rm", file)
	for _, want := range []struct {
		level, check string
		count        int
	}{{"error", "START", 1}, {"warning", "hook", 1}, {"warning", "job wrapper", 1}, {"error", "pipe root", 1}} {
		count := 0
		for _, f := range worse {
			if f.Level == want.level && f.Check == want.check {
				count++
			}
		}
		st.Check(count == want.count, "gpuslot doctor sees an overridden setting: %s, %s", want.level, want.check)
	}
	return errors.Join(err, errRemove)
}
