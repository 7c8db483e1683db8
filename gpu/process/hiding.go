package process

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// The kernel's names of what keeps files open without a descriptor.
const (
	ringName = "anon_inode:[io_uring]"
	aioName  = "/[aio]"
	onTheWay = "\nscm_fds: "
)

// MayHide says whether a process may have open files that its descriptors do not show: it has an io_uring, or a socket
// with files on their way (the kernel tells of these from Linux 5.6 on). It looks at so many descriptors. Where
// something cannot be read, the process may.
func MayHide(fs FS, pid, most int) (may bool) {
	_, err := eachDescriptor(fs, pid, most, func(dir, fd string, _ int) {
		link, err := os.Readlink(dir + "/fd/" + fd)
		if strings.HasPrefix(link, "socket:") {
			var info []byte
			if info, err = os.ReadFile(dir + "/fdinfo/" + fd); err == nil {
				may = may || filesOnTheirWay(info)
			}
		}
		may = may || link == ringName || err != nil && !Gone(err)
	})
	return may || err != nil
}

// filesOnTheirWay reads the kernel's word on a socket.
func filesOnTheirWay(fdinfo []byte) bool {
	_, value, ok := bytes.Cut(fdinfo, []byte(onTheWay))
	return ok && !bytes.HasPrefix(value, []byte("0\n"))
}

// MayMap says whether a process has a mapping of a file, or of a ring of io_uring or aio, which keeps files open, too.
// Where that cannot be read, it may. A process can hold the caller for as long as it likes.
func MayMap(fs FS, pid int, file File) bool {
	maps, err := os.ReadFile(fs.Path(pid, "maps"))
	if err != nil {
		return !Gone(err)
	}
	// Address, rights, offset, device, inode, name.
	its := fmt.Sprintf(" %02x:%02x %d ", unix.Major(file.Dev), unix.Minor(file.Dev), file.Inode)
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, its) || strings.Contains(line, ringName) || strings.Contains(line, aioName) {
			return true
		}
	}
	return false
}
