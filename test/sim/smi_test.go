package sim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/test/driver"
)

// smi is stock nvidia-smi of a driver branch.
func smi(tb testing.TB, branch string) string {
	tb.Helper()
	return filepath.Join(driver.Dir(tb, branch), "usr/lib/nvidia/current/nvidia-smi")
}

// step is one command line of nvidia-smi: its exit code and parts of what it
// says, blanks counted as one.
type step struct {
	args string
	code int
	want []string
}

func (n *Node) follow(t *testing.T, smi string, steps []step) {
	t.Helper()
	for _, s := range steps {
		out, code := n.Run(t.Context(), smi, strings.Fields(s.args)...)
		flat := strings.Join(strings.Fields(out), " ")
		if code != s.code {
			t.Errorf("nvidia-smi %s: exit code %d, want %d: %s", s.args, code, s.code, out)
		}
		for _, w := range s.want {
			if !strings.Contains(flat, w) {
				t.Errorf("nvidia-smi %s: no %q in:\n%s", s.args, w, out)
			}
		}
	}
}

// TestNvidiaSMI leads the stock nvidia-smi of every branch, on that branch's
// variant of the library, through the life of MIG on an A100. The tables are
// those of the MIG User Guide (Getting Started, A100-SXM4-40GB).
func TestNvidiaSMI(t *testing.T) {
	needRoot(t)
	for _, branch := range driver.Branches() {
		t.Run(branch, func(t *testing.T) {
			n := NewVariant(t, branch, "A100-40")
			smi := smi(t, branch)
			n.follow(t, smi, whole(versions[branch]))
			n.follow(t, smi, partition)
			release := n.hold(t, "0", "2", "0")
			n.follow(t, smi, busy)
			release()
			n.follow(t, smi, emptied)
			release = n.hold(t, "0", "2", "-") // a client of the GPU instance alone, as an MPS server may be
			n.follow(t, smi, []step{{"mig -dgi -gi 2", 19, []string{"In use by another client"}}})
			release()
			n.follow(t, smi, undo)
		})
	}
}

func whole(version string) []step {
	none := 0 // 535 calls it "not found"
	if strings.HasPrefix(version, "535.") {
		none = 6
	}
	return []step{
		{"-L", 0, []string{"GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-"}},
		{"-q", 0, []string{"Driver Version : " + version, "Product Name : NVIDIA A100-SXM4-40GB", "MIG Mode Current : Disabled Pending : Disabled",
			"FB Memory Usage Total : 40960 MiB", "Compute Mode : Default", "Processes : None"}},
		{"", 0, []string{"NVIDIA-SMI " + version, "0MiB / 40960MiB", "N/A"}},
		{"-c 3", 0, []string{"Set compute mode to EXCLUSIVE_PROCESS for GPU 00000000:17:00.0"}},
		{"--query-gpu=compute_mode,mig.mode.current --format=csv,noheader", 0, []string{"Exclusive_Process, Disabled"}},
		{"mig -lgi", none, []string{"No MIG-enabled devices found."}},
	}
}

var partition = []step{
	{"-mig 1", 0, []string{"Enabled MIG Mode for GPU 00000000:17:00.0"}},
	{"mig -lgip", 0, []string{
		"0 MIG 1g.5gb 19 7/7 4.75 No 14 0 0", "0 MIG 1g.5gb+me 20 1/1 4.75 No 14 1 0", "0 MIG 1g.10gb 15 4/4 9.62 No 14 1 0",
		"0 MIG 2g.10gb 14 3/3 9.62 No 28 1 0", "0 MIG 3g.20gb 9 2/2 19.50 No 42 2 0", "0 MIG 4g.20gb 5 1/1 19.50 No 56 2 0",
		"0 MIG 7g.40gb 0 1/1 39.25 No 98 5 0"}},
	{"mig -lgipp", 0, []string{"Profile ID 19 Placements: {0,1,2,3,4,5,6}:1", "Profile ID 15 Placements: {0,2,4,6}:2",
		"Profile ID 14 Placements: {0,2,4}:2", "Profile ID 9 Placements: {0,4}:4", "Profile ID 5 Placement : {0}:4", "Profile ID 0 Placement : {0}:8"}},
	{"mig -cgi 9,14,19 -C", 0, []string{"Successfully created GPU instance ID 2 on GPU 0 using profile MIG 3g.20gb (ID 9)",
		"Successfully created compute instance ID 0 on GPU 0 GPU instance ID 2 using profile MIG 3g.20gb (ID 2)",
		"GPU instance ID 4 on GPU 0 using profile MIG 2g.10gb (ID 14)", "GPU instance ID 8 on GPU 0 using profile MIG 1g.5gb (ID 19)"}},
	{"mig -cgi 9", 23, []string{"Unable to create a GPU instance on GPU 0 using profile 9: Insufficient Resources"}},
	{"mig -lgi", 0, []string{"MIG 1g.5gb 19 8 1:1", "MIG 2g.10gb 14 4 2:2", "MIG 3g.20gb 9 2 4:4"}},
	{"mig -lci", 0, []string{"0 8 MIG 1g.5gb 0 0 0:1", "0 4 MIG 2g.10gb 1 0 0:2", "0 2 MIG 3g.20gb 2 0 0:3"}},
	{"mig -lcip -gi 2", 0, []string{"MIG 1c.3g.20gb 0 0/3 14", "MIG 2c.3g.20gb 1 0/1 28", "MIG 3g.20gb 2* 0/1 42"}},
	{"-L", 0, []string{"MIG 3g.20gb Device 0: (UUID: MIG-", "MIG 2g.10gb Device 1: (UUID: MIG-", "MIG 1g.5gb Device 2: (UUID: MIG-"}},
	{"", 0, []string{"Enabled", "0 2 0 0 | 25MiB / 19968MiB | 42 0 | 3 0 2 0 0", "0 8 0 2 | 9MiB / 4864MiB | 14 0 | 1 0 0 0 0"}},
	{"-q", 0, []string{"MIG Device Index : 0 GPU Instance ID : 2 Compute Instance ID : 0", "Multiprocessor count : 42"}},
}

var busy = []step{
	{"mig -dci -gi 2", 19, []string{"Unable to destroy compute instance ID 0 from GPU 0 GPU instance ID 2: In use by another client"}},
	{"mig -dgi -gi 2", 19, []string{"Unable to destroy GPU instance ID 2 from GPU 0: In use by another client"}},
	{"--query-compute-apps=used_memory,name --format=csv,noheader", 0, []string{"1024 MiB", "simpoke"}},
	{"", 0, []string{"1049MiB / 19968MiB", "0 2 0", "simpoke"}},
}

var emptied = []step{
	{"mig -dgi -gi 2", 19, []string{"In use by another client"}}, // the compute instance is there
	{"mig -dci", 0, []string{"Successfully destroyed compute instance ID 0 from GPU 0 GPU instance ID 8", "GPU instance ID 2"}},
}

var undo = []step{
	{"mig -dgi", 0, []string{"Successfully destroyed GPU instance ID 8 from GPU 0", "Successfully destroyed GPU instance ID 2 from GPU 0"}},
	{"mig -lgi", 6, []string{"No GPU instances found: Not Found"}},
	{"-mig 0", 0, []string{"Disabled MIG Mode for GPU 00000000:17:00.0"}},
	{"-L", 0, []string{"GPU 0: NVIDIA A100-SXM4-40GB"}},
}

// TestNvidiaSMIAsUser: another account reads, and may not change.
func TestNvidiaSMIAsUser(t *testing.T) {
	needRoot(t)
	n := New(t, "550.163.01", "A100-40", "T4")
	lib := n.public(t)
	stock := n.copyTo(t, smi(t, "550"))
	env := []string{"env", "GPUSLOT_SIM_STATE=" + n.State, "LD_LIBRARY_PATH=" + lib}
	as := func(args ...string) (string, int) {
		return n.Run(t.Context(), "setpriv", append(append([]string{"--reuid=65534", "--clear-groups"}, env...), append([]string{stock}, args...)...)...)
	}
	if out, code := as("-L"); code != 0 || !strings.Contains(out, "GPU 1: Tesla T4") {
		t.Errorf("a user's -L: %d, %s", code, out)
	}
	if out, code := as("-i", "0", "-mig", "1"); code != 4 || !strings.Contains(out, "Insufficient Permissions") {
		t.Errorf("a user's -mig 1: %d, %s", code, out)
	}
	if out, code := as("-i", "1", "-c", "3"); code != 4 || !strings.Contains(out, "Insufficient Permissions") {
		t.Errorf("a user's -c 3: %d, %s", code, out)
	}
}

// public copies the libraries to where every account may read: the cache may
// be root's alone.
func (n *Node) public(tb testing.TB) string {
	tb.Helper()
	return filepath.Dir(n.copyTo(tb, filepath.Join(n.Dir, "lib/libnvidia-ml.so.1")))
}

// copyTo copies a program or library beside the state.
func (n *Node) copyTo(tb testing.TB, file string) string {
	tb.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	to := filepath.Join(filepath.Dir(n.State), filepath.Base(file))
	if err := os.WriteFile(to, b, 0o755); err != nil {
		tb.Fatal(err)
	}
	return to
}

// TestNvidiaSMIWithLostGPU: the neighbour is still listed.
func TestNvidiaSMIWithLostGPU(t *testing.T) {
	n := New(t, "550.163.01", "T4", "V100S")
	n.Poke(t, "set", "0", "lost", "1")
	out, _ := n.Run(t.Context(), smi(t, "550"), "-L")
	for _, want := range []string{"Unable to determine the device handle for gpu 0: GPU is lost.", "GPU 1: Tesla V100S-PCIE-32GB"} {
		if !strings.Contains(out, want) {
			t.Errorf("nvidia-smi -L with a lost GPU: no %q in %s", want, out)
		}
	}
}

// TestNvidiaSMIWithoutDriver: no node is no driver (exit code 9, measured on a
// machine without GPU).
func TestNvidiaSMIWithoutDriver(t *testing.T) {
	n := New(t, "550.163.01", "T4")
	n.State += "-absent"
	n.follow(t, smi(t, "550"), []step{{"-L", 9, []string{"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."}}})
}
