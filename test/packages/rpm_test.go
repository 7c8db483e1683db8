package packages

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/node"
)

// newDefault is the last line of the gpuslot.toml of a newer version.
const newDefault = "# A newer version says more here."

// withNewDefault is a .deb whose gpuslot.toml is another than that before it.
func withNewDefault(t *testing.T, deb string) string {
	t.Helper()
	dir := t.TempDir()
	tree, out := filepath.Join(dir, "tree"), filepath.Join(dir, "newer.deb")
	run(t.Context(), t, "dpkg-deb", "-R", deb, tree)
	addDefault(t, tree)
	run(t.Context(), t, "dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "-b", tree, out)
	return out
}

func addDefault(t *testing.T, tree string) {
	t.Helper()
	f, err := os.OpenFile(tree+"/etc/gpuslot/gpuslot.toml", os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteString(newDefault + "\n")
	must(t, err)
	must(t, f.Close())
}

// newerRPM has the programs of a .deb, a higher version and another gpuslot.toml.
func newerRPM(t *testing.T, deb string) string {
	t.Helper()
	tree, out := t.TempDir(), filepath.Join(t.TempDir(), "newer.rpm")
	run(t.Context(), t, "dpkg-deb", "-x", deb, tree)
	addDefault(t, tree)
	run(t.Context(), t, "env", "-C", "../..", "STAGE="+tree, "ARCH=amd64", "PACKAGE_VERSION=0.2.0",
		"go", "tool", "-modfile=etc/packaging/tools/go.mod", "nfpm", "package", "--config", "etc/packaging/gpuslot.yaml", "--packager", "rpm", "--target", out)
	return out
}

// TestRPM lets Debian's rpm run the package's own scripts in a booted Debian 12,
// whose systemd is that of EL9: a node without HTCondor, GPUs or a driver.
func TestRPM(t *testing.T) {
	t.Parallel()
	if err := node.Available(); err != nil {
		t.Skip(err)
	}
	program := strings.TrimSpace(tryRun(t.Context(), t, "../../etc/packaging/fetch.sh", "rpm"))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	n, err := node.Boot(ctx, node.Options{Name: "el", Suite: "bookworm", Progress: t.Output(), Binds: []node.Bind{
		{Host: filepath.Dir(program), Guest: "/opt/rpm"},
		{Host: first(t).rpm, Guest: "/root/one.rpm"}, {Host: newerRPM(t, first(t).deb), Guest: "/root/two.rpm"},
	}})
	must(t, err)
	t.Cleanup(func() { must(t, n.Stop()) })
	sh := func(line string) string {
		t.Helper()
		out, err := n.Run(ctx, "sh", "-ec", line)
		must(t, err)
		return strings.TrimSpace(out.Stdout)
	}
	// What dpkg installed rpm does not know.
	rpm := func(args string) { t.Helper(); sh("/opt/rpm/run --force-debian --nodeps " + args) }
	before := left(sh)

	rpm("-i /root/one.rpm")
	if got := sh("systemctl is-enabled gpuslotd.service || :; getent passwd gpuslot-verify | cut -d: -f1"); got != "disabled\ngpuslot-verify" {
		t.Errorf("after the installation: %q", got)
	}
	sh("systemctl enable --now gpuslotd")
	agent := sh("pidof gpuslotd")
	sh("printf '[sharing]\\nshares = 5\\n' >/etc/gpuslot/gpuslot.toml")

	rpm("-U /root/two.rpm")
	if got := sh("systemctl is-active gpuslotd.service"); got != "active" || sh("pidof gpuslotd") == agent {
		t.Errorf("after the upgrade the agent is %s, and the same", got)
	}
	if got := sh("cd /etc/gpuslot; tail -qn 1 gpuslot.toml gpuslot.toml.rpmnew"); got != "shares = 5\n"+newDefault {
		t.Errorf("the site's file and the new version's: %s", got)
	}

	rpm("-e gpuslot")
	if got := sh("pgrep -l gpuslot || :; systemctl list-units --all --plain --no-legend 'gpuslot*'"); got != "" {
		t.Errorf("left behind: %s", got)
	}
	added := slices.DeleteFunc(left(sh), func(f string) bool { return slices.Contains(before, f) })
	if want := []string{"/etc/gpuslot/gpuslot.toml.rpmnew", "/etc/gpuslot/gpuslot.toml.rpmsave"}; !slices.Equal(added, want) {
		t.Errorf("left behind: %q, want %q", added, want)
	}
}

// left are the files that a package may have left; rpm keeps the agent's state.
func left(sh func(string) string) []string {
	all := strings.Split(sh(`find /etc /usr /run /var -xdev ! -type d -name '*gpuslot*' -o -xdev ! -type d -path '*gpuslot*' | sort -u`), "\n")
	return slices.DeleteFunc(all, func(f string) bool { return f == "" || strings.HasPrefix(f, "/var/lib/gpuslot/") })
}
