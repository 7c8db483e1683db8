package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpuslot/gpuslot/cmd/gpuslot/show"
)

// userFolder is a directory that belongs to one user. Root opens, writes and removes
// nothing in it: the user can put a link there at any moment. Programs that run as
// the user do all of that.
type userFolder struct {
	dir      string
	env      []string
	uid, gid uint32
}

// mostOfUser bounds what one program of the user may print, in bytes.
const mostOfUser = 64 << 10

// userFolderTimeout bounds a step in the folder that starts no job.
const userFolderTimeout = 30 * time.Second

// newUserFolder makes a new directory, mode 0700, as the user.
func newUserFolder(ctx context.Context, who *user.User) (userFolder, error) {
	uid, errU := strconv.ParseUint(who.Uid, 10, 32)
	gid, errG := strconv.ParseUint(who.Gid, 10, 32)
	if err := errors.Join(errU, errG); err != nil {
		return userFolder{}, err
	}
	f := userFolder{uid: uint32(uid), gid: uint32(gid), dir: "/", env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + who.HomeDir, "USER=" + who.Username, "LOGNAME=" + who.Username,
	}}
	ctx, cancel := context.WithTimeout(ctx, userFolderTimeout)
	defer cancel()
	dir, err := f.run(ctx, "", "mktemp", "-d", "/tmp/gpuslot-doctor-XXXXXXXXXX")
	f.dir = strings.TrimSpace(dir)
	return f, err
}

// write makes an executable file of the folder.
func (f userFolder) write(ctx context.Context, name, text string) error {
	ctx, cancel := context.WithTimeout(ctx, userFolderTimeout)
	defer cancel()
	_, err := f.run(ctx, text, "sh", "-c", `cat >"$1" && chmod 755 "$1"`, "sh", name)
	return err
}

// remove removes the folder, also when ctx is over.
func (f userFolder) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), userFolderTimeout)
	defer cancel()
	_, err := f.run(ctx, "", "rm", "-rf", "--", f.dir)
	return err
}

// run runs a program as the user in the folder and returns what it printed. It has a
// session of its own: a process of the user with root's terminal could type on it.
func (f userFolder) run(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: f.uid, Gid: f.gid}, Setsid: true}
	cmd.Dir, cmd.Env = f.dir, f.env
	cmd.Stdin, cmd.WaitDelay = strings.NewReader(stdin), time.Second
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var stdout, stderr firstBytes
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %.300s", args[0], err, show.OneLine(stderr.kept.String()))
	}
	return stdout.kept.String(), nil
}

// firstBytes keeps the first mostOfUser bytes and drops the rest.
type firstBytes struct{ kept bytes.Buffer }

func (b *firstBytes) Write(p []byte) (int, error) {
	b.kept.Write(p[:min(len(p), mostOfUser-b.kept.Len())])
	return len(p), nil
}
