package doctor

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// Where SELinux says whether it is in force, and auditd writes what was denied.
const (
	enforceFile = "/sys/fs/selinux/enforce"
	auditLog    = "/var/log/audit/audit.log"
)

// selinux is what SELinux says of gpuslot.
type selinux struct {
	// absent: the kernel runs without SELinux.
	absent    bool
	enforcing bool
	denials   []string // the lines of the audit log, the newest last
	err       error
}

func readSELinux() selinux {
	mode, err := os.ReadFile(enforceFile)
	if errors.Is(err, fs.ErrNotExist) {
		return selinux{absent: true}
	}
	s := selinux{enforcing: strings.TrimSpace(string(mode)) == "1", err: err}
	log, err := os.Open(auditLog)
	if err != nil {
		s.err = errors.Join(s.err, err)
		return s
	}
	defer log.Close()
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if isDenial(lines.Text()) {
			s.denials = append(s.denials, lines.Text())
		}
	}
	s.err = errors.Join(s.err, lines.Err())
	return s
}

// isDenial finds what auditd writes of a denial ("type=AVC msg=audit(…): avc:
// denied { connectto } for pid=… comm="simjob" path="/run/gpuslot/…") that has
// to do with gpuslot, by program or by path.
func isDenial(line string) bool {
	if !strings.HasPrefix(line, "type=AVC ") || !strings.Contains(line, "denied") {
		return false
	}
	for _, of := range []string{"gpuslot", `comm="nvidia-cuda-mps`} {
		if strings.Contains(line, of) {
			return true
		}
	}
	return false
}

func checkSELinux(f facts) []Finding {
	const check = "SELinux"
	s := f.selinux
	switch {
	case s.absent:
		return fine(check, "the kernel runs without it")
	case s.err != nil:
		return unchecked(check, show.OneLine(s.err.Error()), "run it as root where auditd runs, or see ausearch -m avc")
	case len(s.denials) == 0:
		return fine(check, "%s has no denial of gpuslot", auditLog)
	}
	worst, meanwhile := Error, "It is in force, so jobs or the agent do not reach what they need."
	if !s.enforcing {
		worst, meanwhile = Note, "It is permissive now; in force, jobs or the agent would not reach what they need."
	}
	return []Finding{{worst, check, fmt.Sprintf("%d denials, the last: %.300s", len(s.denials),
		s.denials[len(s.denials)-1]), meanwhile,
		"restorecon -R /run/gpuslot; what remains goes into a module of the site: " +
			"ausearch -m avc | audit2allow -M gpuslot-site"}}
}
