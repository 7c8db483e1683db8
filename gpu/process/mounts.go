package process

import (
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
)

// mount is a line of /proc/<pid>/mountinfo (proc(5)).
type mount struct {
	// device is "major:minor" of the file system, root the directory of it that
	// appears at point.
	device, root, point string
}

// parseMounts reads mountinfo; lines that are none are left out.
func parseMounts(text []byte) []mount {
	var out []mount
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 6 && path.IsAbs(f[4]) {
			out = append(out, mount{device: f[2], root: unescapeMount(f[3]), point: unescapeMount(f[4])})
		}
	}
	return out
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

// placeOf is where a path leads: through the last mount among those with the
// longest mount point on the way.
func placeOf(mounts []mount, name string) (p place, ok bool) {
	longest := -1
	for _, m := range mounts {
		rest, on := below(m.point, name)
		if on && len(m.point) >= longest {
			longest = len(m.point)
			p, ok = place{m.device, path.Join(m.root, rest)}, true
		}
	}
	return p, ok
}

// below is the rest of a path under a directory.
func below(dir, name string) (rest string, ok bool) {
	if dir == "/" {
		return name, true
	}
	rest, ok = strings.CutPrefix(name, dir)
	return rest, ok && (rest == "" || rest[0] == '/')
}

// Hides says whether a directory of ours is not what a process finds at its
// path, as in a container without a bind. Only the kernel's lists are read: a
// look into the process's own file systems could wait for it for ever. What
// cannot be read is not known to be hidden.
func (fs FS) Hides(pid int, dir string) bool {
	own, errOwn := os.ReadFile(fs.root() + "/self/mountinfo")
	its, err := readMounts(fs.thread(pid) + "/mountinfo")
	if errOwn != nil || err != nil {
		return false
	}
	ours, ok := placeOf(parseMounts(own), dir)
	theirs, found := placeOf(parseMounts(its), dir)
	return ok && (!found || ours != theirs)
}

// mostMounts bounds a list of mounts, in bytes; containers have some tens of KiB. A job
// can make gigabytes of it in a namespace of its own, and all GPUs would wait.
const mostMounts = 1 << 20

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
