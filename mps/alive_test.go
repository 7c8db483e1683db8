package mps

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/test/proctree"
)

// loop makes a file one that cannot be read, though it is there.
func loop(file string) error { return errors.Join(os.Remove(file), os.Symlink(file, file)) }

// TestDistrust: only what is seen of a process makes it another program. What cannot be read of it, also for a lack of
// descriptors, is an error, and says that it has ended only where that is so.
func TestDistrust(t *testing.T) {
	f := proctree.New(t)
	in := process.FS{Root: f.Root}
	program, status, exe := f.Program("/usr/bin/"+Program), in.Path(200, "status"), in.Path(200, "exe")
	wants := func(how, want string, failed, gone bool) {
		t.Helper()
		if why, err := distrust(in, 200); why != want || (err != nil) != failed || process.Gone(err) != gone {
			t.Errorf("%s: %q, %v", how, why, err)
		}
	}
	own := proctree.Process{PID: 200, Comm: "x", Exe: "/usr/bin/" + Program, UID: uint32(os.Geteuid())}
	changed := func(change func() error) {
		t.Helper()
		f.Add(own)
		if err := change(); err != nil {
			t.Fatal(err)
		}
	}
	changed(func() error { return nil })
	wants("the control program", "", false, false)
	proctree.WithoutDescriptors(t, func() { wants("without descriptors", "", true, false) })
	changed(func() error { return loop(status) })
	wants("the accounts cannot be read", "", true, false)
	changed(func() error { return errors.Join(os.Remove(exe), os.WriteFile(exe, nil, 0o600)) })
	wants("its program cannot be read", "", true, false)
	changed(func() error { return os.Remove(exe) })
	wants("its first thread has ended", "its program is not known", false, false)
	changed(func() error { return errors.Join(os.Remove(exe), os.Symlink(f.Program("/usr/bin/su"), exe)) })
	wants("another program", `its program is "su"`, false, false)
	for _, bit := range []uint32{unix.S_ISUID, unix.S_ISGID} { // a link of a job's, with the name of the control program
		changed(func() error { return unix.Chmod(program, bit|0o755) })
		wants("a setuid program of that name", "its program is setuid", false, false)
	}
	changed(func() error { return loop(program) })
	wants("its file cannot be looked at", "", true, false)
	other := own
	other.UID = 4711
	f.Add(other)
	wants("another account's", "it is of uid 4711", false, false)
	f.End(200)
	wants("it has ended", "", true, true)
}

// TestUnknownHolder: the holder of the lock is neither foreign nor gone while it cannot be looked at. One that has
// ended, and whose lock is there, is foreign.
func TestUnknownHolder(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d := NewDaemon(uuid0, tempDir(t), Program)
	lock := filepath.Join(d.dir, controlLock)
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defer steal(t, exe, lock, "posix", uint32(os.Geteuid()))()
	who, _, err := lockOwner(lock)
	if err != nil {
		t.Fatal(err)
	}
	defer func(was process.FS) { proc = was }(proc)
	f := proctree.New(t)
	proc.Root = f.Root
	for file, want := range map[string]Fault{"stat": Unwritable, "status": Unwritable, "": Foreign} {
		if f.Add(proctree.Process{PID: who, Comm: "x"}); file == "" {
			f.End(who)
		} else if err := loop(proc.Path(who, file)); err != nil {
			t.Fatal(err)
		}
		_, err := d.Alive()
		wantFault(t, err, want)
	}
	for uid, want := range map[uint32]Fault{4711: Foreign, 0: Unwritable} {
		f.End(who)
		f.Add(proctree.Process{PID: who, Comm: "x", UID: uid, Exe: "/usr/bin/" + Program})
		answer := f.Hold(who, "stat") // it hangs in exec(2)
		_, err := d.Alive()
		wantFault(t, err, want)
		answer()
	}
}
