package mps

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Which accounts may use a control daemon is kept where the kernel enforces it:
// in the POSIX ACL of the pipe directory. An admitted account may search it and
// nothing else, which suffices for a client and for the server that the daemon
// starts with the client's uid and group 0.
//
// The daemon makes its socket, its log pipe and its lock open to everybody. They
// get the same accounts: a job may keep a descriptor of the socket (O_PATH) and pass
// it on, and who connects through it is asked for the socket's rights, not for the
// directory's.

// Admit lets an account use the daemon with this pipe directory. The
// directory's owner is in already. Admissions live as long as the directory:
// a restart of the daemon, also by systemd, keeps them; a stop removes them, so
// after a Result of Started nobody is admitted.
func Admit(dir string, uid uint32) error {
	return changeACL(dir, func(users map[uint32]uint16) { users[uid] = aclSearch })
}

// Revoke shuts an account out again, also one that kept descriptors of the socket.
// Connections that it has, and files that it has open for writing, remain.
func Revoke(dir string, uid uint32) error {
	return changeACL(dir, func(users map[uint32]uint16) { delete(users, uid) })
}

// Restrict takes the files of a pipe directory, such as those that a daemon has made
// since the last admission, from all but the admitted accounts.
func Restrict(dir string) error {
	f, err := lockDirectory(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	a, err := readACL(f)
	if err != nil {
		return err
	}
	return restrictFiles(f, a.admitted())
}

// Admitted lists the accounts that Admit let in, in ascending order.
func Admitted(dir string) ([]uint32, error) {
	f, err := openDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a, err := readACL(f)
	if err != nil {
		return nil, err
	}
	return a.admitted(), nil
}

// admitted are the accounts that may search a directory with this ACL, in
// ascending order.
func (a acl) admitted() []uint32 {
	var uids []uint32
	for uid, perm := range a.users {
		// The mask takes rights from named users; a chmod changes it.
		if perm&a.mask&aclSearch != 0 {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

func openDirectory(dir string) (*os.File, error) {
	return os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// lockDirectory opens a directory and holds its lock until it is closed. The lock
// keeps two changes, which would each write back what they read, from losing one of
// them.
func lockDirectory(dir string) (*os.File, error) {
	f, err := openDirectory(dir)
	if err != nil {
		return nil, err
	}
	if err := flock(int(f.Fd())); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// changeACL reads, changes and writes the ACL, then those of the files.
func changeACL(dir string, change func(users map[uint32]uint16)) error {
	f, err := lockDirectory(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	a, err := readACL(f)
	if err != nil {
		return err
	}
	if !a.present {
		a = aclOfMode(uint16(st.Mode().Perm()))
	}
	change(a.users)
	// The mask must let the search right through, and never a right that a
	// chmod took from the owning group.
	a.mask |= aclSearch
	if err := unix.Fsetxattr(int(f.Fd()), aclAttribute, a.encode(), 0); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			return fmt.Errorf("%s is on a file system without POSIX ACLs: choose a run directory on tmpfs, ext4 or xfs: "+
				"%w", dir, err)
		}
		return fmt.Errorf("set the ACL of %s: %w", dir, err)
	}
	return restrictFiles(f, a.admitted())
}

// restrictFiles gives the admitted accounts what everybody may do with a file, and
// takes it from all others. Files that nobody but their owner may use stay as they are.
func restrictFiles(dir *os.File, uids []uint32) error {
	entries, err := dir.ReadDir(0) // all
	errs := []error{err}
	buf := make([]byte, attributeSize)
	for _, e := range entries {
		if e.Type() == fs.ModeSymlink {
			continue // has no rights of its own
		}
		path := filepath.Join(dir.Name(), e.Name())
		err := restrictFile(path, e.Type(), uids, buf)
		// Without POSIX ACLs nobody can be admitted to the directory.
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EOPNOTSUPP) {
			errs = append(errs, fmt.Errorf("set the ACL of %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// restrictFile goes by the path: a socket cannot be opened. Only the owner can make or
// rename files in the directory.
func restrictFile(path string, kind fs.FileMode, uids []uint32, buf []byte) error {
	n, err := unix.Lgetxattr(path, aclAttribute, buf)
	var old acl
	switch {
	case err == nil:
		old, err = decodeACL(buf[:n])
	case errors.Is(err, unix.ENODATA):
		var st fs.FileInfo
		if st, err = os.Lstat(path); err == nil {
			old = aclOfMode(uint16(st.Mode().Perm()))
		}
	}
	if err != nil {
		return err
	}
	// The rights stand with the group, that of the daemon's servers, and so outlive
	// the time in which no account is admitted.
	rights := old.group | old.other
	if rights == 0 {
		return nil
	}
	if kind == fs.ModeSocket && rights&aclWrite == 0 {
		// Nobody else can connect, and a daemon that starts opens its socket only after
		// it has made it: the accounts would keep the rights from before that.
		return nil
	}
	want := acl{owner: old.owner, group: rights, mask: rights, users: map[uint32]uint16{}}
	for _, uid := range uids {
		want.users[uid] = rights
	}
	text := want.encode()
	if bytes.Equal(text, old.encode()) {
		return nil
	}
	return unix.Lsetxattr(path, aclAttribute, text, 0)
}

// flock waits for the lock; its holders only ever read and write ACLs.
func flock(fd int) error {
	for {
		if err := unix.Flock(fd, unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func readACL(f *os.File) (acl, error) {
	buf := make([]byte, attributeSize)
	n, err := unix.Fgetxattr(int(f.Fd()), aclAttribute, buf)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP) {
		return acl{}, nil
	}
	if err != nil {
		return acl{}, fmt.Errorf("read the ACL of %s: %w", f.Name(), err)
	}
	a, err := decodeACL(buf[:n])
	if err != nil {
		return acl{}, fmt.Errorf("read the ACL of %s: %w", f.Name(), err)
	}
	return a, nil
}

// The kernel's form of an ACL (linux/posix_acl_xattr.h): a version, then
// entries of tag, rights and id, little-endian, ordered by tag and id.
const (
	aclAttribute  = "system.posix_acl_access"
	aclVersion    = 2
	attributeSize = 64 << 10 // the kernel's limit of an attribute, in bytes
	aclEntrySize  = 8

	aclUserObj  = 0x01
	aclUser     = 0x02
	aclGroupObj = 0x04
	aclGroup    = 0x08
	aclMask     = 0x10
	aclOther    = 0x20

	aclNobody = ^uint32(0) // the id of an entry that needs none
	aclSearch = 1
	aclWrite  = 2
	aclRights = 7
)

// acl is an access ACL.
type acl struct {
	present             bool // false: only the mode bits count
	owner, group, other uint16
	mask                uint16
	users, groups       map[uint32]uint16
}

// aclOfMode is the ACL that says the same as mode bits.
func aclOfMode(mode uint16) acl {
	return acl{
		present: true,
		owner:   mode >> 6 & aclRights, group: mode >> 3 & aclRights, other: mode & aclRights,
		mask:  mode >> 3 & aclRights,
		users: map[uint32]uint16{}, groups: map[uint32]uint16{},
	}
}

func (a acl) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, aclVersion)
	add := func(tag, rights uint16, id uint32) {
		b = binary.LittleEndian.AppendUint16(b, tag)
		b = binary.LittleEndian.AppendUint16(b, rights)
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	addAll := func(tag uint16, m map[uint32]uint16) {
		for _, id := range sortedKeys(m) {
			add(tag, m[id], id)
		}
	}
	add(aclUserObj, a.owner, aclNobody)
	addAll(aclUser, a.users)
	add(aclGroupObj, a.group, aclNobody)
	addAll(aclGroup, a.groups)
	if len(a.users)+len(a.groups) > 0 {
		add(aclMask, a.mask, aclNobody)
	}
	add(aclOther, a.other, aclNobody)
	return b
}

func sortedKeys(m map[uint32]uint16) []uint32 {
	keys := make([]uint32, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

var errACL = errors.New("the ACL has an unknown form")

func decodeACL(b []byte) (acl, error) {
	if len(b) < 4 || (len(b)-4)%aclEntrySize != 0 || binary.LittleEndian.Uint32(b) != aclVersion {
		return acl{}, errACL
	}
	a := acl{present: true, users: map[uint32]uint16{}, groups: map[uint32]uint16{}}
	masked := false
	for b = b[4:]; len(b) > 0; b = b[aclEntrySize:] {
		tag, rights := binary.LittleEndian.Uint16(b), binary.LittleEndian.Uint16(b[2:])
		id := binary.LittleEndian.Uint32(b[4:])
		if rights > aclRights {
			return acl{}, errACL
		}
		switch tag {
		case aclUserObj:
			a.owner = rights
		case aclUser:
			a.users[id] = rights
		case aclGroupObj:
			a.group = rights
		case aclGroup:
			a.groups[id] = rights
		case aclMask:
			a.mask, masked = rights, true
		case aclOther:
			a.other = rights
		default:
			return acl{}, errACL
		}
	}
	if !masked {
		a.mask = a.group
	}
	return a, nil
}
