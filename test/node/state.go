package node

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

//go:embed boot.sh
var bootScript string

//go:embed keep.sh
var keepScript string

//go:embed condor.config
var condorConfig string

// stateBase holds one directory per booted node, its lock beside it.
const stateBase = "/run/gpuslot-node"

// state is what a node has on the host's disk: a few small files below /run. Its lock is held as long as the
// process that booted the node lives, so a free lock means that the node is dead and the rest is litter.
type state struct {
	id   string // <name>-<number>: also the name of the cgroup
	dir  string
	lock *os.File
}

// newState removes what dead nodes left behind and makes an empty state directory.
func newState(name string) (*state, error) {
	if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return nil, fmt.Errorf("node name %q: use lower-case letters, digits and dashes", name)
	}
	if err := os.MkdirAll(stateBase, 0o755); err != nil {
		return nil, err
	}
	// One lock over sweeping and making: no other process may see a directory whose lock is not held yet.
	all, err := flock(filepath.Join(stateBase, ".lock"), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	if err := sweep(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(stateBase, name+"-")
	if err != nil {
		return nil, err
	}
	lock, err := flock(dir+".lock", unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		return nil, err
	}
	return &state{id: filepath.Base(dir), dir: dir, lock: lock}, nil
}

// sweep removes every state directory and cgroup whose owner is dead.
func sweep() error {
	locks, err := filepath.Glob(filepath.Join(stateBase, "*.lock"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range locks {
		lock, err := flock(path, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue // its owner lives
		}
		dir := strings.TrimSuffix(path, ".lock")
		if cg, err := openCgroup(filepath.Base(dir)); err == nil {
			errs = append(errs, cg.remove())
		}
		errs = append(errs, (&state{dir: dir, lock: lock}).remove())
	}
	return errors.Join(errs...)
}

func (s *state) remove() error {
	err := errors.Join(os.RemoveAll(s.dir), os.Remove(s.lock.Name()))
	return errors.Join(err, s.lock.Close())
}

// inFstab writes a path as fstab(5) has it.
var inFstab = strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`)

// write puts everything in place that boot.sh reads.
func (s *state) write(image string, o Options) error {
	var binds, fstab strings.Builder
	for _, b := range o.Binds {
		how := "bind,ro"
		if b.Writable {
			how = "bind"
		}
		if !filepath.IsAbs(b.Host) || !filepath.IsAbs(b.Guest) {
			return fmt.Errorf("bind %s to %s: both paths must be absolute", b.Host, b.Guest)
		}
		fmt.Fprintf(&binds, "%s\t%s\n", b.Host, b.Guest)
		inside := filepath.Join(s.dir, "tmp/root", b.Guest)
		fmt.Fprintf(&fstab, "%s %s none %s\n", inFstab.Replace(b.Host), inFstab.Replace(inside), how)
	}
	if err := errors.Join(s.put("boot.sh", bootScript), s.put("keep.sh", keepScript), s.put("binds", binds.String()),
		s.put("fstab", fstab.String()),
		os.Mkdir(filepath.Join(s.dir, "tmp"), 0o755)); err != nil {
		return err
	}
	owners, err := users(image)
	if err != nil {
		return err
	}
	files := map[string]File{
		"/etc/hostname":                       {Data: o.Name + "\n"},
		"/etc/hosts":                          {Data: "127.0.0.1 " + o.Name + ".test " + o.Name + " localhost\n"},
		"/etc/condor/config.d/10-node.config": {Data: condorConfig + baseCgroup()},
	}
	for path, f := range o.Files {
		files[path] = f
	}
	for path, f := range files {
		if err := s.putFile(path, f, owners); err != nil {
			return err
		}
	}
	// Last, so that they are newer than a /usr that has some of the files: systemd would run ldconfig and its other
	// work after an update at the boot.
	return errors.Join(s.putFile("/etc/.updated", File{}, owners), s.putFile("/var/.updated", File{}, owners))
}

// baseCgroup makes jobs run where they do on a machine with cgroup v2 only: below condor.service. HTCondor takes
// the service's cgroup from the first line of /proc/self/cgroup if that begins with "0::", and starts from the
// root if it does not; on a host with the hybrid tree the version 1 lines come first, in the node too.
func baseCgroup() string {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil || strings.HasPrefix(string(data), "0::") {
		return ""
	}
	return "BASE_CGROUP = system.slice/condor.service/htcondor\n"
}

// put writes a file of ours.
func (s *state) put(name, data string) error {
	return os.WriteFile(filepath.Join(s.dir, name), []byte(data), 0o644)
}

// putFile writes a file of the node into the layer over the image.
func (s *state) putFile(guest string, f File, owners map[string][2]int) error {
	if !filepath.IsAbs(guest) {
		return fmt.Errorf("file %s: the path must be absolute", guest)
	}
	if f.Owner == "" {
		f.Owner = "root"
	}
	owner, known := owners[f.Owner]
	if !known {
		return fmt.Errorf("file %s: the image has no user %s", guest, f.Owner)
	}
	if f.Mode == 0 {
		f.Mode = 0o644
	}
	path := filepath.Join(s.dir, "files", guest)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(f.Data), 0o600); err != nil {
		return err
	}
	return errors.Join(os.Chown(path, owner[0], owner[1]), os.Chmod(path, f.Mode.Perm()))
}

// console is the end of what the launcher and PID 1 wrote before the journal took over.
func (s *state) console() string {
	data, err := os.ReadFile(filepath.Join(s.dir, "console.log"))
	if err != nil {
		return err.Error()
	}
	return tail(string(data), 20)
}

// users reads the image's passwd file: uid and gid by name.
func users(image string) (map[string][2]int, error) {
	data, err := os.ReadFile(filepath.Join(image, "etc/passwd"))
	if err != nil {
		return nil, err
	}
	ids := make(map[string][2]int)
	for line := range strings.Lines(string(data)) {
		f := strings.Split(line, ":")
		if len(f) < 4 {
			continue
		}
		uid, err1 := strconv.Atoi(f[2])
		gid, err2 := strconv.Atoi(f[3])
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("passwd of the image: %w", err)
		}
		ids[f[0]] = [2]int{uid, gid}
	}
	return ids, nil
}

// flock opens and locks a file; closing it gives the lock back.
func flock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// tail is the last lines of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return strings.Join(all, "\n")
}
