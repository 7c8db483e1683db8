package process

import (
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// mount is a line of /proc/<pid>/mountinfo (proc(5)).
type mount struct {
	// device is "major:minor" of the file system, root the directory of it that
	// appears at point.
	device, root, point string
	// readOnly: the mount is, or the file system.
	readOnly bool
}

// parseMounts reads mountinfo; lines that are none are left out.
func parseMounts(text []byte) []mount {
	var out []mount
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 6 && path.IsAbs(f[4]) {
			readOnly := hasOption(f[5], "ro") || hasOption(f[len(f)-1], "ro") // the file system's stand last
			out = append(out, mount{f[2], unescapeMount(f[3]), unescapeMount(f[4]), readOnly})
		}
	}
	return out
}

func hasOption(options, option string) bool {
	return slices.Contains(strings.Split(options, ","), option)
}

// unescapeMount undoes the kernel's \040 for blanks and the like.
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// place is a directory of a file system, whatever path leads to it.
type place struct{ device, path string }

// placeOf is where a path leads.
func placeOf(mounts []mount, name string) (p place, ok bool) {
	m, ok := mountOf(mounts, name)
	if !ok {
		return place{}, false
	}
	rest, _ := below(m.point, name)
	return place{m.device, path.Join(m.root, rest)}, true
}

// mountOf is the mount that a path leads to: the last among those with the longest mount
// point on the way.
func mountOf(mounts []mount, name string) (found mount, ok bool) {
	for _, m := range mounts {
		if _, on := below(m.point, name); on && len(m.point) >= len(found.point) {
			found, ok = m, true
		}
	}
	return found, ok
}

// below is the rest of a path under a directory.
func below(dir, name string) (rest string, ok bool) {
	if dir == "/" {
		return name, true
	}
	rest, ok = strings.CutPrefix(name, dir)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// Hiding are the processes, each with a directory of ours, that do not find it at its
// path, as in a container without a bind. Only the kernel's lists are read: a
// look into the process's own file systems could wait for it for ever. What
// cannot be read is not known to be hidden.
func (fs FS) Hiding(dirs map[int]string) map[int]bool {
	text, err := os.ReadFile(fs.root() + "/self/mountinfo")
	if err != nil {
		return nil
	}
	own, hiding := parseMounts(text), map[int]bool{}
	for pid, dir := range dirs {
		its, err := mountsOf(fs, pid)
		if err != nil {
			continue
		}
		ours, ok := placeOf(own, dir)
		theirs, _ := placeOf(parseMounts(its), dir) // without a mount it is no place of ours
		if ok && ours != theirs {
			hiding[pid] = true
		}
	}
	return hiding
}

// ReadOnly says whether a process finds a directory on a read-only mount. What cannot be
// read is not known to be one.
func (fs FS) ReadOnly(pid int, dir string) bool {
	text, err := mountsOf(fs, pid)
	m, _ := mountOf(parseMounts(text), dir)
	return err == nil && m.readOnly
}

// mostMounts bounds a list of mounts, in bytes; containers have some tens of KiB. A job
// can make gigabytes of it in a namespace of its own, and all GPUs would wait.
const mostMounts = 1 << 20

func mountsOf(fs FS, pid int) ([]byte, error) {
	dir, err := fs.thread(pid)
	if err != nil {
		return nil, err
	}
	return readMounts(dir + "/mountinfo")
}

func readMounts(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, mostMounts+1))
	if err == nil && len(b) > mostMounts {
		err = fmt.Errorf("%s is longer than %d bytes", name, mostMounts)
	}
	return b, err
}
