package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPage: each claim of an outcome has a row with its values, and an outcome that
// says that it is simulated marks the page.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "truth"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(simulated string) string {
		outcome := `{"id":"T5",` + simulated + `"gpu":"H200","values":{"server_mib":31,"before_used_mib":4}}`
		if err := os.WriteFile(filepath.Join(dir, "truth/T5.json"), []byte(outcome), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := WritePage(dir, "H200-580.159.03", nil); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, PageName))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	page := write("")
	for _, want := range []string{
		"Measured on H200-580.159.03.",
		"| [T5](truth/T5.json) | The server holds 20 to 96 MiB itself, which the plan keeps for it. | holds | server_mib 31 |",
		"| T5 | NVML lists all memory; a server has 66 MiB on Hopper, else 27 | before_used_mib 4; server_mib 31 | `test/sim/nvml/processes.c` |",
		"| T0 | 400 ms for a context | not measured | `test/gpu/simulated.sh` |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if page = write(`"simulated":true,`); !strings.Contains(page, "**SIMULATED") || strings.Contains(page, "Measured on") {
		t.Errorf("it is not marked:\n%s", page)
	}
}

// TestAssumptions: files to change are there.
func TestAssumptions(t *testing.T) {
	for _, a := range assumptions {
		if _, err := os.Stat(filepath.Join("../../..", a.file)); err != nil {
			t.Error(err)
		}
	}
}
