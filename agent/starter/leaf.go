package starter

import (
	"bytes"
	"cmp"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/agent/deep"
	"github.com/gpuslot/gpuslot/condor/cgroup"
)

// Leaf is a cgroup that HTCondor made: the job's own, or that of one login by
// condor_ssh_to_job. On 24.8 on they are "…_slot1_2@host.slice/…_slot1_2@host.scope"
// and "…_slot1_2@host/sshd.slice/sshd.scope", before that "…_slot1_2@host" and the
// same with "/sshd" (seen on 25.14.1 and 23.9.6; the last in HTCondor's source).
type Leaf struct {
	// Path is below the mount of cgroup v2; empty for what is in no such cgroup.
	Path string
	// Login says that it is that of a login.
	Login bool
	// Left says that the process has left this cgroup for another one below the job's slice
	// or the login's, which HTCondor gives to the user: also for one that has taken its name.
	Left bool
	// slot is the slot that its name says.
	slot string
}

// jobLeaf is the job's leaf, from the text of /proc/<pid>/cgroup; empty for a process of a login. VRAM limits
// belong there: above it CUDA would show the whole GPU, and below it a job may make cgroups.
func jobLeaf(text []byte) (path, slot string) {
	if l := leafOf(text); !l.Login {
		return l.Path, l.slot
	}
	return "", ""
}

// leafOf is the leaf of a process, from the text of its /proc/<pid>/cgroup.
func leafOf(text []byte) Leaf {
	below, ok := strings.CutPrefix(unified(text), "/")
	if !ok {
		return Leaf{}
	}
	// What has ended may be in a cgroup that is no more: nothing is looked for there. A user may choose
	// such a name, too.
	below, gone := strings.CutSuffix(below, " (deleted)")
	l := leafIn(strings.Split(below, "/"))
	l.Left = l.Left || gone
	return l
}

func leafIn(parts []string) Leaf {
	for i, part := range parts {
		if part == ".." {
			return Leaf{} // of another cgroup namespace
		}
		slot := cgroup.Slot(part)
		if slot == "" {
			continue
		}
		below := append(parts[i+1:], "", "")
		l := Leaf{slot: slot}
		switch {
		case strings.HasSuffix(part, ".slice"):
			scope := strings.TrimSuffix(part, ".slice") + ".scope"
			l.Left = below[0] != scope
			l.Path = "/" + strings.Join(append(slices.Clone(parts[:i+1]), scope), "/")
			return l
		case below[0] == "sshd.slice" && below[1] == "sshd.scope":
			l.Login = true
			i += 2
		case below[0] == "sshd.slice": // the user's too: it left the scope
			l.Login, l.Left = true, true
			l.Path = "/" + strings.Join(append(slices.Clone(parts[:i+1]), "sshd.slice", "sshd.scope"), "/")
			return l
		case below[0] == "sshd":
			l.Login = true
			i++
		}
		l.Path = "/" + strings.Join(parts[:i+1], "/")
		return l
	}
	return Leaf{}
}

// seen is the leaf after a look at the cgroup itself. Others of the round are not to wait for it: until the look has
// ended, or somebody keeps it from that, the process has not left.
func (l Leaf) seen(mount string) Leaf {
	if l.Left {
		return l
	}
	look := LookAtOwner(mount, l.Path)
	remade, known := look.Within(deep.Brief)
	l.Left = remade || !known && look.Hidden()
	return l
}

// JobSlice is the slice of a job, above the cgroup that HTCondor made for it, from 24.8 on; false if
// there is none.
func JobSlice(leaf string) (string, bool) {
	slice := path.Dir(leaf)
	name, ok := strings.CutSuffix(slice, ".slice")
	return slice, ok && path.Base(leaf) == path.Base(name)+".scope"
}

// Remade says whether a user made the cgroup that has the name of a job's in its slice, or keeps this from
// being seen. HTCondor leaves its own there to root, in all versions with slices
// (proc_family_direct_cgroup_v2.cpp, 24.8 to 25.14).
func Remade(mount, leaf string) bool {
	remade, seen := LookAtOwner(mount, leaf).Within(deep.Patient)
	return remade || !seen
}

// LookAtOwner begins the look of Remade.
func LookAtOwner(mount, leaf string) deep.Looking[bool] {
	_, ok := JobSlice(leaf)
	if !ok {
		return deep.Known(false)
	}
	at := path.Join(cmp.Or(mount, "/sys/fs/cgroup"), leaf)
	return deep.Begin("owner "+at, func() bool {
		var st unix.Stat_t
		return unix.Lstat(at, &st) == nil && st.Uid != 0 && st.Uid != uint32(os.Getuid())
	})
}

// JobCgroup is the cgroup of a starter's job, below the mount; empty while the job has no process.
func (n Node) JobCgroup(s Starter) string {
	children, _ := n.Children(s.PID) // the job may be one that is not listed: then it is asked for again
	for _, pid := range children {
		text, err := n.trustedCgroup(pid)
		if err != nil {
			continue
		}
		leaf, slot := jobLeaf(text)
		if leaf == "" || !SameSlot(s.Slot, slot) {
			continue
		}
		// Asked last: the PID may be another's by now.
		if above, err := n.starterAbove(pid); err == nil && above.Is(s) {
			return leaf
		}
	}
	return ""
}

// userManager is the cgroup of a user's own service manager, which systemd
// delegates to the user.
var userManager = regexp.MustCompile(`/user@([0-9]{1,10})\.service(?:/|\n|$)`)

// trustedCgroup reads /proc/<pid>/cgroup as far as HTCondor and systemd chose the
// names. From a service manager of another account than the agent's on they are that
// account's choice; what stands before it is not, because a job may give its own
// cgroups the name of such a manager, too.
func (n Node) trustedCgroup(pid int) ([]byte, error) {
	b, err := n.cgroupText(pid)
	if err != nil {
		return nil, err
	}
	var out []byte
	for line := range bytes.Lines(b) {
		for _, m := range userManager.FindAllSubmatchIndex(line, -1) {
			if string(line[m[2]:m[3]]) != strconv.Itoa(os.Getuid()) {
				line = append(slices.Clone(line[:m[0]]), '\n')
				break
			}
		}
		out = append(out, line...)
	}
	return out, nil
}

// cgroupSlot is the slot whose cgroup the process is in; empty if in none.
func (n Node) cgroupSlot(pid int) (string, error) {
	b, err := n.trustedCgroup(pid)
	if err != nil {
		return "", err
	}
	return cgroup.SlotIn(b), nil
}
