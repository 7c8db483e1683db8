package process

import "syscall"

// untracedGID is a group in which no job runs: that of the account daemon.
const untracedGID = 1

// Untraced is an account for a child of the agent's. The child's own group is not the account's, so
// other processes of the account can neither trace nor read it (ptrace(2), "access mode checking").
// It has the account's group beside its own.
func Untraced(uid, gid uint32) *syscall.Credential {
	return &syscall.Credential{Uid: uid, Gid: untracedGID, Groups: []uint32{gid}}
}
