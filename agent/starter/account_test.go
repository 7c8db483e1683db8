package starter

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// TestAccountsOfSlots: the kernel says whose a job is, and the owner's name where it has no process yet.
func TestAccountsOfSlots(t *testing.T) {
	f := newFakeProc(t)
	inCgroup, below, byName, nobody := f.starter(100, "slot1_1"), f.starter(101, "slot1_2"), f.starter(102, "slot1_3"), f.starter(103, "slot1_4")
	f.Add(proctree.Process{PID: 200, Parent: 1, Comm: "job", UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")})
	f.Add(proctree.Process{PID: 201, Parent: 101, Comm: "prepare", UID: 1001})
	f.Add(proctree.Process{PID: 202, Parent: 102, Comm: "condor_starter"}) // a root child says nothing
	me, err := user.Current()
	if err != nil {
		t.Skip("no account database")
	}
	find := f.fs().JobAccounts(t.Context(), []condor.Slot{{Name: "slot1_3@x", RemoteOwner: me.Username + "@x"}, {Name: "slot1_4@x", RemoteOwner: "no-such-account-anywhere@x"}})
	for _, tt := range []struct {
		s     Starter
		owner string
		want  Account
	}{
		{inCgroup, "", Account{1000, true}},
		{below, "", Account{1001, true}},
		{byName, me.Username, Account{uint32(os.Getuid()), true}},
		{nobody, "no-such-account-anywhere", Account{}},
	} {
		if got := find(tt.s, condor.Slot{RemoteOwner: tt.owner + "@x"}); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.s.Slot, got, tt.want)
		}
	}
}

// TestAccountOfANamespace: an account of a job's own user namespace is not the job's.
func TestAccountOfANamespace(t *testing.T) {
	f := newFakeProc(t)
	s := f.starter(100, "slot1_1")
	f.Add(proctree.Process{PID: 200, Parent: 100, Comm: "job", UID: 1000})
	f.Add(proctree.Process{PID: 201, Parent: 100, Comm: "fakeroot", UID: 100000, Cgroup: proctree.CgroupOf("slot1_1")})
	f.Add(proctree.Process{PID: 202, Parent: 1, Comm: "fakeroot", UID: 100001, Cgroup: proctree.CgroupOf("slot1_1")})
	for pid, namespace := range map[string]string{"self": "user:[1]", "200": "user:[1]", "201": "user:[2]", "202": "user:[2]"} {
		link := filepath.Join(f.Root, pid, "ns", "user")
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(namespace, link)); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.fs().JobAccounts(t.Context(), nil)(s, condor.Slot{}); got != (Account{1000, true}) {
		t.Errorf("the job's account is %+v", got)
	}
}

// TestOrigin: a process that began before a starter, as another account, is none of its job.
func TestOrigin(t *testing.T) {
	f := newFakeProc(t)
	s := f.starter(100, "slot1_1")
	before, after := s.Started-1, s.Started
	f.Add(proctree.Process{PID: 200, Parent: 1, Comm: "left", UID: 1001, Started: before})
	f.Add(proctree.Process{PID: 201, Parent: 1, Comm: "left", UID: 1000, Started: before})
	f.Add(proctree.Process{PID: 202, Parent: 1, Comm: "setuid", UID: 100000, Started: after})
	for pid, want := range map[int]bool{200: true, 201: false, 202: false, 203: false} {
		if got := f.fs().OriginOf(pid).Before(s, Account{1000, true}); got != want {
			t.Errorf("%d began before the starter, as another: %v", pid, got)
		}
	}
	if f.fs().OriginOf(200).Before(s, Account{}) {
		t.Error("the job's account is not known, and differs")
	}
}

// TestAccountBesideALeftover: a process that an earlier job left in the slot's cgroup, whether
// it is older than the starter or not, does not lend its account to the slot's job.
func TestAccountBesideALeftover(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Skip("no account database")
	}
	for name, c := range map[string]struct {
		job   []proctree.Process
		owner string
		left  uint64 // when the leftover began
		want  Account
	}{
		"a job":               {[]proctree.Process{{PID: 200, Parent: 100, UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")}}, "", 900, Account{1000, true}},
		"before its cgroup":   {[]proctree.Process{{PID: 200, Parent: 100, UID: 1000}}, "", 900, Account{1000, true}},
		"below a root child":  {[]proctree.Process{{PID: 200, Parent: 100}, {PID: 201, Parent: 200, UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")}}, "", 900, Account{1000, true}},
		"beside its transfer": {[]proctree.Process{{PID: 199, Parent: 100, UID: 1000, Cgroup: proctree.CgroupOf("slot1_1")}, {PID: 200, Parent: 100, UID: 64}}, "", 900, Account{1000, true}},
		"before it starts":    {nil, me.Username, 900, Account{uint32(os.Getuid()), true}},
		"of an unknown owner": {nil, "no-such-account-anywhere", 50, Account{}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeProc(t)
			s := f.starter(100, "slot1_1")
			for _, p := range c.job {
				p.Comm = "job"
				f.Add(p)
			}
			for _, pid := range []int{90, 990} {
				f.Add(proctree.Process{PID: pid, Parent: 1, Comm: "left", UID: 2000, Started: c.left, Cgroup: proctree.CgroupOf("slot1_1")})
			}
			ad := condor.Slot{Name: "slot1_1@x", RemoteOwner: c.owner + "@x"}
			if got := f.fs().JobAccounts(t.Context(), []condor.Slot{ad})(s, ad); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestAccountsThatTheKernelKeeps: where the kernel does not say where the processes of one account are, those of another
// account are known, and the look ends. Of the others few are read, and none after it. Pipes stand for their files.
func TestAccountsThatTheKernelKeeps(t *testing.T) {
	f := newFakeProc(t)
	s, ad := f.starter(100, "slot1_1"), condor.Slot{Name: "slot1_1@x"}
	f.Add(proctree.Process{PID: 900, Parent: 1, Comm: "job", UID: 1001, Started: 1000, Cgroup: proctree.CgroupOf("slot1_1")})
	var pipes []string
	for pid := 200; pid < 240; pid++ {
		f.Add(proctree.Process{PID: pid, Parent: 1, Comm: "churn", UID: 2000})
		file := filepath.Join(f.Root, strconv.Itoa(pid), "cgroup")
		if err := errors.Join(os.Remove(file), unix.Mkfifo(file, 0o600)); err != nil {
			t.Fatal(err)
		}
		pipes = append(pipes, file)
	}
	if got := f.fs().JobAccounts(t.Context(), []condor.Slot{ad})(s, ad); got != (Account{1001, true}) {
		t.Errorf("beside them: %+v", got)
	}
	read := 0
	for _, file := range pipes {
		w, err := os.OpenFile(file, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil { // it is being read
			read++
			err = w.Close()
		} else if errors.Is(err, unix.ENXIO) {
			err = nil
		}
		if err != nil {
			t.Error(err)
		}
	}
	if read == 0 || read > 4 {
		t.Errorf("%d of 40 files are being read", read)
	}
}

// TestAccountsAnsweredLate: the kernel answers each read of users' processes within the time of one read. Those of one
// account are read for 2 s, and for 8 s those of all. So no more are read than that many answers, of at least 40 ms each.
func TestAccountsAnsweredLate(t *testing.T) {
	t.Parallel()
	const (
		late    = 40 * time.Millisecond
		of, all = 2*time.Second/late + 1, 8*time.Second/late + 1
	)
	f := newFakeProc(t)
	texts, pipes := map[string]string{}, []string{}
	for uid := range 6 {
		for k := range int(of) + 10 {
			pid := 1000*(uid+1) + k
			f.Add(proctree.Process{PID: pid, Parent: 1, Comm: "churn", UID: uint32(5000 + uid)})
			pipe := filepath.Join(f.Root, strconv.Itoa(pid), "stat")
			text, err := os.ReadFile(pipe)
			if err := errors.Join(err, os.Remove(pipe), unix.Mkfifo(pipe, 0o600)); err != nil {
				t.Fatal(err)
			}
			pipes, texts[pipe] = append(pipes, pipe), string(text)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.fs().JobAccounts(t.Context(), nil)
	}()
	read, each := 0, len(pipes)/6
	for over := false; !over; {
		select {
		case <-ended:
			over = true
		case <-time.After(time.Millisecond):
		}
		for i, pipe := range pipes {
			if texts[pipe] == "" {
				continue
			}
			reader, err := os.OpenFile(pipe, os.O_WRONLY|unix.O_NONBLOCK, 0)
			if err != nil {
				continue // it has no reader
			}
			time.Sleep(late)
			if err := errors.Join(proctree.AnswerPipe(pipe, texts[pipe]), reader.Close()); err != nil {
				t.Error(err)
			}
			delete(texts, pipe)
			if read++; i%each >= int(of) {
				t.Errorf("process %d of account %d was read", i%each+1, 5000+i/each)
			}
		}
	}
	if read == 0 || read > int(all) {
		t.Errorf("%d processes were read of %d", read, len(pipes))
	}
}
