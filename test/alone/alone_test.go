package alone

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// leave makes a test start a process that outlives it, and fail.
const leave = "GPUSLOT_TEST_LEAVE"

func TestMain(m *testing.M) {
	Enter()
	os.Exit(m.Run())
}

// TestNobodyElse: the processes of the machine are out of sight.
func TestNobodyElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: namespaces")
	}
	if os.Getpid() == 1 {
		t.Error("the tests are process 1, which has to wait for what others leave")
	}
	text, err := os.ReadFile("/proc/1/cmdline")
	self, _ := os.Executable()
	if program, _, _ := strings.Cut(string(text), "\x00"); err != nil || program != self {
		t.Errorf("process 1 is %q (%v), not %s", text, err, self)
	}
}

// TestNobodyIsLeft: what a failed test leaves ends with it, and its exit code is passed on.
func TestNobodyIsLeft(t *testing.T) {
	if file := os.Getenv(leave); file != "" {
		cmd := exec.Command("setsid", "sh", "-c", "trap '' TERM HUP; while echo beat >>"+file+"; do sleep 0.05; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for text := ""; text == ""; time.Sleep(10 * time.Millisecond) {
			b, _ := os.ReadFile(file)
			text = string(b)
		}
		t.Fatal("as it should")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: namespaces")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "beats")
	cmd := exec.Command(self, "-test.run=^TestNobodyIsLeft$")
	cmd.Env = append(os.Environ(), role+"=", leave+"="+file)
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("%s: %s", cmd.ProcessState, out)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	if after, _ := os.ReadFile(file); len(after) != len(before) {
		t.Error("a process outlives the tests")
	}
}
