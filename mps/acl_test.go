package mps

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// The attribute as the kernel documents it: version 2, then user::rwx,
// user:1000:--x, group::r-x, mask::r-x, other::---.
var documentedACL = []byte{
	2, 0, 0, 0,
	0x01, 0, 7, 0, 0xff, 0xff, 0xff, 0xff,
	0x02, 0, 1, 0, 0xe8, 3, 0, 0,
	0x04, 0, 5, 0, 0xff, 0xff, 0xff, 0xff,
	0x10, 0, 5, 0, 0xff, 0xff, 0xff, 0xff,
	0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
}

func TestACLForm(t *testing.T) {
	a := aclOfMode(0o750)
	a.users[1000] = aclSearch
	if got := a.encode(); !bytes.Equal(got, documentedACL) {
		t.Errorf("encoded %v, want %v", got, documentedACL)
	}
	if got, err := decodeACL(documentedACL); err != nil || !reflect.DeepEqual(got, a) {
		t.Errorf("decoded %+v, %v; want %+v", got, err, a)
	}
	// Without named entries there is no mask, as the kernel demands.
	if got := aclOfMode(0o750).encode(); len(got) != 4+3*aclEntrySize {
		t.Errorf("%d bytes", len(got))
	}
}

func TestACLRoundTrip(t *testing.T) {
	rights := rapid.Uint16Range(0, aclRights)
	named := rapid.MapOf(rapid.Uint32(), rights)
	rapid.Check(t, func(t *rapid.T) {
		want := acl{
			present: true, owner: rights.Draw(t, "owner"), group: rights.Draw(t, "group"), other: rights.Draw(t, "other"),
			mask: rights.Draw(t, "mask"), users: named.Draw(t, "users"), groups: named.Draw(t, "groups"),
		}
		if len(want.users)+len(want.groups) == 0 {
			want.mask = want.group
		}
		if got, err := decodeACL(want.encode()); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v became %+v, %v", want, got, err)
		}
	})
}

// FuzzDecodeACL: what is accepted can be written and read back.
func FuzzDecodeACL(f *testing.F) {
	f.Add(documentedACL)
	f.Add(aclOfMode(0o755).encode())
	f.Add([]byte{2, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeACL(b)
		if err != nil {
			return
		}
		if len(a.users)+len(a.groups) == 0 {
			a.mask = a.group
		}
		if again, err := decodeACL(a.encode()); err != nil || !reflect.DeepEqual(again, a) {
			t.Fatalf("%+v became %+v, %v", a, again, err)
		}
	})
}

func TestAdmit(t *testing.T) {
	dir := filepath.Join(tempDir(t), "d")
	if err := makeDirectory(dir); err != nil {
		t.Fatal(err)
	}
	want := func(uids ...uint32) {
		t.Helper()
		if got, err := Admitted(dir); err != nil || !slices.Equal(got, uids) {
			t.Fatalf("admitted %v, %v; want %v", got, err, uids)
		}
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o750 {
			t.Fatalf("mode %v, %v", st.Mode(), err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	want()
	must(Revoke(dir, 7)) // not admitted: nothing happens
	want()
	must(Admit(dir, 4711))
	must(Admit(dir, 30))
	must(Admit(dir, 4711))
	want(30, 4711)
	must(makeDirectory(dir)) // preparing it again shuts nobody out
	want(30, 4711)
	must(Revoke(dir, 4711))
	want(30)

	// A stranger's chmod takes the right from everyone; admission gives it back.
	must(os.Chmod(dir, 0o700))
	if got, err := Admitted(dir); err != nil || len(got) != 0 {
		t.Errorf("admitted %v, %v; want none under the mask", got, err)
	}
	must(Admit(dir, 31))
	if got, err := Admitted(dir); err != nil || !slices.Equal(got, []uint32{30, 31}) {
		t.Errorf("admitted %v, %v", got, err)
	}
	must(Revoke(dir, 30))
	must(Revoke(dir, 31))
	if _, err := unix.Getxattr(dir, aclAttribute, nil); err != unix.ENODATA {
		t.Errorf("the ACL remains: %v", err)
	}
}

func TestAdmitAtOnce(t *testing.T) {
	dir := tempDir(t)
	var wg sync.WaitGroup
	for i := range uint32(50) {
		wg.Go(func() {
			if err := Admit(dir, 1000+i); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got, err := Admitted(dir); len(got) != 50 || err != nil {
		t.Errorf("%d admitted, %v; want 50", len(got), err)
	}
}

func TestAdmitFaults(t *testing.T) {
	tmp := tempDir(t)
	link := filepath.Join(tmp, "link")
	if err := os.Symlink(tmp, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(tmp, "none"), link} {
		if err := Admit(dir, 1); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", dir, err)
		}
		if _, err := Admitted(dir); err == nil {
			t.Errorf("%s: no error", dir)
		}
	}
	if err := Admit("/proc/self", 1); err == nil {
		t.Error("/proc/self took an ACL")
	}
}

// TestGetfacl has the system's own tool read what we wrote.
func TestGetfacl(t *testing.T) {
	if _, err := exec.LookPath("getfacl"); err != nil {
		t.Skip("getfacl is not installed")
	}
	dir := tempDir(t)
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := Admit(dir, 4711); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "getfacl", "-cnp", dir).Output()
	want := "user::rwx\nuser:4711:--x\ngroup::r-x\nmask::r-x\nother::---\n\n"
	if string(out) != want || err != nil {
		t.Errorf("getfacl: %s, %v", out, err)
	}
}

// TestAccounts: with the real daemons, an admitted account reaches its daemon
// and can do nothing else in the directory; any other account finds no daemon;
// the server that is started for an account, with group 0, gets in.
func TestAccounts(t *testing.T) {
	needsRoot(t)
	const in, out = 4711, 4712
	onEachDriver(t, func(t *testing.T, r Processes) {
		report := filepath.Join(tempDir(t), "report")
		if err := os.WriteFile(report, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(report, 0o666); err != nil {
			t.Fatal(err)
		}
		server := strings.Replace(fakeServer, "#!/bin/sh\n", "#!/bin/sh\nFAKE_REPORT="+report+"\n", 1)
		writeProgram(t, filepath.Join(r.ServerPath, "nvidia-cuda-mps-server"), server)
		d := started(t, r)
		if err := Admit(d.dir, in); err != nil {
			t.Fatal(err)
		}
		env := []string{"CUDA_MPS_PIPE_DIRECTORY=" + d.dir}
		ask := func(uid, gid uint32) string {
			text, _ := as(t, uid, gid, env, "get_default_active_thread_percentage\n", r.Program)
			return strings.TrimSpace(text)
		}
		if got := ask(in, in); got != "100.0" {
			t.Errorf("admitted account: %q", got)
		}
		if got := ask(in, 0); got != "100.0" {
			t.Errorf("admitted account with group 0: %q", got)
		}
		if got := ask(out, out); got != "Cannot find MPS control daemon process" {
			t.Errorf("other account: %q", got)
		}
		for _, act := range []string{
			"touch $D/x", "mkdir $D/x", "rm -f $D/control", "mv $D/control $D/x", "ls $D", "chmod 777 $D",
			": >>$D/" + turnFile, "ln -s /tmp $D/x",
		} {
			if text, err := as(t, in, in, []string{"D=" + d.dir}, "", "sh", "-c", act); err == nil {
				t.Errorf("an admitted account could %s: %s", act, text)
			}
		}
		if text, _ := as(t, in, in, env, fmt.Sprintf("start_server -uid %d\n", in), r.Program); text != "" {
			t.Errorf("start_server: %q", text)
		}
		eventually(t, "the server reports", func() bool {
			b, _ := os.ReadFile(report)
			return strings.Contains(string(b), "reached")
		})
		if b, _ := os.ReadFile(report); string(b) != fmt.Sprintf("%d\n0\nreached\n", in) {
			t.Errorf("the server has uid, gid, reach: %q", b)
		}
		if err := Revoke(d.dir, in); err != nil {
			t.Fatal(err)
		}
		if got := ask(in, in); got != "Cannot find MPS control daemon process" {
			t.Errorf("revoked account: %q", got)
		}
	})
}

// keeperEnv makes the test binary connect to the socket that is its descriptor 3.
const keeperEnv = "GPUSLOT_MPS_KEEPER"

func keeper() int {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: "/proc/self/fd/3"})
	}
	fmt.Println(err)
	return 0
}

// TestKeptDescriptor: an account that kept a descriptor of the real daemons' socket can
// connect through it while it is admitted, and not after, whoever else is.
func TestKeptDescriptor(t *testing.T) {
	needsRoot(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	exe = publicCopy(t, exe)
	const first, second = 4711, 4712
	onEachDriver(t, func(t *testing.T, r Processes) {
		d := started(t, r)
		keep := func() *os.File {
			f, err := os.OpenFile(filepath.Join(d.dir, "control"), unix.O_PATH, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			return f
		}
		want := func(when string, kept *os.File, uid uint32, want string) {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), exe)
			cmd.Env, cmd.Dir, cmd.ExtraFiles = []string{keeperEnv + "=1"}, "/", []*os.File{kept}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			if out, err := cmd.CombinedOutput(); strings.TrimSpace(string(out)) != want || err != nil {
				t.Errorf("%s: uid %d connects: %s, %v; want %s", when, uid, out, err, want)
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		env := []string{"CUDA_MPS_PIPE_DIRECTORY=" + d.dir}
		answers := func(when string, uid uint32) {
			t.Helper()
			eventually(t, fmt.Sprintf("%s: uid %d gets an answer", when, uid), func() bool {
				text, _ := as(t, uid, uid, env, "get_default_active_thread_percentage\n", r.Program)
				return strings.TrimSpace(text) == "100.0"
			})
			exchange(t, d, "get_server_list")
		}
		const in, out = "<nil>", "permission denied"

		before := keep() // as of a daemon that an agent from before had opened
		must(Restrict(d.dir))
		want("nobody is admitted", before, first, out)
		must(Admit(d.dir, first))
		kept := keep()
		want("admitted", kept, first, in)
		answers("admitted", first)
		must(Revoke(d.dir, first))
		want("revoked", kept, first, out)
		must(Admit(d.dir, second))
		want("another account is admitted", kept, first, out)
		answers("another account is admitted", second)
		must(Admit(d.dir, first))
		answers("admitted again", first)
		answers("the first is in, too", second)
		must(Revoke(d.dir, second))

		// systemd starts a dead daemon again in the same directory: its files are new.
		signal(t, alive(t, d), syscall.SIGKILL)
		must(r.Start(t.Context(), uuid0))
		answers("a new daemon", first)
		kept = keep()
		must(Restrict(d.dir))
		answers("its files are restricted", first)
		must(Revoke(d.dir, first))
		want("revoked from the new daemon", kept, first, out)
		entries, err := os.ReadDir(d.dir)
		must(err)
		for _, e := range entries {
			if st, err := e.Info(); err != nil || st.Mode().Perm()&0o002 != 0 {
				t.Errorf("%s has mode %v, %v", e.Name(), st.Mode(), err)
			}
		}
	})
}

// TestRestrict: what everybody may do with a file is for the admitted accounts alone,
// and comes back with them; a file of the owner's and what a link names stay.
func TestRestrict(t *testing.T) {
	tmp := tempDir(t)
	dir := filepath.Join(tmp, "d")
	if err := makeDirectory(dir); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(tmp, "outside")
	for path, mode := range map[string]os.FileMode{
		filepath.Join(dir, "open"): 0o666, filepath.Join(dir, "readable"): 0o644,
		filepath.Join(dir, turnFile): 0o600, outside: 0o666,
	} {
		if err := errors.Join(os.WriteFile(path, nil, mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	// As a daemon that starts has made its socket, a moment before it opens it.
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	chmod := func(mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.Chmod(filepath.Join(dir, "socket"), mode), Restrict(dir)); err != nil {
			t.Fatal(err)
		}
	}
	chmod(0o755)
	if st, err := os.Lstat(filepath.Join(dir, "socket")); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("a socket that others cannot write has mode %v, %v", st.Mode(), err)
	}
	chmod(0o666)
	if st, err := os.Lstat(filepath.Join(dir, "socket")); err != nil || st.Mode().Perm() != 0o660 {
		t.Errorf("a socket that others can write has mode %v, %v", st.Mode(), err)
	}
	rights := func(name string) acl {
		t.Helper()
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		a, err := readACL(f)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := f.Stat(); err == nil && !a.present {
			a = aclOfMode(uint16(st.Mode().Perm()))
		}
		return a
	}
	for _, step := range []struct {
		do    func() error
		users []uint32
	}{
		{func() error { return Restrict(dir) }, nil},
		{func() error { return Admit(dir, 4711) }, []uint32{4711}},
		{func() error { return Admit(dir, 30) }, []uint32{30, 4711}},
		{func() error { return os.Chmod(filepath.Join(dir, "open"), 0o666) }, []uint32{30, 4711}},
		{func() error { return Restrict(dir) }, []uint32{30, 4711}},
		{func() error { return Revoke(dir, 4711) }, []uint32{30}},
		{func() error { return Revoke(dir, 30) }, nil},
		{func() error { return Admit(dir, 31) }, []uint32{31}},
	} {
		if err := errors.Join(step.do(), Restrict(dir)); err != nil {
			t.Fatal(err)
		}
		for name, right := range map[string]uint16{"open": 6, "readable": 4} {
			want := aclOfMode(0o600 | right<<3)
			for _, uid := range step.users {
				want.users[uid] = right
			}
			if got := rights(name); !reflect.DeepEqual(got, want) {
				t.Errorf("%v: %s has %+v, want %+v", step.users, name, got, want)
			}
		}
		for name, mode := range map[string]uint16{turnFile: 0o600, "link": 0o666} {
			if got := rights(name); !reflect.DeepEqual(got, aclOfMode(mode)) {
				t.Errorf("%v: %s has %+v", step.users, name, got)
			}
		}
	}
	if err := Restrict(filepath.Join(tmp, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}
