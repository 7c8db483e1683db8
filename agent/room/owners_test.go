package room

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpuslot/gpuslot/test/together"
)

// subuid is a file with this text.
func subuid(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "subuid")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestOwners: a range of the file is one owner, and so is one of those that IPA gives. Each other
// account is its own, however near it is to others.
func TestOwners(t *testing.T) {
	const file = "# ranges\nalice:100000:65536\n\nbob:165536:65536\r\n1003:300000:1\nlow:2000:10\n" +
		"root:1000000:1000000000\n0:1100000000:1000000000\nlxd:400000:10\ndockremap:400005:10\n  carol:500000:65536\n" +
		"a:600000:0\nb:600000:-1\nc:600000:10:10\nd:600000\n:600000:10\ne\nf:x:10\ng:4294967295:2\nh:4294967296:1\n" +
		"i:600000:4294967296\n#j:600000:10\nk:2400000000:100000\nl:700000:10"
	o := NewOwners(subuid(t, file))
	for uid, want := range map[uint32]uint32{
		0: 0, 1001: 1001, 65535: 65535, 65536: 65536, 99999: 99999, 100000: 100000, 131072: 100000, 165535: 100000,
		165536: 165536, 231071: 165536, 231072: 231072, 300000: 300000, 300001: 300001,
		1999: 1999, 2000: 2000, 2009: 2000, 2010: 2010,
		400009: 400000, 400014: 400000, 400015: 400015, 500001: 500000, 600001: 600001, 700001: 700000,
		900000001: 900000001, 1200000000: 1200000000, 1200000001: 1200000001, // of a directory
		1<<31 - 1: 1<<31 - 1, 1<<31 + 1: 1 << 31, 1<<31 + 65535: 1 << 31, 1<<31 + 65536: 1<<31 + 65536,
		2400000001: 2400000000, 2400099999: 2400000000, 2400100000: 2400100000 &^ 0xffff, 1<<32 - 1: 0xffff0000,
	} {
		if got := o.Of(uid); got != want {
			t.Errorf("%d is of %d, want %d", uid, got, want)
		}
	}
}

// TestWithoutOwners: without the file there are no ranges, but those of services.
func TestWithoutOwners(t *testing.T) {
	for _, o := range []*Owners{nil, NewOwners(filepath.Join(t.TempDir(), "subuid"))} {
		if o.Of(100001) != 100001 || o.Of(1<<31+1) != 1<<31 {
			t.Errorf("%d, %d", o.Of(100001), o.Of(1<<31+1))
		}
	}
	if got := NewOwners("").file; got != "/etc/subuid" {
		t.Errorf("by default it is %q", got)
	}
}

// TestOwnersFollowTheFile: it is read again when it changed. Of one that cannot be read the ranges stay,
// and one that is gone has none.
func TestOwnersFollowTheFile(t *testing.T) {
	file := subuid(t, "alice:100000:65536\n")
	o := NewOwners(file)
	is := func(when string, want uint32) {
		t.Helper()
		if got := o.Of(100009); got != want {
			t.Errorf("%s: it is of %d, want %d", when, got, want)
		}
	}
	remove := func() { // it stays under another name, so that the next file is another one
		if err := os.Rename(file, file+".old"); err != nil {
			t.Fatal(err)
		}
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is("at first", 100000)
	was, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	write("alice:100001:65536\n")
	if err := os.Chtimes(file, was.ModTime(), was.ModTime()); err != nil {
		t.Fatal(err)
	}
	is("with the same size and time", 100000)
	if err := os.Chtimes(file, was.ModTime(), was.ModTime().Add(1)); err != nil {
		t.Fatal(err)
	}
	is("with another time", 100001)
	remove()
	write("alice:100002:65536\n")
	if err := os.Chtimes(file, was.ModTime(), was.ModTime().Add(1)); err != nil {
		t.Fatal(err)
	}
	is("as another file", 100002)
	write("alice:100003:65536\nbob:1:1\n")
	if err := os.Chtimes(file, was.ModTime(), was.ModTime().Add(1)); err != nil {
		t.Fatal(err)
	}
	is("with another size", 100003)
	for _, unreadable := range []func() error{
		func() error { return os.Symlink(file, file) },
		func() error { return os.Mkdir(file, 0o700) },
		func() error { return unix.Mkfifo(file, 0o600) },
		func() error { return os.WriteFile(file, []byte("alice:100003:65536\n"), 0) }, // root can read it
	} {
		remove()
		if err := unreadable(); err != nil {
			t.Fatal(err)
		}
		is("unreadable", 100003)
		if err := errors.Join(os.RemoveAll(file), os.Rename(file+".old", file)); err != nil {
			t.Fatal(err)
		}
	}
	is("readable again", 100003)
	remove()
	is("gone", 100009)
	if err := os.Rename(file+".old", file); err != nil {
		t.Fatal(err)
	}
	is("back", 100003)
}

// TestLongSubuid: of a file that is too large the whole lines at its beginning count.
func TestLongSubuid(t *testing.T) {
	text := "alice:100000:65536\n"
	text += "#" + strings.Repeat("x", mostSubuid-len(text)-len("#\nbob:200000:10")) + "\nbob:200000:10"
	for tail, want := range map[string]uint32{"": 200000, "0\ncarol:300000:10\n": 200009} {
		o := NewOwners(subuid(t, text+tail))
		if o.Of(100009) != 100000 || o.Of(200009) != want || o.Of(300009) != 300009 {
			t.Errorf("%d bytes: %d, %d, %d", len(text+tail), o.Of(100009), o.Of(200009), o.Of(300009))
		}
	}
}

// TestOwnersTogether: callers ask at the same time, also while the file changes.
func TestOwnersTogether(t *testing.T) {
	file := subuid(t, "alice:100000:65536\n")
	together.Methods(t, NewOwners(file), uint32(100001), together.Call(func() {
		if err := os.WriteFile(file, []byte("alice:100000:65536\n"), 0o600); err != nil {
			t.Error(err)
		}
	}))
}

// FuzzSubuid: the ranges are in order and apart, and hold the accounts of all lines that are right, and no others.
func FuzzSubuid(f *testing.F) {
	for _, text := range []string{
		"alice:100000:65536\nbob:165536:65536\n", "a:1:5\nb:3:9\nc:2:1", "# a\nroot:1:2\nx:4294967295:1\ny:4294967295:2\n", "a:1:1:1\r\n:1:1\na::\n",
		"a:1:5\nb:5:5\n", "a:4294967295:2\n", "a:600000:0\n0:1:2\n",
	} {
		f.Add(text)
	}
	form := regexp.MustCompile(`^[^:#][^:]*:([0-9]+):([0-9]+)$`)
	f.Fuzz(func(t *testing.T, text string) {
		got := parseSubuid(text)
		for i, s := range got {
			if s.first > s.last || i > 0 && s.first <= got[i-1].last {
				t.Fatalf("%v", got)
			}
		}
		ends := map[uint32]bool{} // where a right line begins or ends
		for _, line := range strings.Split(text, "\n") {
			line = strings.TrimSpace(line)
			m := form.FindStringSubmatch(line)
			if m == nil || strings.HasPrefix(line, "root:") || strings.HasPrefix(line, "0:") {
				continue
			}
			first, no := strconv.ParseUint(m[1], 10, 32)
			n, none := strconv.ParseUint(m[2], 10, 32)
			if no != nil || none != nil || n == 0 || first+n-1 > 1<<32-1 {
				continue
			}
			a, b := uint32(first), uint32(first+n-1)
			ends[a], ends[b] = true, true
			held := false
			for _, s := range got {
				held = held || s.first <= a && b <= s.last
			}
			if !held {
				t.Errorf("%q is not in %v", line, got)
			}
		}
		for _, s := range got {
			if !ends[s.first] || !ends[s.last] {
				t.Errorf("%v is of no line", s)
			}
		}
	})
}

// TestBlocks: accounts that lie together leave half of the places to others, however many they are.
func TestBlocks(t *testing.T) {
	r := New(nil, 2, 8, 0)
	var leave []func()
	for uid := uint32(700000); uid < 700100; uid++ {
		if out, err := r.Enter(uid); err == nil {
			leave = append(leave, out)
		}
	}
	if len(leave) != 4 {
		t.Errorf("they have %d of 8 places", len(leave))
	}
	for _, uid := range []uint32{1001, 1001, 800000, 65535} {
		out, err := r.Enter(uid)
		if err != nil {
			t.Errorf("account %d: %v", uid, err)
			continue
		}
		leave = append(leave, out)
	}
	for _, out := range leave {
		out()
	}
	if len(r.of) > 0 || len(r.all) > 0 {
		t.Errorf("left behind: %v, %d places", r.of, len(r.all))
	}
}
