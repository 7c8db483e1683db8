package mps

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
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
