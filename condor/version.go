package condor

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Version is HTCondor's version.
type Version struct{ Major, Minor, Patch int }

// Oldest is the first version that carries shares of GPUs: repeated resource
// ids work again from there on (HTCONDOR-2678).
var Oldest = Version{24, 0, 1}

// newestKnown is the newest major version that gpuslot was run with.
const newestKnown = 25

// brokenFrom and brokenTo bound the versions that forget repeated ids: 32 ids
// become 4 GPUs, or the startd aborts (run on 23.9.6; the rest by its source).
var (
	brokenFrom = Version{23, 8, 1}
	brokenTo   = Version{23, 10, 29}
)

// ParseVersion reads the output of condor_version, or the text of a
// CondorVersion attribute: "$CondorVersion: 25.14.1 2026-10-16 …".
func ParseVersion(output string) (Version, error) {
	_, rest, ok := strings.Cut(output, "$CondorVersion:")
	fields := strings.Fields(rest)
	if !ok || len(fields) == 0 {
		return Version{}, fmt.Errorf("no $CondorVersion: in %q", foreign.Clip(output))
	}
	parts := strings.Split(fields[0], ".")
	var n [3]int
	if len(parts) != len(n) {
		return Version{}, fmt.Errorf("HTCondor version %q is not of the form 25.14.1", foreign.Clip(fields[0]))
	}
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return Version{}, fmt.Errorf("HTCondor version %q is not of the form 25.14.1", foreign.Clip(fields[0]))
		}
		n[i] = int(v)
	}
	return Version{n[0], n[1], n[2]}, nil
}

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Before reports whether v is older than o.
func (v Version) Before(o Version) bool {
	switch {
	case v.Major != o.Major:
		return v.Major < o.Major
	case v.Minor != o.Minor:
		return v.Minor < o.Minor
	}
	return v.Patch < o.Patch
}

// Check says whether HTCondor v can carry shares of GPUs: an error if not, a
// warning if nobody has tried.
func Check(v Version) (warning string, err error) {
	switch {
	case !v.Before(brokenFrom) && !brokenTo.Before(v):
		return "", fmt.Errorf("HTCondor %s forgets repeated GPU ids (bug HTCONDOR-2678, in %s to %s), so a GPU cannot "+
			"have shares; upgrade to %s or later", v, brokenFrom, brokenTo, Oldest)
	case v.Before(Oldest):
		return "", fmt.Errorf("HTCondor %s is too old for gpuslot; upgrade to %s or later", v, Oldest)
	case v.Major > newestKnown:
		return fmt.Sprintf("gpuslot was not tried with HTCondor %s, only up to %d.x; "+
			"compare condor_status -gpus with gpuslot status before you rely on it", v, newestKnown), nil
	}
	return "", nil
}

// InstalledVersion asks the condor_version in PATH.
func InstalledVersion(ctx context.Context) (Version, error) {
	out, err := output(ctx, nil, "condor_version")
	if err != nil {
		return Version{}, err
	}
	return ParseVersion(out)
}
