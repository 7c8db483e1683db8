package docs

import (
	"os/exec"
	"regexp"
	"testing"
)

// TestReadmeCommands runs the commands that README.md has for a machine without root or GPU.
func TestReadmeCommands(t *testing.T) {
	lines := regexp.MustCompile(`(?m)^    (CGO_ENABLED=0 go run .*)$`).FindAllStringSubmatch(read(t, "../README.md"), -1)
	if len(lines) < 2 {
		t.Fatalf("%d commands", len(lines))
	}
	for _, line := range lines {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line[1])
		cmd.Dir = ".."
		if out, err := cmd.CombinedOutput(); err != nil || len(out) < 500 {
			t.Errorf("%s: %v\n%s", line[1], err, out)
		}
	}
}
