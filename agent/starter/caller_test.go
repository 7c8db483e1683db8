package starter

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

	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

func TestIdentify(t *testing.T) {
	f := newFakeProc(t)
	s := f.starter(1000, "slot1_1")
	f.Add(proctree.Process{PID: 1001, Parent: 1000, Comm: "prepare", UID: 1000})                                                  // the hook
	f.Add(proctree.Process{PID: 1002, Parent: 1000, Comm: "sh", UID: 1000})                                                       // a site's hook …
	f.Add(proctree.Process{PID: 1003, Parent: 1002, Comm: "prepare", UID: 1000})                                                  // … that chains ours
	f.Add(proctree.Process{PID: 1010, Parent: 1000, Comm: "job) S 1 (x", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})        // the job, with a nasty name
	f.Add(proctree.Process{PID: 1011, Parent: 1010, Comm: "wrap", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})               // its child
	f.Add(proctree.Process{PID: 1012, Parent: 1, Comm: "daemonised", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})            // it left its parents
	f.Add(proctree.Process{PID: 1013, Parent: 1000, Comm: "job", UID: 1000, Cgroup: proctree.CgroupOf("slot7_7")})                // cgroup and starter disagree
	f.Add(proctree.Process{PID: 1100, Parent: 900, Comm: "monitor", UID: 64})                                                     // STARTD_CRON
	f.Add(proctree.Process{PID: 1200, Parent: 1, Comm: "bash", UID: 1000, Cgroup: "/user.slice/user-1000.slice/session-1.scope"}) // a login
	f.Add(proctree.Process{PID: 1299, Parent: 1, Comm: "condor_startd", Exe: "/home/alice/condor_startd", UID: 4711})
	f.Add(proctree.Process{PID: 1300, Parent: 1299, Comm: "condor_starter", Exe: "/home/alice/condor_starter", UID: 4711, Args: []string{"x", "-a", "slot1_9"}})
	f.Add(proctree.Process{PID: 1301, Parent: 1300, Comm: "prepare", UID: 1000}) // below a starter of alice's own
	f.Add(proctree.Process{PID: 1400, Parent: 900, Comm: "condor_starter", Exe: "/usr/bin/sudo", Args: []string{"x", "-a", "slot1_9"}})
	f.Add(proctree.Process{PID: 1401, Parent: 1400, Comm: "prepare", UID: 1000}) // below a root process with the name
	f.Add(proctree.Process{PID: 1500, Parent: 900, Comm: "condor_starter", Exe: "/usr/sbin/condor_starter (deleted)", Args: []string{"condor_starter", "-a", "slot2_3"}})
	f.Add(proctree.Process{PID: 1501, Parent: 1500, Comm: "prepare", UID: 1001}) // HTCondor was upgraded under it
	f.Add(proctree.Process{PID: 1510, Parent: 1, Comm: "condor_starter", Exe: "/usr/sbin/condor_starter", Args: []string{"condor_starter", "-a", "slot2_4"}})
	f.Add(proctree.Process{PID: 1511, Parent: 1510, Comm: "prepare", UID: 1001}) // its startd was killed
	f.Add(proctree.Process{PID: 1520, Parent: 1100, Comm: "condor_starter", Exe: "/usr/sbin/condor_starter", Args: []string{"condor_starter", "-a", "slot2_5"}})
	f.Add(proctree.Process{PID: 1521, Parent: 1520, Comm: "prepare", UID: 1001}) // below a starter that is no startd's
	f.Add(proctree.Process{PID: 1530, Parent: 900, Comm: "condor_starter", Exe: "/opt/writable/condor_starter", Args: []string{"condor_starter", "-a", "slot2_6"}})
	f.Add(proctree.Process{PID: 1531, Parent: 1530, Comm: "prepare", UID: 1001})
	if err := os.Chmod(f.Program("/opt/writable/condor_starter"), 0o775); err != nil {
		t.Fatal(err)
	}
	f.Add(proctree.Process{PID: 1600, Parent: 900, Comm: "condor_starter", Exe: "/usr/sbin/condor_starter", Args: []string{"condor_starter", "-f", "-classad"}})
	for pid, args := range map[int][]string{1610: {"-slot-name", "slot3_1"}, 1620: {"-a", "12.0", "-slot-name", "slot3_2"}, 1630: {"-a", "12.0"}} {
		f.Add(proctree.Process{PID: pid, Parent: 900, Comm: "condor_starter", Exe: "/usr/sbin/condor_starter", Args: append([]string{"condor_starter", "-f"}, args...)})
		f.Add(proctree.Process{PID: pid + 1, Parent: pid, Comm: "prepare", UID: 1001})
	}
	f.Add(proctree.Process{PID: 1601, Parent: 1600, Comm: "prepare", UID: 1001}) // a starter without a slot
	for pid := 2000; pid < 2000+maxAncestors+1; pid++ {
		f.Add(proctree.Process{PID: pid, Parent: pid - 1, Comm: "sh", UID: 1000})
	}
	f.Add(proctree.Process{PID: 1999, Parent: 1000, Comm: "sh", UID: 1000})

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
		{"starter whose startd was killed", 1511, Caller{Hook: true, Starter: Starter{ID: process.ID{PID: 1510, Started: proctree.StartOf(1510)}, Slot: "slot2_4"}}, ""},
		{"starter of no startd", 1521, Caller{}, "its parent 1100 is no condor_startd"},
		{"starter that others can change", 1531, Caller{}, "chmod go-w"},
		{"upgraded starter", 1501, Caller{Hook: true, Starter: Starter{ID: process.ID{PID: 1500, Started: proctree.StartOf(1500)}, Slot: "slot2_3"}}, ""},
		{"starter without slot", 1601, Caller{}, "the slot of a condor_starter is not known"},
		{"starter whose log is not named by its slot", 1611, Caller{Hook: true, Starter: Starter{ID: process.ID{PID: 1610, Started: proctree.StartOf(1610)}, Slot: "slot3_1"}}, ""},
		{"starter whose log is named by its job", 1621, Caller{Hook: true, Starter: Starter{ID: process.ID{PID: 1620, Started: proctree.StartOf(1620)}, Slot: "slot3_2"}}, ""},
		{"such a starter before 24.0.1", 1631, Caller{}, "the slot of a condor_starter is not known"},
		{"too deep", 2000 + maxAncestors, Caller{}, "runs in no slot"},
		{"gone", 99999, Caller{}, "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := f.fs().Identify(1000, tt.pid)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error = %v, want %q in it", err, tt.err)
				}
				return
			}
			tt.want.UID, tt.want.PID = 1000, tt.pid
			tt.want.Leaf, _ = f.fs().Leaf(tt.pid)
			cgroup, errCgroup := f.fs().unifiedCgroup(tt.pid)
			if tt.want.Cgroup = cgroup; err != nil || errCgroup != nil || got != tt.want {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
	t.Run("below the startd", func(t *testing.T) {
		for pid, want := range map[int]bool{1100: true, 1001: false, 1010: false, 1012: false, 1200: false, 1301: false} {
			if got := f.fs().belowStartd(pid); got != want {
				t.Errorf("belowStartd(%d) = %v, want %v", pid, got, want)
			}
		}
	})
	t.Run("personal pool", func(t *testing.T) {
		// There the agent trusts its own account's starters, but not any program.
		if _, err := f.of(4711).Identify(1000, 1301); err != nil {
			t.Errorf("its own starter: %v", err)
		}
		if _, err := f.of(4712).Identify(1000, 1301); !errors.Is(err, ErrNoSlot) {
			t.Errorf("another account's starter: %v", err)
		}
	})
}

// TestNamesOfAJob: what a job calls its processes, its programs and their arguments
// changes nothing: it is below the node's starter, and its cgroup is found.
func TestNamesOfAJob(t *testing.T) {
	const user = 4711
	forged := []string{"condor_starter", "-f", "-a", "slot9_9", "x"}
	for name, line := range map[string][]proctree.Process{
		"a thread's name":        {{Comm: "condor_starter", Exe: "/usr/bin/python3"}},
		"a program of its own":   {{Comm: "condor_starter", Exe: "/home/mallory/condor_starter", Args: forged}},
		"HTCondor's own program": {{Comm: "condor_starter", Exe: "/usr/sbin/condor_starter", Args: forged}},
		"a startd":               {{Comm: "condor_startd", Exe: "/usr/sbin/condor_startd"}},
		"a pilot": {{Comm: "glidein", Exe: "/usr/bin/bash"}, {Comm: "condor_startd", Exe: "/usr/sbin/condor_startd"},
			{Comm: "condor_starter", Exe: "/usr/sbin/condor_starter", Args: forged}, {Comm: "payload", Exe: "/usr/bin/python3"}},
	} {
		for _, own := range []uint32{uint32(os.Getuid()), user} { // of root, and a personal pool's
			t.Run(fmt.Sprintf("%s, agent %d", name, own), func(t *testing.T) {
				f := newFakeProc(t)
				s, node := f.starter(1000, "slot1_1"), f.of(own)
				last := s.PID
				for _, p := range line {
					p.PID, p.Parent, p.UID, p.Cgroup = last+1, last, user, proctree.CgroupOf("slot1_1")
					f.Add(p)
					last = p.PID
				}
				if leaf := node.JobCgroup(s); leaf != proctree.CgroupOf("slot1_1") {
					t.Errorf("the job's cgroup is %q", leaf)
				}
				if c, err := node.Identify(user, last); err != nil || c.Starter != s || c.Hook {
					t.Errorf("its last process is taken for %+v, %v", c, err)
				}
				if node.belowStartd(last) {
					t.Error("it is taken for a program of the startd's")
				}
				// In the hook's place, where no cgroup names the slot.
				f.Add(proctree.Process{PID: last + 1, Parent: last, Comm: "nvidia-cuda-mps", UID: user})
				if c, err := node.Identify(user, last+1); err != nil || c.Starter != s || !c.Hook {
					t.Errorf("a process in no cgroup is taken for %+v, %v", c, err)
				}
				if node.belowStartd(last + 1) {
					t.Error("a process in no cgroup is taken for the startd's")
				}
				if found, err := (&Arrivals{}).New(node, time.Now()); err != nil || len(found) != 1 || found[0] != s {
					t.Errorf("the starters of the node are %+v", found)
				}
				if names := node.Startds(); len(names) != 0 {
					t.Errorf("the GPUs' startds are %v", names)
				}
			})
		}
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
		if got := SameSlot(tt.a, tt.b); got != tt.want {
			t.Errorf("sameSlot(%q, %q) = %v", tt.a, tt.b, got)
		}
		if got := SameSlot(tt.b, tt.a); got != tt.want {
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
	f.Add(proctree.Process{PID: 1010, Parent: s.PID, Comm: "job", UID: 1000, Cgroup: proctree.CgroupOf(s.Slot)})
	f.Add(proctree.Process{PID: 1100, Parent: proctree.Startd, Comm: "monitor", UID: 64})
	const noPidfd = noHandle
	if c, err := f.fs().identifyHeld(noPidfd, Peer{UID: 4711, PID: 1010}); err == nil {
		t.Errorf("uid 4711 passes for %+v", c)
	}
	if c, err := f.fs().identifyHeld(noPidfd, Peer{UID: 1000, PID: 1010}); err != nil || c.Starter != s {
		t.Errorf("the job itself: %+v, %v", c, err)
	}
	if f.fs().PeerBelowStartd(Peer{UID: 4711, PID: 1100}) || !f.fs().PeerBelowStartd(Peer{UID: 64, PID: 1100}) {
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
	p, err := PeerOf(conn.(*net.UnixConn))
	if err != nil || p.PID != caller.Process.Pid {
		t.Fatal(p, err)
	}
	f := newFakeProc(t)
	f.starter(1000, "slot1_1")
	f.Add(proctree.Process{PID: p.PID, Parent: 1000, Comm: "prepare"}) // another one has its number
	if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatal(n, err)
	}
	if fd, err := peerHandle(conn.(*net.UnixConn)); err == nil && fd < 0 {
		t.Skip("the kernel has no SO_PEERPIDFD (Linux 6.5)")
	} else if err == nil {
		defer func() { _ = unix.Close(fd) }()
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != nil { // until it ended
			t.Fatal(err)
		}
	}
	if c, err := f.fs().IdentifyPeer(conn.(*net.UnixConn), p); err == nil || err.Error() != "the caller has ended" {
		t.Errorf("%+v, %v", c, err)
	}
	if err := caller.Wait(); err != nil {
		t.Error(err)
	}
}

// FuzzStartdArgs: a GPU's startd is one whose arguments say so.
func FuzzStartdArgs(f *testing.F) {
	f.Add([]byte("condor_startd\x00-f\x00-local-name\x00gpu5a1e0c11\x00-sock\x00startd_gpu5a1e0c11\x00"))
	f.Add([]byte("-local-name\x00gpu5a1e0c11"))
	f.Fuzz(func(t *testing.T, b []byte) {
		name := parseStartdArgs(arguments(b))
		if name != "" && (!condor.IsStartd(name) || !strings.Contains(string(b), "\x00-local-name\x00"+name)) {
			t.Errorf("parseStartdArgs(%q) = %q", b, name)
		}
	})
}

// BenchmarkIdentify is the way from a hook up to its starter in /proc.
func BenchmarkIdentify(b *testing.B) {
	f := newFakeProc(b)
	f.starter(1000, "slot1_1")
	f.Add(proctree.Process{PID: 1001, Parent: 1000, Comm: "prepare", UID: 1000})
	for b.Loop() {
		if _, err := f.fs().Identify(1000, 1001); err != nil {
			b.Fatal(err)
		}
	}
}

// unifiedCgroup is the cgroup of a process, below the mount of cgroup v2.
func (n Node) unifiedCgroup(pid int) (string, error) {
	text, err := n.cgroupText(pid)
	return unified(text), err
}
