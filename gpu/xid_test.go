package gpu

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// The classes follow NVIDIA's Xid Catalog (July 2025 and newer), bucket by bucket.
func TestXIDClasses(t *testing.T) {
	for class, numbers := range map[XIDClass][]int{
		XIDApplication: {8, 11, 13, 25, 31, 32, 39, 40, 41, 43, 45, 60, 68, 69, 70, 77, 84, 94, 97, 105, 126, 135, 137, 142, 174},
		XIDNeedsReset:  {46, 48, 61, 62, 64, 74, 95, 109, 110, 119, 120, 136, 140, 143, 156, 158, 159, 167, 169, 173, 175},
		XIDBroken:      {54, 79},
		XIDInformation: {14, 63, 78, 92, 93, 108, 121, 122, 123, 144, 150, 152, 153, 154, 155, 166, 168, 170, 171, 176, 177, 185},
		XIDUnknown:     {-1, 0, 1, 9, 56, 81, 90, 178, 190, UnknownXID, 1 << 30},
	} {
		for _, n := range numbers {
			if x := XIDByNumber(n); x.Class != class || x.Number != n {
				t.Errorf("%s is of class %s, want %s", x, x.Class, class)
			}
		}
	}
	if x := XIDByNumber(79); x.String() != "Xid 79 (GPU has fallen off the bus)" || x.Reach != ReachGPU || !strings.Contains(x.Do, "power-cycle") {
		t.Errorf("%s: %+v", x, x)
	}
}

func TestXIDRowsAreWhole(t *testing.T) {
	rows, reaches := 0, []XIDReach{ReachNobody, ReachProcess, ReachClients, ReachGPU}
	for n := range UnknownXID {
		x := XIDByNumber(n)
		if x.Class == XIDUnknown {
			continue
		}
		rows++
		if x.Name == "" || x.Do == "" || x.Source == "" || !slices.Contains(reaches, x.Reach) {
			t.Errorf("the row of %s lacks something: %+v", x, x)
		}
		// Whoever closes a GPU must say what opens it; what ends nobody closes nothing.
		if closes := x.Class == XIDNeedsReset || x.Class == XIDBroken; closes != (x.Reach == ReachGPU) {
			t.Errorf("%s is of class %s, and ends %s", x, x.Class, x.Reach)
		}
	}
	if rows < 80 {
		t.Errorf("%d rows", rows)
	}
	for _, r := range xidRanges {
		for n := r.first; n <= r.last; n++ {
			if _, twice := xids[n]; twice {
				t.Errorf("Xid %d has two rows", n)
			}
		}
	}
}

func TestRecoveryActions(t *testing.T) {
	for r := RecoveryNone; r <= RecoverySystemReboot+1; r++ {
		if r.String() == "" || r.Do() == "" {
			t.Errorf("%d: %q, %q", int(r), r, r.Do())
		}
	}
	// nvml.h
	if RecoveryDrainAndReset != 4 || RecoverySystemReboot != 7 || RecoveryAction(-1).String() != "recovery action -1" {
		t.Error("the numbers of the recovery actions are not nvml.h's")
	}
}

func TestParseKernelXID(t *testing.T) {
	for line, want := range map[string]KernelXID{
		// NVIDIA developer forum 364958, driver 595.58.03.
		"NVRM: Xid (PCI:0000:01:00): 45, pid=12542, name=VLLM::Worker, channel 0x00000002": {PCI: "0000:01:00.0", XID: 45, PID: 12542, Process: "VLLM::Worker"},
		"NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None)":     {PCI: "0000:01:00.0", XID: 154},
		// leptonai/gpud's page on Xid.
		"NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7": {PCI: "0000:cb:00.0", XID: 13},
		// Old drivers.
		"NVRM: Xid (PCI:0000:01:00): 32, Channel ID 00000009 intr 00800000":                       {PCI: "0000:01:00.0", XID: 32},
		"6,839,140900,-,caller=T12;NVRM: Xid (PCI:0000:01:00): 31, Ch 0000000b, engmask 00000120": {PCI: "0000:01:00.0", XID: 31},
		// kernel_rc.c of the open kernel modules.
		"4,1234,987654321,-;NVRM: Xid (PCI:0000:1a:00 GPU-I:03 GPU-CI:01): 43, pid=77, name=python, Ch 00000008": {PCI: "0000:1a:00.0", XID: 43, GPUInstance: 3, ComputeInstance: 1, PID: 77, Process: "python"},
		"NVRM: Xid (PCI:0000:1a:00 GPU-I:05): 94, pid=77, name=a b, c\n":                                         {PCI: "0000:1a:00.0", XID: 94, GPUInstance: 5, ComputeInstance: NoInstance, PID: 77, Process: "a b"},
		// A name that a user chose.
		"NVRM: Xid (PCI:0000:1a:00): 31, pid=77, name=x\x1b[2J, pid=1, name=init, Ch": {PCI: "0000:1a:00.0", XID: 31, PID: 77, Process: "x?[2J"},
	} {
		if !strings.Contains(line, "GPU-I") {
			want.GPUInstance, want.ComputeInstance = NoInstance, NoInstance
		}
		got, ok := ParseKernelXID(line)
		if !ok {
			t.Errorf("%q is not read", line)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", line, d)
		}
	}
	for _, line := range []string{
		"", "NVRM: Xid", "NVRM: Xid (PCI:0000:1a:00)", "NVRM: Xid (): 31, pid=1", "NVRM: Xid (PCI:zz): 31", "NVRM: Xid (PCI:0000:1a:00): x, pid=1",
		"NVRM: GPU at PCI:0000:01:00: GPU-34d7319c-5b19-1e75-186d-c187099e4fe5",
		"12,1234,987654321,-;NVRM: Xid (PCI:0000:1a:00): 79, written by a program",
		// What a user chose, in messages of the kernel.
		"6,1235,987654322,-;process 'NVRM: Xid (PCI:0000:1a:00): 79, pid=1' started with executable stack",
		"4,1236,987654323,-;audit: type=1701 exe=\"/tmp/;NVRM: Xid (PCI:0000:1a:00): 79, pid=1\"",
		"4,1237,987654324,-; NVRM: Xid (PCI:0000:1a:00): 79, pid=1",
		" DEVICE=;NVRM: Xid (PCI:0000:1a:00): 79, pid=1",
		// A crash of "NVRM: Xid (1:0 " in a program of a chosen name.
		"6,1238,987654325,-;NVRM: Xid (1:0 [1451]: segfault at 0 ip 0 sp 0 error 4 in ): 79, pid=77, name=x[401000+1000]",
		"NVRM: Xid (PCI:1:0): 79", "NVRM: Xid (PCI:0000:1:00): 79", "NVRM: Xid (PCI:0000:1a:00.0): 79", "NVRM: Xid (0000:1a:00): 79",
		"NVRM: Xid (PCI:0000:1a:00 at 0 in GPU-I:03): 79, pid=77",
	} {
		if x, ok := ParseKernelXID(line); ok {
			t.Errorf("%q is read as %+v", line, x)
		}
	}
}

func FuzzParseKernelXID(f *testing.F) {
	f.Add("4,1,2,-;NVRM: Xid (PCI:0000:1a:00 GPU-I:03 GPU-CI:01): 43, pid=77, name=python, Ch 00000008")
	f.Add("NVRM: Xid (PCI:0000:01:00): 32, Channel ID 00000009 intr 00800000")
	f.Add("NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics")
	f.Add("NVRM: Xid (0:00): 0, pid=0, name=00000000")
	f.Fuzz(func(t *testing.T, line string) {
		x, ok := ParseKernelXID(line)
		if !ok {
			if x != (KernelXID{}) {
				t.Errorf("a refused line gives %+v", x)
			}
			return
		}
		pci, err := ParsePCIBusID(string(x.PCI))
		if err != nil || pci != x.PCI || x.XID < 0 || x.PID < 0 || x.GPUInstance < NoInstance || x.ComputeInstance < NoInstance || utf8.RuneCountInString(x.Process) > maxProcessName+1 {
			t.Errorf("%+v, %v", x, err)
		}
		for _, c := range x.Process {
			if !unicode.IsPrint(c) {
				t.Errorf("the process name %q would reach a terminal", x.Process)
			}
		}
		if x.PID == 0 && x.Process != "" {
			t.Errorf("a name without a process: %+v", x)
		}
	})
}
