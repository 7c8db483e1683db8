package node_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/node"
)

// alive says whether a process runs; a zombie does not.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// litter lists what a node has on the host: state, cgroups, mounts.
func litter(t *testing.T, cgroup string) []string {
	t.Helper()
	id := strings.TrimPrefix(filepath.Base(filepath.Dir(cgroup)), "gpuslot-node-")
	found, err := filepath.Glob("/run/gpuslot-node/" + id + "*")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(cgroup)); err == nil {
		found = append(found, cgroup)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, id) {
			found = append(found, line)
		}
	}
	return found
}

func TestStop(t *testing.T) {
	ctx, n := boot(t, node.Options{})
	if err := n.StartCondor(ctx); err != nil {
		t.Fatal(err)
	}
	cluster, err := n.Submit(ctx, "alice", sleepJob)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.WaitJobs(ctx, cluster, 2); err != nil {
		t.Fatal(err)
	}
	// A process that a command leaves behind must not outlive the node either.
	if _, err := n.Run(ctx, "sh", "-c", "setsid sleep 4712 >/dev/null 2>&1 </dev/null &"); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, file := range walk(t, n.Cgroup(), "cgroup.procs") {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for pid := range strings.FieldsSeq(string(data)) {
			if p, err := strconv.Atoi(pid); err == nil {
				pids = append(pids, p)
			}
		}
	}
	if len(pids) < 8 {
		t.Fatalf("only %d processes in the node", len(pids))
	}
	if len(litter(t, n.Cgroup())) < 3 {
		t.Fatalf("this test looks in the wrong places: %q", litter(t, n.Cgroup()))
	}
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d outlived the node", pid)
		}
	}
	if left := litter(t, n.Cgroup()); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if _, err := n.Run(ctx, "true"); err == nil {
		t.Error("a stopped node runs commands")
	}
}

func walk(t *testing.T, dir, name string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == name {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// childVariable makes the test binary boot a node, print what it is, and wait to be killed.
const childVariable = "GPUSLOT_NODE_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		n, err := node.Boot(context.Background(), node.Options{})
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println(n.Leader(), n.Cgroup())
		time.Sleep(time.Minute)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestOwnerKilled(t *testing.T) {
	// This also builds the image, if it must be.
	_, bystander := boot(t, node.Options{})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, cgroup, _ := strings.Cut(strings.TrimSpace(line), " ")
	leader, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatalf("the child says %q", line)
	}
	if !alive(leader) {
		t.Fatal("the child's node is not alive")
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed: always an error
	deadline := time.Now().Add(node.Patience)
	for alive(leader) {
		if time.Now().After(deadline) {
			t.Fatalf("PID 1 (%d) outlived the process that booted it", leader)
		}
		time.Sleep(10 * time.Millisecond)
	}
	// The next boot sweeps up, and lets the living be.
	ctx, _ := boot(t, node.Options{})
	if left := litter(t, cgroup); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if _, err := bystander.Run(ctx, "true"); err != nil {
		t.Errorf("the other node: %v", err)
	}
}

func TestBootFailureShowsTheConsole(t *testing.T) {
	if err := node.Available(); err != nil {
		t.Skip(err.Error())
	}
	_, err := node.Boot(t.Context(), node.Options{Binds: []node.Bind{{Host: "/nonexistent-host-path", Guest: "/mnt/x"}}})
	if err == nil || !strings.Contains(err.Error(), "/nonexistent-host-path") {
		t.Errorf("error %v", err)
	}
}

func TestFailureShowsTheJournal(t *testing.T) {
	ctx, n := boot(t, node.Options{Files: map[string]node.File{
		"/etc/systemd/system/condor.service.d/broken.conf": {Data: "[Service]\nExecStartPre=/bin/sh -c 'echo my own words; exit 5'\n"},
	}})
	err := n.StartCondor(ctx)
	if err == nil || !strings.Contains(err.Error(), "my own words") {
		t.Errorf("error %v", err)
	}
}

func BenchmarkRun(b *testing.B) {
	if err := node.Available(); err != nil {
		b.Skip(err.Error())
	}
	n, err := node.Boot(b.Context(), node.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Stop()
	for name, args := range map[string][]string{
		"true":        {"true"},
		"systemd-run": {"systemd-run", "--wait", "--pipe", "-q", "true"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := n.Run(b.Context(), args...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
