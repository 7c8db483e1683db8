package doctor

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
)

// testFolder is a folder of an account that is not root's.
func testFolder(t *testing.T) userFolder {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run programs as another account")
	}
	f, err := newUserFolder(t.Context(), &user.User{Uid: "65534", Gid: "65534", Username: "nobody", HomeDir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.remove(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return f
}

// The user can put links into the folder at any moment. Root follows none.
func TestUserFolderLinks(t *testing.T) {
	f := testFolder(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"job.sh", "out"} {
		if err := os.Symlink(secret, filepath.Join(f.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.write(t.Context(), "job.sh", "mallory's"); err == nil {
		t.Error("a file was written through a link")
	}
	if text, err := os.ReadFile(secret); string(text) != "root's" || err != nil {
		t.Errorf("root's file is %q, %v", text, err)
	}
	if said, err := f.run(t.Context(), "", "cat", "out"); err == nil {
		t.Errorf("root's file was read: %q", said)
	}
}

func TestUserFolderPrograms(t *testing.T) {
	f := testFolder(t)
	if err := f.write(t.Context(), "job.sh", "#!/bin/sh\nid -u; id -G\n"); err != nil {
		t.Fatal(err)
	}
	if said, err := f.run(t.Context(), "", "./job.sh"); said != "65534\n65534\n" || err != nil {
		t.Errorf("the program runs as %q, %v", said, err)
	}
	// Field 6 is the session, field 1 the pid: it leads its own, without root's terminal.
	said, err := f.run(t.Context(), "", "sh", "-c", "cut -d' ' -f1,6,7 /proc/$$/stat")
	if fields := strings.Fields(said); err != nil || len(fields) != 3 || fields[0] != fields[1] || fields[2] != "0" {
		t.Errorf("pid, session, terminal are %q, %v", said, err)
	}
	said, err = f.run(t.Context(), "", "sh", "-c", "head -c 1000000 /dev/zero")
	if len(said) != mostOfUser || err != nil {
		t.Errorf("%d bytes, %v", len(said), err)
	}
	info, err := os.Lstat(f.dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}
