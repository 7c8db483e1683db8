package access

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/mps"
)

// TestDirectoriesThatAreGone: who has access to nothing is shut out already. Any other error is one.
func TestDirectoriesThatAreGone(t *testing.T) {
	root := t.TempDir()
	d := PipeDirectories{root}
	if err := d.Revoke(uuid(0), 1000); err != nil {
		t.Errorf("shut out of what is gone: %v", err)
	}
	if err := d.Restrict(uuid(0)); err != nil {
		t.Errorf("files of what is gone: %v", err)
	}
	if err := d.Admit(uuid(0), 1000); err == nil {
		t.Error("let into what is gone")
	}
	file := filepath.Join(root, string(uuid(1))) // what is no directory
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"revoke": d.Revoke(uuid(1), 1000), "restrict": d.Restrict(uuid(1)), "admit": d.Admit(uuid(1), 1000)} {
		if err == nil {
			t.Errorf("%s in a file", what)
		}
	}
	if all, err := d.Admitted(); len(all) > 0 || err == nil {
		t.Errorf("of a file: %v, %v", all, err)
	}
	bad := PipeDirectories{"relative"}
	for what, err := range map[string]error{"revoke": bad.Revoke(uuid(1), 1000), "restrict": bad.Restrict(uuid(1))} {
		if err == nil {
			t.Errorf("%s below no full path", what)
		}
	}
}

// TestWhoWasAdmitted: an account is in until it is shut out, and in no other directory.
func TestWhoWasAdmitted(t *testing.T) {
	d := PipeDirectories{t.TempDir()}
	for _, u := range []gpu.UUID{uuid(0), uuid(1)} {
		dir, err := mps.PipeDirectory(d.Root, u)
		if err == nil {
			err = os.Mkdir(dir, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Admit(uuid(0), 1000); err != nil {
		t.Skipf("no ACLs here: %v", err)
	}
	if all, err := d.Admitted(); err != nil || !slices.Equal(all, []Entry{{uuid(0), 1000}}) {
		t.Errorf("%v, %v", all, err)
	}
	if err := d.Restrict(uuid(0)); err != nil {
		t.Error(err)
	}
	if err := d.Revoke(uuid(0), 1000); err != nil {
		t.Error(err)
	}
	if all, err := d.Admitted(); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// failing are directories, from one of which no account can be taken.
type failing struct {
	*fakeDirectories
	stays gpu.UUID
}

func (d failing) Revoke(u gpu.UUID, uid uint32) error {
	if u == d.stays {
		return os.ErrPermission
	}
	return d.fakeDirectories.Revoke(u, uid)
}

// TestSweepGoesOn: a directory that does not close keeps no other one open, whichever comes first.
func TestSweepGoesOn(t *testing.T) {
	for stays := range 3 {
		d := failing{&fakeDirectories{in: map[Entry]bool{}}, uuid(stays)}
		l := NewList(d, nil)
		for i := range 3 {
			if err := l.Give(uuid(i), 1000); err != nil {
				t.Fatal(err)
			}
		}
		err := l.Sweep(noJob)
		for i := range 3 {
			if in := d.has(uuid(i), 1000); err == nil || in != (i == stays) {
				t.Errorf("%d stays open: GPU %d is open: %t, %v", stays, i, in, err)
			}
		}
	}
}
