package process

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	pipes = "/run/gpuslot/mps/GPU-1"
	// host is a node's own, with the agent's sandbox; the jobs of HTCondor have a
	// /tmp of their own beside it.
	hostMounts = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n" +
		"25 22 0:23 / /run rw,nosuid shared:5 - tmpfs tmpfs rw,mode=755\n"
	agentMounts = hostMounts + "90 25 0:23 /gpuslot /run/gpuslot rw - tmpfs tmpfs rw\n"
	// container is apptainer's; its /run is its own.
	containerMounts = "300 299 0:60 / / ro - overlay overlay rw\n301 300 0:61 / /run rw - tmpfs tmpfs rw\n"
)

func TestPlaceOf(t *testing.T) {
	for name, c := range map[string]struct {
		mounts string
		want   place
	}{
		"host":                {hostMounts, place{"0:23", "/gpuslot/mps/GPU-1"}},
		"agent":               {agentMounts, place{"0:23", "/gpuslot/mps/GPU-1"}},
		"bound":               {containerMounts + "302 301 0:23 /gpuslot/mps/GPU-1 " + pipes + " rw - tmpfs tmpfs rw\n", place{"0:23", "/gpuslot/mps/GPU-1"}},
		"not bound":           {containerMounts, place{"0:61", "/gpuslot/mps/GPU-1"}},
		"another GPU's bound": {containerMounts + "302 301 0:23 /gpuslot/mps/GPU-2 " + pipes + " rw - tmpfs tmpfs rw\n", place{"0:23", "/gpuslot/mps/GPU-2"}},
		"a longer name":       {hostMounts + "303 25 0:70 / " + pipes + "0 rw - tmpfs tmpfs rw\n", place{"0:23", "/gpuslot/mps/GPU-1"}},
		"mounted over":        {hostMounts + "304 22 0:71 / /run rw - tmpfs tmpfs rw\n", place{"0:71", "/gpuslot/mps/GPU-1"}},
		"blanks":              {"22 1 254:0 /a\\040b / rw - ext4 x rw\n", place{"254:0", "/a b/run/gpuslot/mps/GPU-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := placeOf(parseMounts([]byte(c.mounts)), pipes); !ok || got != c.want {
				t.Errorf("%+v, %v, want %+v", got, ok, c.want)
			}
		})
	}
	if _, ok := placeOf(parseMounts([]byte("rubbish\n")), pipes); ok {
		t.Error("a place without mounts")
	}
}

// TestReadOnly: the options of the mount count, and those of its file system.
func TestReadOnly(t *testing.T) {
	const cgroups = "/sys/fs/cgroup"
	for name, c := range map[string]struct {
		mounts string
		want   bool
	}{
		"writable":             {"29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n", false},
		"ProtectControlGroups": {"329 322 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n", true},
		"a file system":        {"29 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 ro\n", true},
		"another directory":    {hostMounts + "29 22 0:26 / /sys/fs ro - sysfs sysfs ro\n30 29 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", false},
		"rubbish":              {"ro\n", false},
	} {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "300"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "300/mountinfo"), []byte(c.mounts), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := (FS{Root: root}).ReadOnly(300, cgroups); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
	if (FS{Root: t.TempDir()}).ReadOnly(300, cgroups) {
		t.Error("a process that has ended finds it read-only")
	}
}

// TestParseMounts: a line needs six fields, and only what the kernel escapes is undone.
func TestParseMounts(t *testing.T) {
	for text, want := range map[string][]mount{
		"22 1 254:0 / / ro\n": {{"254:0", "/", "/", true}}, "22 1 254:0 / /\n": nil, "22 1 254:0 / run ro\n": nil,
		`22 1 254:0 /\134040\040 /a\011b\ rw`: {{"254:0", `/\040 `, "/a\tb\\", false}},
		`22 1 254:0 /\04 /\999 rw`:            {{"254:0", `/\04`, `/\999`, false}},
	} {
		if got := parseMounts([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// TestMostMounts: a list is read up to its bound.
func TestMostMounts(t *testing.T) {
	name := filepath.Join(t.TempDir(), "mountinfo")
	for more, fits := range []bool{true, false} {
		if err := os.WriteFile(name, make([]byte, mostMounts+more), 0o644); err != nil {
			t.Fatal(err)
		}
		if b, err := readMounts(name); (err == nil) != fits || fits && len(b) != mostMounts {
			t.Errorf("%d bytes more: %d, %v", more, len(b), err)
		}
	}
}

// FuzzParseMounts: whatever the kernel says, a place lies below the root of a
// mount, and the host's own view of a directory is never hidden from itself.
func FuzzParseMounts(f *testing.F) {
	f.Add(hostMounts, pipes)
	f.Add(containerMounts, "/")
	f.Add("1 2 3 \\777 /\\0 rw", "/\\0")
	f.Fuzz(func(t *testing.T, text, name string) {
		mounts := parseMounts([]byte(text))
		for _, m := range mounts {
			if !path.IsAbs(m.point) {
				t.Errorf("mount point %q", m.point)
			}
		}
		p, ok := placeOf(mounts, name)
		if again, _ := placeOf(mounts, name); again != p {
			t.Errorf("%+v, then %+v", p, again)
		}
		if ok && len(mounts) == 0 || strings.Contains(p.path, "//") {
			t.Errorf("%+v of %d mounts", p, len(mounts))
		}
	})
}

// TestEndlessMounts: a job can make its list of mounts as long as it likes. It is not read
// to its end, and hides nothing.
func TestEndlessMounts(t *testing.T) {
	root := t.TempDir()
	const dir = "/run/gpuslot/mps/GPU-a"
	line := "36 35 0:50 / /run/gpuslot rw - tmpfs tmpfs rw\n"
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dirs := map[int]string{300: dir}
	for pid := range 50 {
		dirs[pid] = dir // that has ended
	}
	hides := func() bool {
		got := FS{Root: root}.Hiding(dirs)
		if len(got) > 1 {
			t.Errorf("what has ended hides a directory: %v", got)
		}
		return got[300]
	}
	write("self/mountinfo", line)
	other := "36 35 0:51 / /run rw - tmpfs tmpfs rw\n"
	write("300/mountinfo", other)
	if !hides() {
		t.Error("a container without the pipe directory is not known")
	}
	write("300/mountinfo", line)
	if hides() {
		t.Error("a container with the pipe directory is said to hide it")
	}
	write("300/mountinfo", "")
	if !hides() {
		t.Error("a container without mounts has the pipe directory")
	}
	write("300/mountinfo", other+strings.Repeat("37 35 0:52 / /x rw - tmpfs tmpfs rw\n", mostMounts/30))
	if hides() {
		t.Error("a list beyond the bound was read")
	}
}
