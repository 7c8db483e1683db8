package docs

import (
	"os"
	"strings"
	"testing"
)

// TestSecurityPage holds the modes and bounds of security.md to what sets them.
func TestSecurityPage(t *testing.T) {
	page, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ page, file, set string }{
		{"| `/run/gpuslot/agent.sock` | 0666 |", "../systemd/units/gpuslotd.socket", "\nSocketMode=0666\n"},
		{"| `/run/gpuslot/mps/<uuid>/` | 0750 root", "../systemd/units/gpuslot-mps@.service", "\nRuntimeDirectoryMode=0750\n"},
		{"(`NoNewPrivileges`)", "../systemd/units/gpuslotd.service", "\nNoNewPrivileges=yes\n"},
		{"a read-only file system but for its own directories and `/tmp`", "../systemd/units/gpuslotd.service", "\nReadWritePaths=/tmp\n"},
		{"no network", "../systemd/units/gpuslot-mps@.service", "\nIPAddressDeny=any\n"},
		{"| `metrics.listen` | 127.0.0.1:9847 |", "../etc/gpuslot.toml", "\n#listen = \"127.0.0.1:9847\"\n"},
		{"(256 KiB)", "../agent/api/api.go", "const MaxRequest = 256 << 10\n"},
		{"| `/var/lib/gpuslot/records/`, `history/` | 0700 |", "../agent/history_lines.go", "os.MkdirAll(l.dir, 0o700)"},
	} {
		text, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), c.page) {
			t.Errorf("security.md does not say %q", c.page)
		}
		if !strings.Contains(string(text), c.set) {
			t.Errorf("security.md says %q, but %s does not have %q", c.page, c.file, c.set)
		}
	}
}
