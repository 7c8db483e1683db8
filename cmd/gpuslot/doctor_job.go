package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// contractScript is a job that says what HTCondor gave it: gpuslot builds on
// each of these lines, and an upgrade of HTCondor may change any.
const contractScript = `#!/bin/sh
sed 's/^/cgroup /' /proc/self/cgroup
env | grep -E '^(CUDA_VISIBLE_DEVICES|CUDA_MPS_PIPE_DIRECTORY|GPUSLOT_GPU|GPUSLOT_WALL|_CONDOR_SLOT|_CONDOR_SCRATCH_DIR)=' | sed 's/^/env /'
echo "parent $(tr '\0' ' ' </proc/$PPID/cmdline)"
echo "directory $(pwd -P)"
[ -w "$_CONDOR_SCRATCH_DIR" ] && echo "scratch writable"
[ -S "$CUDA_MPS_PIPE_DIRECTORY/control" ] && echo "pipe reachable"
exit 0
`

// contractSubmit describes that job; the directory and the machine's name are
// filled in. Its VRAM is the least that any site grants.
const contractSubmit = `executable = %[1]s/job.sh
output = %[1]s/out
error = %[1]s/err
log = %[1]s/log
should_transfer_files = yes
request_cpus = 1
request_memory = 64
request_disk = 10M
request_gpus = 1
request_vram = 1024
requirements = TARGET.Machine == "%[2]s"
queue
`

// contractTimeout is for a place in the queue, too.
const contractTimeout = 3 * time.Minute

// runContractJob submits the job here as a user, and returns what it printed.
func runContractJob(ctx context.Context, name string) (said string, err error) {
	if os.Geteuid() != 0 {
		return "", errors.New("only root may submit a job as another account: sudo gpuslot doctor --job " + name)
	}
	who, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	host, err := condorCommand(ctx, nil, "condor_config_val", "FULL_HOSTNAME")
	if err != nil {
		return "", err
	}
	dir, run, err := contractDirectory(who)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "job.sh"), []byte(contractScript), 0o755); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, contractTimeout)
	defer cancel()
	id, err := run(ctx, fmt.Sprintf(contractSubmit, dir, strings.TrimSpace(host)), "condor_submit", "-terse", "-")
	if err != nil {
		return "", fmt.Errorf("%w; on a machine without an access point run any GPU job here, and see gpuslot why JOB", err)
	}
	cluster, _, _ := strings.Cut(strings.TrimSpace(id), ".")
	if err := awaitContract(ctx, run, cluster); err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), doctorCondorTimeout)
		defer cancel()
		_, rmErr := run(clean, "", "condor_rm", cluster)
		return "", errors.Join(err, rmErr)
	}
	out, err := os.ReadFile(filepath.Join(dir, "out"))
	return string(out), err
}

// commandAs runs a program as the user and returns what it printed.
type commandAs func(ctx context.Context, stdin string, args ...string) (string, error)

// contractDirectory is the user's, and a way to run programs as the user in it.
func contractDirectory(who *user.User) (string, commandAs, error) {
	uid, errU := strconv.ParseUint(who.Uid, 10, 32)
	gid, errG := strconv.ParseUint(who.Gid, 10, 32)
	if err := errors.Join(errU, errG); err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "gpuslot-doctor-")
	if err != nil {
		return "", nil, err
	}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func(ctx context.Context, stdin string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + who.HomeDir, "USER=" + who.Username, "LOGNAME=" + who.Username}
		cmd.Stdin, cmd.WaitDelay = strings.NewReader(stdin), time.Second
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			return "", fmt.Errorf("%s: %w: %.300s", args[0], err, oneSentence(stderr.String()))
		}
		return stdout.String(), nil
	}, nil
}

// awaitContract waits until the job has left the queue, and says why it does not.
func awaitContract(ctx context.Context, run commandAs, cluster string) error {
	for {
		state, err := run(ctx, "", "condor_q", cluster, "-af", "JobStatus", "HoldReason")
		words, reason, _ := strings.Cut(strings.TrimSpace(state), " ")
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("the job did not end within %s: condor_q -better-analyze shows why a job like it does not start", contractTimeout)
		case err != nil:
			return err
		case words == "5": // held
			return fmt.Errorf("the job was held: %s", reason)
		case words == "": // gone
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}
