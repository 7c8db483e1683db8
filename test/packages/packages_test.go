// Package packages checks what "make packages" builds: the files, what they ask
// for, that equal sources make equal bytes, and the life of a package on a node
// from its installation to its purge. Start at TestLife.
package packages

import (
	"context"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/site"
)

// built are the packages of one version, by the ends of their names.
type built struct{ deb, rpm string }

// build runs make packages into a new directory.
func build(t *testing.T, version string) built {
	t.Helper()
	b, err := makeInto(t.TempDir(), version)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// first is version 0.1.0, which most tests begin with: built once, and removed
// by TestMain.
func first(t *testing.T) built {
	t.Helper()
	b, err := firstOnce()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	firstDir  = filepath.Join(os.TempDir(), "gpuslot-packages-"+strconv.Itoa(os.Getpid()))
	firstOnce = sync.OnceValues(func() (built, error) { return makeInto(firstDir, "v0.1.0") })
)

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(firstDir)
	os.Exit(code)
}

// makeInto makes the packages of this machine's architecture.
func makeInto(out, version string) (b built, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	text, err := exec.CommandContext(ctx, "make", "-s", "-C", "../..", "packages", "OUT="+out, "ARCHES=amd64", "VERSION="+version).CombinedOutput()
	if err != nil {
		return b, fmt.Errorf("make packages: %w\n%s", err, text)
	}
	for name, into := range map[string]*string{"*.deb": &b.deb, "*.rpm": &b.rpm} {
		found, err := filepath.Glob(filepath.Join(out, name))
		if err != nil || len(found) != 1 {
			return b, fmt.Errorf("%s: %v, %w", name, found, err)
		}
		*into = found[0]
	}
	return b, nil
}

// run is a command that must succeed; it returns what it printed.
func run(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}

// TestPackages looks into the packages of this machine's architecture. It is alone: a build of another version at the
// same time uses the same folders.
func TestPackages(t *testing.T) {
	ctx := t.Context()
	one, two := first(t), build(t, "v0.1.0")
	equalBytes(t, one.deb, two.deb)
	equalBytes(t, one.rpm, two.rpm)
	// The names that docs/install.md has.
	if deb, rpm := filepath.Base(one.deb), filepath.Base(one.rpm); deb != filepath.Base(site.PackageFile) || rpm != "gpuslot-0.1.0-1.x86_64.rpm" {
		t.Errorf("the packages are called %s and %s", deb, rpm)
	}
	root := t.TempDir()
	run(ctx, t, "dpkg-deb", "-x", one.deb, root)
	t.Run("files", func(t *testing.T) { checkFiles(t, root) })
	t.Run("programs", func(t *testing.T) { checkPrograms(t, root, "x86-64") })
	t.Run("SBOM", func(t *testing.T) { checkSBOM(t, root) })
	t.Run("deb", func(t *testing.T) {
		if got := run(ctx, t, "dpkg-deb", "-f", one.deb, "Package", "Version", "Architecture", "Depends"); got != wantControl {
			t.Errorf("control says\n%s", got)
		}
		if got := run(ctx, t, "dpkg-deb", "--info", one.deb, "conffiles"); strings.TrimSpace(got) != "/etc/gpuslot/gpuslot.toml" {
			t.Errorf("conffiles: %s", got)
		}
	})
	t.Run("rpm", func(t *testing.T) { checkRPM(ctx, t, one.rpm, root) })
}

const wantControl = `Package: gpuslot
Version: 0.1.0-1
Architecture: amd64
Depends: libc6 (>= 2.34), systemd (>= 252)
`

func equalBytes(t *testing.T, a, b string) {
	t.Helper()
	one, errA := os.ReadFile(a)
	two, errB := os.ReadFile(b)
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if string(one) != string(two) {
		t.Errorf("%s differs between two builds of the same sources", filepath.Base(a))
	}
}

// checkFiles holds the package to what the issue of it promises.
func checkFiles(t *testing.T, root string) {
	have := files(t, root)
	for _, want := range []string{
		"/usr/sbin/gpuslotd", "/usr/bin/gpuslot", "/usr/libexec/gpuslot/gpuslot-condor", "/usr/libexec/gpuslot/prepare",
		"/usr/libexec/gpuslot/gpuslot-start", "/usr/libexec/gpuslot/supervise",
		"/usr/lib/systemd/system/gpuslotd.service", "/usr/lib/systemd/system/gpuslotd.socket", "/usr/lib/systemd/system/gpuslot-mps@.service",
		"/usr/lib/systemd/system/gpuslot-mps-dir@.service",
		"/usr/lib/systemd/system/systemd-journald@gpuslot.service.d/10-gpuslot.conf", "/usr/lib/systemd/journald@gpuslot.conf.d/10-gpuslot.conf",
		"/usr/lib/systemd/system-preset/50-gpuslot.preset", "/usr/lib/sysusers.d/gpuslot.conf", "/usr/lib/tmpfiles.d/gpuslot.conf",
		"/usr/share/selinux/packages/gpuslot.cil", "/usr/share/condor/config.d/50-gpuslot.conf", "/etc/gpuslot/gpuslot.toml",
		"/usr/share/man/man1/gpuslot.1", "/usr/share/man/man1/gpuslot-status.1", "/usr/share/man/man5/gpuslot.toml.5",
		"/usr/share/man/man8/gpuslotd.8", "/usr/share/man/man8/gpuslot-condor.8",
		"/usr/share/bash-completion/completions/gpuslot", "/usr/share/zsh/site-functions/_gpuslot", "/usr/share/fish/vendor_completions.d/gpuslot.fish",
		"/usr/share/gpuslot/prometheus/gpuslot.rules.yml", "/usr/share/gpuslot/grafana/gpuslot-node.json",
		"/usr/share/gpuslot/gpuslot-htcondor-collector.yml", "/usr/share/gpuslot/gpuslot-status.cpf",
		"/usr/share/doc/gpuslot/runbook.md", "/usr/share/doc/gpuslot/sbom.cdx.json", "/usr/share/doc/gpuslot/third-party-licences.txt",
	} {
		if !slices.Contains(have, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if slices.Contains(have, "/usr/share/doc/gpuslot/architecture.md") {
		t.Error("a page for developers is installed")
	}
	readme, err := os.ReadFile(root + "/usr/share/doc/gpuslot/README.md")
	if err != nil {
		t.Error(err)
	}
	for _, link := range regexp.MustCompile(`\]\(([\w./-]+\.md)`).FindAllStringSubmatch(string(readme), -1) {
		if !slices.Contains(have, "/usr/share/doc/gpuslot/"+link[1]) {
			t.Errorf("README.md links to %s, which is not installed", link[1])
		}
	}
	for _, f := range have {
		if b, err := os.ReadFile(root + f); err == nil && strings.Contains(string(b), os.TempDir()+"/tmp.") {
			t.Errorf("%s names a directory of the build", f)
		}
	}
}

// files are the files and links below a directory, as paths of the package.
func files(t *testing.T, root string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(path, root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// oldestGlibc is that of EL9; Debian 12 has 2.36.
const oldestGlibc = 34

// checkPrograms reads from the programs themselves what they need.
func checkPrograms(t *testing.T, root, machine string) {
	for _, path := range []string{"/usr/sbin/gpuslotd", "/usr/bin/gpuslot", "/usr/libexec/gpuslot/gpuslot-condor"} {
		f, err := elf.Open(root + path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if got := map[elf.Machine]string{elf.EM_X86_64: "x86-64", elf.EM_AARCH64: "arm64"}[f.Machine]; got != machine {
			t.Errorf("%s is for %s", path, f.Machine)
		}
		needs, err := f.DynamicVersionNeeds()
		if err != nil && path != "/usr/libexec/gpuslot/gpuslot-condor" {
			t.Error(err)
		}
		for _, lib := range needs {
			for _, v := range lib.Needs {
				if minor, ok := glibcMinor(v.Dep); ok && minor > oldestGlibc {
					t.Errorf("%s needs %s of %s", path, v.Dep, lib.Name)
				}
			}
		}
		if path == "/usr/libexec/gpuslot/gpuslot-condor" && len(needs) > 0 {
			t.Errorf("%s is not static", path)
		}
		if info, err := buildinfo.ReadFile(root + path); err != nil || info.Main.Path != "github.com/gpuslot/gpuslot" {
			t.Errorf("%s does not say what it is made of: %v", path, err)
		}
	}
	start, err := elf.Open(root + "/usr/libexec/gpuslot/gpuslot-start")
	if err != nil {
		t.Fatal(err)
	}
	defer start.Close()
	if libraries, err := start.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("gpuslot-start is not static: %q, %v", libraries, err)
	}
	if got := map[elf.Machine]string{elf.EM_X86_64: "x86-64", elf.EM_AARCH64: "arm64"}[start.Machine]; got != machine {
		t.Errorf("gpuslot-start is for %s", start.Machine)
	}
	if machine == "x86-64" {
		for _, args := range [][]string{{"/usr/sbin/gpuslotd", "--version"}, {"/usr/bin/gpuslot", "--version"}, {"/usr/libexec/gpuslot/gpuslot-condor", "version"}} {
			if out := run(t.Context(), t, root+args[0], args[1]); !versionLine.MatchString(out) {
				t.Errorf("%s says %q", args[0], out)
			}
		}
	}
}

var versionLine = regexp.MustCompile(`^gpuslot(d|-condor)? v0\.1\.0 \(commit [0-9a-f]{40}[,)]`)

func glibcMinor(symbol string) (int, bool) {
	rest, ok := strings.CutPrefix(symbol, "GLIBC_2.")
	if !ok {
		return 0, false
	}
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	return n, err == nil
}

// checkSBOM compares it with what the agent itself says it is made of.
func checkSBOM(t *testing.T, root string) {
	text, err := os.ReadFile(root + "/usr/share/doc/gpuslot/sbom.cdx.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Format     string `json:"bomFormat"`
		Components []struct {
			PURL     string `json:"purl"`
			Licences []struct {
				Licence struct{ ID string } `json:"license"`
			} `json:"licenses"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &d); err != nil || d.Format != "CycloneDX" {
		t.Fatal(d.Format, err)
	}
	licences, err := os.ReadFile(root + "/usr/share/doc/gpuslot/third-party-licences.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, c := range d.Components {
		listed[c.PURL] = len(c.Licences) == 1 && c.Licences[0].Licence.ID != ""
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(listed)), func(c string) bool { return listed[c] && strings.HasPrefix(c, "pkg:generic/glibc@2.") }) ||
		!strings.Contains(string(licences), "GNU LESSER GENERAL PUBLIC LICENSE") {
		t.Error("the C library of gpuslot-start is not in the SBOM, or its licence not in the package")
	}
	info, err := buildinfo.ReadFile(root + "/usr/sbin/gpuslotd")
	if err != nil {
		t.Fatal(err)
	}
	for _, dep := range info.Deps {
		if !listed["pkg:golang/"+dep.Path+"@"+dep.Version] {
			t.Errorf("%s is not in the SBOM, or without a licence", dep.Path)
		}
		if !strings.Contains(string(licences), "\n"+dep.Path+" "+dep.Version+"\n") {
			t.Errorf("the licence of %s is not in the package", dep.Path)
		}
	}
}

// checkRPM installs the .rpm into an empty root with Debian's rpm. TestRPM runs
// its scripts.
func checkRPM(ctx context.Context, t *testing.T, file, debRoot string) {
	rpm := strings.TrimSpace(tryRun(ctx, t, "../../etc/packaging/fetch.sh", "rpm"))
	root := t.TempDir()
	db := []string{"--root", root, "--dbpath", "/var/lib/rpm"}
	run(ctx, t, append(append([]string{rpm}, db...), "-i", "--noscripts", "--nodeps", file)...)
	run(ctx, t, append(append([]string{rpm}, db...), "-V", "--nodeps", "--noscripts", "gpuslot")...)
	run(ctx, t, "rm", "-r", root+"/var")
	if deb, got := files(t, debRoot), files(t, root); !slices.Equal(deb, got) {
		t.Errorf("the .rpm has other files than the .deb:\n%s\n\n%s", strings.Join(got, "\n"), strings.Join(deb, "\n"))
	}
	if got := strings.TrimSpace(run(ctx, t, rpm, "-qpc", file)); got != "/etc/gpuslot/gpuslot.toml" {
		t.Errorf("configuration files: %s", got)
	}
	if got := strings.Fields(run(ctx, t, rpm, "-qp", "--qf", "[%{FILENAMES}=%{FILEFLAGS:fflags} ]", file)); !slices.Contains(got, "/etc/gpuslot/gpuslot.toml=cn") {
		t.Error("gpuslot.toml is not config(noreplace): an update would replace a site's own")
	}
	for _, want := range []string{"/bin/sh", "glibc >= 2.34", "systemd >= 252"} {
		if got := run(ctx, t, rpm, "-qpR", file); !strings.Contains(got, want+"\n") {
			t.Errorf("it does not require %s:\n%s", want, got)
		}
	}
	for part, script := range map[string]string{"POSTIN": "postinstall.sh", "PREUN": "preremove.sh", "POSTUN": "postremove.sh"} {
		want, err := os.ReadFile("../../etc/packaging/scripts/" + script)
		if got := run(ctx, t, rpm, "-qp", "--qf", "%{"+part+"}", file); err != nil || strings.TrimSpace(got) != strings.TrimSpace(string(want)) {
			t.Errorf("%s is not %s (%v):\n%s", part, script, err, got)
		}
	}
}

// tryRun skips the test with the command's last line where it does not succeed.
func tryRun(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		t.Skip(lines[len(lines)-1])
	}
	return string(out)
}

// TestFresh builds both architectures twice, each time with an empty build
// cache and from a checkout in another place. Part of the campaign.
func TestFresh(t *testing.T) {
	if os.Getenv("GPUSLOT_CAMPAIGN") == "" {
		t.Skip("part of make campaign")
	}
	for _, arch := range []string{"amd64", "arm64"} {
		var outs []built
		for range 2 {
			t.Setenv("GOCACHE", t.TempDir())
			b := built{}
			checkout := t.TempDir()
			out := t.TempDir()
			run(t.Context(), t, "git", "clone", "-q", "../..", checkout)
			run(t.Context(), t, "make", "-s", "-C", checkout, "packages", "OUT="+out, "ARCHES="+arch, "VERSION=v0.1.0")
			for _, f := range files(t, out) {
				switch filepath.Ext(f) {
				case ".deb":
					b.deb = out + f
				case ".rpm":
					b.rpm = out + f
				}
			}
			outs = append(outs, b)
		}
		equalBytes(t, outs[0].deb, outs[1].deb)
		equalBytes(t, outs[0].rpm, outs[1].rpm)
		root := t.TempDir()
		run(t.Context(), t, "dpkg-deb", "-x", outs[0].deb, root)
		checkPrograms(t, root, map[string]string{"amd64": "x86-64", "arm64": "arm64"}[arch])
		t.Logf("%s: equal bytes from two fresh checkouts", arch)
	}
}
