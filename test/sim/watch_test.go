package sim

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpuslot/gpuslot/test/driver"
)

// mpsScene is MPS at work on GPU 0, held by a process of check/.
type mpsScene struct{ server, a, b, outside string }

// scene puts it on the node until the test ends: a server, two clients with
// loads of 30 and 20 %, and a process outside MPS with 10 %.
func (n *Node) scene(tb testing.TB) mpsScene {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), filepath.Join(n.Dir, "bin/simcheck"), "scene")
	cmd.Env = n.Env()
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close() // it ends its processes
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	pids := strings.Fields(line)
	if err != nil || len(pids) != 4 {
		tb.Fatalf("the scene says %q: %v", line, err)
	}
	return mpsScene{pids[0], pids[1], pids[2], pids[3]}
}

// TestNvidiaSMIShowsMPS: "M+C" clients without a share of SM time, and all of
// it at the server, as nvidia-smi pmon showed on an A30 and a GB10 (DRA driver,
// PR 1143).
func TestNvidiaSMIShowsMPS(t *testing.T) {
	for _, branch := range driver.Branches() {
		t.Run(branch, func(t *testing.T) {
			n := NewVariant(t, branch, "A100-40")
			s := n.scene(t)
			n.follow(t, smi(t, branch), []step{
				{"pmon -c 1", 0, []string{"0 " + s.server + " C 50 - ", "0 " + s.a + " M+C - - ", "0 " + s.b + " M+C - - ", "0 " + s.outside + " C 10 - "}},
				{"--query-compute-apps=pid,used_memory --format=csv,noheader", 0, []string{s.server + ", 28 MiB", s.a + ", 500 MiB", s.b + ", 300 MiB", s.outside + ", 100 MiB"}},
				{"-q -d UTILIZATION", 0, []string{"Gpu : 60 %"}},
				{"-q -d MEMORY", 0, []string{"Used : 928 MiB"}},
			})
		})
	}
}

// TestNvidiaSMIQuery holds the idle readings of a model to a public listing of
// nvidia-smi -q of that product.
func TestNvidiaSMIQuery(t *testing.T) {
	const zeros = "Encoder Stats Active Sessions : 0 Average FPS : 0 Average Latency : 0 FBC Stats Active Sessions : 0"
	const rows = "Remapped Rows Correctable Error : 0 Uncorrectable Error : 0 Pending : No Remapping Failure Occurred : No Bank Remap Availability Histogram Max : "
	const noPages = "Retired Pages Single Bit ECC : N/A Double Bit ECC : N/A Pending Page Blacklist : N/A"
	const pages = "Retired Pages Single Bit ECC : 0 Double Bit ECC : 0 Pending Page Blacklist : No Remapped Rows : N/A"
	for _, m := range []struct {
		model, listing string
		want           []string
	}{
		{"H200", "driver 550.90.12", []string{"BAR1 Memory Usage Total : 262144 MiB", rows + "3072 bank(s)", noPages, "Total : 143771 MiB",
			"Aggregate SRAM Correctable : 0 SRAM Uncorrectable Parity : 0 SRAM Uncorrectable SEC-DED : 0 DRAM Correctable : 0", "Max Power Limit : 700.00 W",
			"Clocks Graphics : 345 MHz SM : 345 MHz", "Replays Since Reset : 0 Replay Number Rollovers : 0", "Video : 765 MHz", zeros}},
		{"H100-80", "driver 560.35.03", []string{"BAR1 Memory Usage Total : 131072 MiB", rows + "2560 bank(s)", "Total : 81559 MiB", "Max Clocks Graphics : 1980 MHz", zeros}},
		{"A100-40", "driver 535.129.03", []string{"BAR1 Memory Usage Total : 65536 MiB", rows + "640 bank(s)", noPages, "Min Power Limit : 100.00 W",
			"GPU Shutdown Temp : 92 C GPU Slowdown Temp : 89 C GPU Max Operating Temp : 85 C", "Memory Max Operating Temp : 95 C",
			"Clocks Graphics : 210 MHz SM : 210 MHz Memory : 1215 MHz Video : 585 MHz", "Reset Required : No Drain and Reset Recommended : No", zeros}},
		{"A100-80", "driver 520", []string{"BAR1 Memory Usage Total : 131072 MiB", rows + "640 bank(s)", "Memory : 1593 MHz"}},
		{"T4", "driver 530.30.02", []string{"BAR1 Memory Usage Total : 256 MiB", pages, "GPU Shutdown Temp : 96 C GPU Slowdown Temp : 93 C", "Memory Current Temp : N/A",
			"Performance State : P8", "Clocks Graphics : 300 MHz SM : 300 MHz Memory : 405 MHz Video : 540 MHz", "Applications Clocks Graphics : 585 MHz Memory : 5001 MHz",
			"Drain and Reset Recommended : N/A", "Min Power Limit : 60.00 W", zeros}},
		{"V100S", "Tesla V100-PCIE-32GB, driver 410.48", []string{"BAR1 Memory Usage Total : 32768 MiB", pages, "GPU Shutdown Temp : 90 C GPU Slowdown Temp : 87 C GPU Max Operating Temp : 83 C",
			"Single Bit Device Memory : 0 Register File : 0 L1 Cache : 0 L2 Cache : 0 Texture Memory : N/A Texture Shared : N/A CBU : N/A Total : 0",
			"Double Bit Device Memory : 0 Register File : 0 L1 Cache : 0 L2 Cache : 0 Texture Memory : N/A Texture Shared : N/A CBU : 0 Total : 0", zeros}},
	} {
		t.Run(m.model, func(t *testing.T) {
			t.Logf("a listing of %s", m.listing)
			New(t, "550.163.01", m.model).follow(t, smi(t, "550"), []step{{"-q", 0, m.want}})
		})
	}
}

// TestNvidiaSMIQueryMIG: with MIG on an A100 lists no utilisation and no
// volatile errors, aggregate ones and zero sessions (nvidia-docker 1473).
func TestNvidiaSMIQueryMIG(t *testing.T) {
	needRoot(t)
	n := New(t, "550.163.01", "A100-40")
	n.Poke(t, "set", "0", "mig", "1")
	n.follow(t, smi(t, "550"), []step{
		{"-q -d UTILIZATION", 0, []string{"Gpu : N/A Memory : N/A Encoder : N/A Decoder : N/A"}},
		{"-q -d ECC", 0, []string{"DRAM Correctable : N/A DRAM Uncorrectable : N/A Aggregate", "DRAM Correctable : 0 DRAM Uncorrectable : 0"}},
		{"pmon -c 1", 255, []string{"Not supported on the device(s)"}},
	})
}

// TestWatch: what an agent reads through go-nvml, on every branch: go-nvml
// takes version 2 or 3 of a call, whichever the library exports.
func TestWatch(t *testing.T) {
	for _, branch := range Branches() {
		t.Run(branch, func(t *testing.T) {
			n := NewVariant(t, branch, "A100-40", "A100-40")
			s := n.scene(t)
			cmd := n.worker(t.Context(), t, "watch", s.server, s.a, s.b, s.outside)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var trouble strings.Builder
			cmd.Stderr = &trouble
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(out)
			if line, _ := lines.ReadString('\n'); line != "listening\n" {
				_ = cmd.Wait()
				t.Fatalf("%q\n%s", line, trouble.String())
			}
			// Another GPU first: its event must not come.
			n.simgpu(t, "xid", "1", "31")
			n.simgpu(t, "xid", "0", "79")
			rest, err := io.ReadAll(lines)
			if err := cmd.Wait(); err != nil || string(rest) != "XID 79\n" {
				t.Errorf("%q, %v\n%s", rest, err, trouble.String())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// watch checks the scene's processes and waits for one XID of GPU 0.
func watch(lib nvml.Interface, pids []string) error {
	d, ret := lib.DeviceGetHandleByIndex(0)
	if ret != nvml.SUCCESS {
		return ok("nvmlDeviceGetHandleByIndex", ret)
	}
	for _, read := range []func(nvml.Device, []string) error{watchLists, watchUtilisation, watchEnergy} {
		if err := read(d, pids); err != nil {
			return err
		}
	}
	return watchXID(lib, d)
}

func watchLists(d nvml.Device, pids []string) error {
	computing, ret := d.GetComputeRunningProcesses()
	if err := ok("nvmlDeviceGetComputeRunningProcesses", ret); err != nil {
		return err
	}
	clients, ret := d.GetMPSComputeRunningProcesses()
	if err := ok("nvmlDeviceGetMPSComputeRunningProcesses", ret); err != nil {
		return err
	}
	const none = 0xFFFFFFFF
	want := []uint64{28, 500, 300, 100}
	for i, p := range computing {
		if i >= len(pids) || fmt.Sprint(p.Pid) != pids[i] || p.UsedGpuMemory != want[i]<<20 || p.GpuInstanceId != none || p.ComputeInstanceId != none {
			return fmt.Errorf("compute process %d is %+v", i, p)
		}
	}
	if len(computing) != 4 || len(clients) != 2 || fmt.Sprint(clients[0].Pid) != pids[1] {
		return fmt.Errorf("%d compute processes, MPS clients %+v", len(computing), clients)
	}
	return nil
}

func watchUtilisation(d nvml.Device, pids []string) error {
	samples, ret := d.GetProcessUtilization(0)
	if err := ok("nvmlDeviceGetProcessUtilization", ret); err != nil {
		return err
	}
	if len(samples) != 2 || fmt.Sprint(samples[0].Pid) != pids[0] || samples[0].SmUtil != 50 || samples[1].SmUtil != 10 {
		return fmt.Errorf("utilisation of processes: %+v", samples)
	}
	rates, ret := d.GetUtilizationRates()
	if rates.Gpu != 60 {
		return fmt.Errorf("utilisation %d %%, %w", rates.Gpu, ret)
	}
	return nil
}

func watchEnergy(d nvml.Device, _ []string) error {
	before, ret := d.GetTotalEnergyConsumption()
	if err := ok("nvmlDeviceGetTotalEnergyConsumption", ret); err != nil {
		return err
	}
	time.Sleep(20 * time.Millisecond)
	after, _ := d.GetTotalEnergyConsumption()
	if before == 0 || after <= before {
		return fmt.Errorf("energy went from %d to %d mJ", before, after)
	}
	return nil
}

func watchXID(lib nvml.Interface, d nvml.Device) error {
	set, ret := lib.EventSetCreate()
	if err := ok("nvmlEventSetCreate", ret); err != nil {
		return err
	}
	if err := ok("nvmlDeviceRegisterEvents", d.RegisterEvents(nvml.EventTypeXidCriticalError, set)); err != nil {
		return err
	}
	if err := say("listening"); err != nil {
		return err
	}
	e, ret := set.Wait(60000)
	if err := ok("nvmlEventSetWait", ret); err != nil {
		return err
	}
	if err := say("XID", e.EventData); err != nil {
		return err
	}
	return ok("nvmlEventSetFree", set.Free())
}
