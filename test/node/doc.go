// Package node boots a worker node for tests: real systemd as PID 1, real HTCondor 25 as a one-machine pool,
// in namespaces of its own with only a loopback network.
//
// It owns the image (image.sh), the boot (boot.sh, Boot), commands and files inside (Exec, Run, RunAs, WriteFile,
// ReadFile, Hold) and the few HTCondor calls that every test needs (StartCondor, Submit, WaitSlots, JobLog). It knows
// nothing of gpuslot: what a test installs comes through Options.Files, Options.Binds and Run.
//
// A node lives no longer than the process that booted it. The launcher has the parent-death signal of its
// parent, and PID 1 that of the launcher, so a crash, a panic, a SIGKILL or Ctrl-C ends every process of the
// node at once; its mounts are in its own mount namespace and go with it. What can remain is a directory with
// a few small files and some empty cgroups: the next Boot removes them, because their lock is free.
//
// Start with Boot in node.go.
package node
