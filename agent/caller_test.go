package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/process"
)

// rootsOwn is root, and who runs the tests: the files of their programs are theirs.
var rootsOwn = starterUID(uint32(os.Getuid()))

func TestIdentify(t *testing.T) {
	f := newFakeProc(t)
	s := f.starter(1000, "slot1_1")
	f.add(proc{pid: 1001, parent: 1000, comm: "prepare", uid: 1000})                                                  // the hook
	f.add(proc{pid: 1002, parent: 1000, comm: "sh", uid: 1000})                                                       // a site's hook …
	f.add(proc{pid: 1003, parent: 1002, comm: "prepare", uid: 1000})                                                  // … that chains ours
	f.add(proc{pid: 1010, parent: 1000, comm: "job) S 1 (x", uid: 1000, cgroup: cgroupOf("slot1_1")})                 // the job, with a nasty name
	f.add(proc{pid: 1011, parent: 1010, comm: "wrap", uid: 1000, cgroup: cgroupOf("slot1_1")})                        // its child
	f.add(proc{pid: 1012, parent: 1, comm: "daemonised", uid: 1000, cgroup: cgroupOf("slot1_1")})                     // it left its parents
	f.add(proc{pid: 1013, parent: 1000, comm: "job", uid: 1000, cgroup: cgroupOf("slot7_7")})                         // cgroup and starter disagree
	f.add(proc{pid: 1100, parent: 900, comm: "monitor", uid: 64})                                                     // STARTD_CRON
	f.add(proc{pid: 1200, parent: 1, comm: "bash", uid: 1000, cgroup: "/user.slice/user-1000.slice/session-1.scope"}) // a login
	f.add(proc{pid: 1299, parent: 1, comm: "condor_startd", exe: "/home/alice/condor_startd", uid: 4711})
	f.add(proc{pid: 1300, parent: 1299, comm: "condor_starter", exe: "/home/alice/condor_starter", uid: 4711, args: []string{"x", "-a", "slot1_9"}})
	f.add(proc{pid: 1301, parent: 1300, comm: "prepare", uid: 1000}) // below a starter of alice's own
	f.add(proc{pid: 1400, parent: 900, comm: "condor_starter", exe: "/usr/bin/sudo", args: []string{"x", "-a", "slot1_9"}})
	f.add(proc{pid: 1401, parent: 1400, comm: "prepare", uid: 1000}) // below a root process with the name
	f.add(proc{pid: 1500, parent: 900, comm: "condor_starter", exe: "/usr/sbin/condor_starter (deleted)", args: []string{"condor_starter", "-a", "slot2_3"}})
	f.add(proc{pid: 1501, parent: 1500, comm: "prepare", uid: 1001}) // HTCondor was upgraded under it
	f.add(proc{pid: 1510, parent: 1, comm: "condor_starter", exe: "/usr/sbin/condor_starter", args: []string{"condor_starter", "-a", "slot2_4"}})
	f.add(proc{pid: 1511, parent: 1510, comm: "prepare", uid: 1001}) // its startd was killed
	f.add(proc{pid: 1520, parent: 1100, comm: "condor_starter", exe: "/usr/sbin/condor_starter", args: []string{"condor_starter", "-a", "slot2_5"}})
	f.add(proc{pid: 1521, parent: 1520, comm: "prepare", uid: 1001}) // below a starter that is no startd's
	f.add(proc{pid: 1530, parent: 900, comm: "condor_starter", exe: "/opt/writable/condor_starter", args: []string{"condor_starter", "-a", "slot2_6"}})
	f.add(proc{pid: 1531, parent: 1530, comm: "prepare", uid: 1001})
	if err := os.Chmod(f.program("/opt/writable/condor_starter"), 0o775); err != nil {
		t.Fatal(err)
	}
	f.add(proc{pid: 1600, parent: 900, comm: "condor_starter", exe: "/usr/sbin/condor_starter", args: []string{"condor_starter", "-f", "-classad"}})
	for pid, args := range map[int][]string{1610: {"-slot-name", "slot3_1"}, 1620: {"-a", "12.0", "-slot-name", "slot3_2"}, 1630: {"-a", "12.0"}} {
		f.add(proc{pid: pid, parent: 900, comm: "condor_starter", exe: "/usr/sbin/condor_starter", args: append([]string{"condor_starter", "-f"}, args...)})
		f.add(proc{pid: pid + 1, parent: pid, comm: "prepare", uid: 1001})
	}
	f.add(proc{pid: 1601, parent: 1600, comm: "prepare", uid: 1001}) // a starter without a slot
	for pid := 2000; pid < 2000+maxAncestors+1; pid++ {
		f.add(proc{pid: pid, parent: pid - 1, comm: "sh", uid: 1000})
	}
	f.add(proc{pid: 1999, parent: 1000, comm: "sh", uid: 1000})

	for _, tt := range []struct {
		name string
		pid  int
		want Caller
		err  string
	}{
		{"hook", 1001, Caller{Hook: true, Starter: s}, ""},
		{"chained hook", 1003, Caller{Hook: true, Starter: s}, ""},
		{"job", 1010, Caller{Starter: s}, ""},
		{"child of a job", 1011, Caller{Starter: s}, ""},
		{"daemonised job", 1012, Caller{Starter: Starter{Slot: "slot1_1@wn1.example.org"}}, ""},
		{"cgroup and starter disagree", 1013, Caller{}, "slot7_7"},
		{"program of STARTD_CRON", 1100, Caller{}, "runs in no slot"},
		{"login", 1200, Caller{}, "runs in no slot"},
		{"starter of a user", 1301, Caller{}, "as uid 4711"},
		{"other program named starter", 1401, Caller{}, "runs in no slot"},
		{"starter whose startd was killed", 1511, Caller{Hook: true, Starter: Starter{ID: process.ID{PID: 1510, Started: 151000}, Slot: "slot2_4"}}, ""},
		{"starter of no startd", 1521, Caller{}, "its parent 1100 is no condor_startd"},
		{"starter that others can change", 1531, Caller{}, "chmod go-w"},
		{"upgraded starter", 1501, Caller{Hook: true, Starter: Starter{ID: process.ID{PID: 1500, Started: 150000}, Slot: "slot2_3"}}, ""},
		{"starter without slot", 1601, Caller{}, "the slot of a condor_starter is not known"},
		{"starter whose log is not named by its slot", 1611, Caller{Hook: true, Starter: Starter{ID: process.ID{PID: 1610, Started: 161000}, Slot: "slot3_1"}}, ""},
		{"starter whose log is named by its job", 1621, Caller{Hook: true, Starter: Starter{ID: process.ID{PID: 1620, Started: 162000}, Slot: "slot3_2"}}, ""},
		{"such a starter before 24.0.1", 1631, Caller{}, "the slot of a condor_starter is not known"},
		{"too deep", 2000 + maxAncestors, Caller{}, "runs in no slot"},
		{"gone", 99999, Caller{}, "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := f.fs().identify(1000, tt.pid, rootsOwn)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error = %v, want %q in it", err, tt.err)
				}
				return
			}
			tt.want.UID, tt.want.PID = 1000, tt.pid
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
	t.Run("below the startd", func(t *testing.T) {
		for pid, want := range map[int]bool{1100: true, 1001: false, 1010: false, 1012: false, 1200: false, 1301: false} {
			if got := f.fs().belowStartd(pid, rootsOwn); got != want {
				t.Errorf("belowStartd(%d) = %v, want %v", pid, got, want)
			}
		}
	})
	t.Run("personal pool", func(t *testing.T) {
		// There the agent trusts its own account's starters, but not any program.
		if _, err := f.fs().identify(1000, 1301, starterUID(4711)); err != nil {
			t.Errorf("its own starter: %v", err)
		}
		if _, err := f.fs().identify(1000, 1301, starterUID(4712)); !errors.Is(err, errNoSlot) {
			t.Errorf("another account's starter: %v", err)
		}
	})
}

// TestNamesOfAJob: what a job calls its processes, its programs and their arguments
// changes nothing: it is below the node's starter, and its cgroup is found.
func TestNamesOfAJob(t *testing.T) {
	const user = 4711
	forged := []string{"condor_starter", "-f", "-a", "slot9_9", "x"}
	for name, line := range map[string][]proc{
		"a thread's name":        {{comm: "condor_starter", exe: "/usr/bin/python3"}},
		"a program of its own":   {{comm: "condor_starter", exe: "/home/mallory/condor_starter", args: forged}},
		"HTCondor's own program": {{comm: "condor_starter", exe: "/usr/sbin/condor_starter", args: forged}},
		"a startd":               {{comm: "condor_startd", exe: "/usr/sbin/condor_startd"}},
		"a pilot": {{comm: "glidein", exe: "/usr/bin/bash"}, {comm: "condor_startd", exe: "/usr/sbin/condor_startd"},
			{comm: "condor_starter", exe: "/usr/sbin/condor_starter", args: forged}, {comm: "payload", exe: "/usr/bin/python3"}},
	} {
		for _, own := range []uint32{uint32(os.Getuid()), user} { // of root, and a personal pool's
			t.Run(fmt.Sprintf("%s, agent %d", name, own), func(t *testing.T) {
				f := newFakeProc(t)
				s, trusted := f.starter(1000, "slot1_1"), starterUID(own)
				last := s.PID
				for _, p := range line {
					p.pid, p.parent, p.uid, p.cgroup = last+1, last, user, cgroupOf("slot1_1")
					f.add(p)
					last = p.pid
				}
				if leaf := newBooks(f.fs(), newFakeDoors()).jobCgroup(s, trusted); leaf != cgroupOf("slot1_1") {
					t.Errorf("the job's cgroup is %q", leaf)
				}
				if c, err := f.fs().identify(user, last, trusted); err != nil || c.Starter != s || c.Hook {
					t.Errorf("its last process is taken for %+v, %v", c, err)
				}
				if f.fs().belowStartd(last, trusted) {
					t.Error("it is taken for a program of the startd's")
				}
				// In the hook's place, where no cgroup names the slot.
				f.add(proc{pid: last + 1, parent: last, comm: "nvidia-cuda-mps", uid: user})
				if c, err := f.fs().identify(user, last+1, trusted); err != nil || c.Starter != s || !c.Hook {
					t.Errorf("a process in no cgroup is taken for %+v, %v", c, err)
				}
				if f.fs().belowStartd(last+1, trusted) {
					t.Error("a process in no cgroup is taken for the startd's")
				}
				if found := (&starters{}).news(f.fs(), trusted, time.Now()); len(found) != 1 || found[0] != s {
					t.Errorf("the starters of the node are %+v", found)
				}
				if names := f.fs().startds(trusted); len(names) != 0 {
					t.Errorf("the GPUs' startds are %v", names)
				}
			})
		}
	}
}

func TestAlive(t *testing.T) {
	f := newFakeProc(t)
	s := f.starter(1000, "slot1_1")
	if !f.fs().Runs(s.ID) {
		t.Error("a running starter counts as dead")
	}
	if f.fs().Runs(process.ID{PID: s.PID, Started: s.Started + 1}) {
		t.Error("a reused pid counts as the same process")
	}
	f.add(proc{pid: 1000, parent: 900, comm: "condor_starter", state: "Z"})
	if f.fs().Runs(s.ID) {
		t.Error("a zombie counts as alive")
	}
	f.end(1000)
	if f.fs().Runs(s.ID) {
		t.Error("nothing counts as alive")
	}
}

func TestSameSlot(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"slot1_1", "slot1_1@wn1", true},
		{"slot1_1", "slot1_10@wn1", false},
		{"slot1_1@gpu0", "slot1_1@gpu0@wn1", true},
		{"slot1_1@gpu0", "slot1_1@gpu1@wn1", false},
		{"slot1_1@wn1", "slot1_1@wn1", true},
		{"slot1", "slot1_1", false},
	} {
		if got := sameSlot(tt.a, tt.b); got != tt.want {
			t.Errorf("sameSlot(%q, %q) = %v", tt.a, tt.b, got)
		}
		if got := sameSlot(tt.b, tt.a); got != tt.want {
			t.Errorf("sameSlot(%q, %q) = %v", tt.b, tt.a, got)
		}
	}
}

// arguments are those of a command line as /proc shows it.
func arguments(cmdline []byte) []string {
	return strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
}

// FuzzStarterArgs: an accepted slot is one whole argument behind its flag.
func FuzzStarterArgs(f *testing.F) {
	f.Add([]byte("condor_starter\x00-f\x00-local-name\x00slot_type_101\x00-a\x00slot1_1\x00submit.example.org\x00"))
	f.Add([]byte("condor_starter\x00-a\x00"))
	f.Add([]byte("-a\x00slot1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		slot, err := parseStarterArgs(arguments(b))
		if err != nil {
			return
		}
		if !slotName.MatchString(slot) || !strings.Contains(string(b), "\x00-a\x00"+slot) && !strings.Contains(string(b), "\x00-slot-name\x00"+slot) {
			t.Errorf("parseStarterArgs(%q) = %q", b, slot)
		}
	})
}

// TestReusedPID: before Linux 6.5 nothing but the account tells that another process
// has the caller's PID.
func TestReusedPID(t *testing.T) {
	f := newFakeProc(t)
	s := f.starter(1000, "slot1_7")
	f.add(proc{pid: 1010, parent: s.PID, comm: "job", uid: 1000, cgroup: cgroupOf(s.Slot)})
	f.add(proc{pid: 1100, parent: startdPID, comm: "monitor", uid: 64})
	const noPidfd = -1
	if c, err := f.fs().identifyHeld(noPidfd, peer{uid: 4711, pid: 1010}, rootsOwn); err == nil {
		t.Errorf("uid 4711 passes for %+v", c)
	}
	if c, err := f.fs().identifyHeld(noPidfd, peer{uid: 1000, pid: 1010}, rootsOwn); err != nil || c.Starter != s {
		t.Errorf("the job itself: %+v, %v", c, err)
	}
	if f.fs().peerBelowStartd(peer{uid: 4711, pid: 1100}, rootsOwn) || !f.fs().peerBelowStartd(peer{uid: 64, pid: 1100}, rootsOwn) {
		t.Error("who is the startd's own program goes by the PID alone")
	}
}

// TestPeerThatEnded: what /proc says of a number is no word about a caller that is gone.
func TestPeerThatEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if at := os.Getenv("AGENT_TEST_CONNECT"); at != "" { // the caller, see below
		if _, err := (&net.Dialer{}).DialContext(t.Context(), "unix", at); err != nil {
			t.Fatal(err)
		}
		return
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	caller := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPeerThatEnded$")
	caller.Env = append(os.Environ(), "AGENT_TEST_CONNECT="+path)
	if err := caller.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p, err := peerOf(conn.(*net.UnixConn))
	if err != nil || p.pid != caller.Process.Pid {
		t.Fatal(p, err)
	}
	f := newFakeProc(t)
	f.starter(1000, "slot1_1")
	f.add(proc{pid: p.pid, parent: 1000, comm: "prepare"}) // another one has its number
	if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatal(n, err)
	}
	if fd, err := peerHandle(conn.(*net.UnixConn)); err == nil && fd < 0 {
		t.Skip("the kernel has no SO_PEERPIDFD (Linux 6.5)")
	} else if err == nil {
		defer closeHandle(fd)
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != nil { // until it ended
			t.Fatal(err)
		}
	}
	if c, err := f.fs().identifyPeer(conn.(*net.UnixConn), p, rootsOwn); err == nil {
		t.Errorf("%+v", c)
	}
	if err := caller.Wait(); err != nil {
		t.Error(err)
	}
}
