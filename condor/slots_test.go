package condor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// Recorded from condor_status -direct under 25.14.1: bob's job with 2048 MiB on
// a GPU of 8 shares and 32256 MiB.
func TestParseRecordedSlots(t *testing.T) {
	text, err := os.ReadFile("testdata/slots-25.14.1.ad")
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseSlots(string(text))
	if err != nil {
		t.Fatal(err)
	}
	gpu := string(uuid(2))
	want := []Slot{{
		Name: "slot3@node.test", Type: "Partitionable", State: "Unclaimed",
		AssignedGPUs: []string{gpu, gpu, gpu, gpu, gpu, gpu, gpu, gpu},
		VRAM:         number64(30208), GPUs: 7, Cpus: 10, Plan: "501337ebfeb6f8e7",
	}, {
		Name: "slot3_1@node.test", Type: "Dynamic", State: "Claimed", JobID: "41.0", RemoteOwner: "bob@gpuslot.test",
		AssignedGPUs: []string{gpu}, VRAM: number64(2048), GPUs: 1, Cpus: 1, Plan: "501337ebfeb6f8e7",
	}, {
		Name: "slot9@node.test", Type: "Partitionable", State: "Unclaimed",
		AssignedGPUs: []string{}, VRAM: number64(0), Cpus: 8, Plan: "501337ebfeb6f8e7",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseSlots(t *testing.T) {
	if got, err := parseSlots("\n\n"); err != nil || got != nil {
		t.Errorf("no slots are %v, %v", got, err)
	}
	got, err := parseSlots("Name = \"slot1_1@h\"\nAcctGroup = \"cms\"\nx509UserProxyVOName = \"atlas\"\n")
	if err != nil || got[0].Group != "cms" || got[0].VO != "atlas" {
		t.Errorf("group and VO: %+v, %v", got, err)
	}
	got, err = parseSlots("Name = \"slot1_1@h\"\nGlobalJobId = \"ap.test#40.0#1795257600\"\nMemory = 4096\nCmd = \"/home/a/train.py\"\nRequestCpus = 2\nRequestMemory = ifThenElse(true, 1, 2)\n")
	if s := got[0]; err != nil || s.Schedd != "ap.test" || s.Memory != 4096 || s.Program != "train.py" || *s.RequestCPUs != 2 || s.RequestMemory != nil || s.RequestGPUs != nil {
		t.Errorf("of its job: %+v, %v", s, err)
	}
	got, err = parseSlots("Name = \"slot1@h\"\n")
	if err != nil || got[0].VRAM != nil {
		t.Errorf("VRAM that the ad does not say is %v, %v", got, err)
	}
	for text, want := range map[string]string{
		"VRAM = 1\n":              "no Name",
		"Error: no such daemon":   "line 1",
		"Name = \"a\"\nName = 1":  `"Name" cannot be read`,
		"Name = \"a\"\nvram = \"": `"vram" cannot be read`,
		"Name = \"a\"\n= 1":       `"" cannot be read`,
	} {
		if _, err := parseSlots(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q in it", text, err, want)
		}
	}
}

// A user's odd text costs its own attribute, not the startd's whole answer.
func TestParseSlotsOddText(t *testing.T) {
	for _, line := range []string{"Cmd = \"/home/a/x\ry\"", "JobBatchName = \"no end", "AcctGroup =", "RemoteUser = \"a\x00b\""} {
		got, err := parseSlots("Name = \"slot1_1@h\"\n" + line + "\nVRAM = 2048\n\nName = \"slot1_2@h\"\nVRAM = 1\n")
		if err != nil || len(got) != 2 || *got[0].VRAM != 2048 || got[0].Program != "" || got[1].Name != "slot1_2@h" {
			t.Errorf("%q: %+v, %v", line, got, err)
		}
	}
}

// Every slot that is accepted has a name, and as many as there are ads.
func FuzzParseSlots(f *testing.F) {
	recorded, err := os.ReadFile("testdata/slots-25.14.1.ad")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(recorded))
	f.Add("Name = \"slot1@h\"\nVRAM = undefined\n\nName = \"x\"\nAssignedGPUs = \", ,GPU-a\"")
	f.Add("Name = \"slot1@\xff\x1f" + strings.Repeat("h", 300) + "\"")
	f.Fuzz(func(t *testing.T, text string) {
		slots, err := parseSlots(text)
		if err != nil {
			return
		}
		for _, s := range slots {
			if s.Name == "" || !strings.Contains(foreign.Text(text, len(text)), strings.TrimSuffix(s.Name, "…")) && !strings.Contains(text, `\"`) {
				t.Fatalf("%q holds no slot %q", text, s.Name)
			}
			for _, id := range s.AssignedGPUs {
				if id == "" || strings.ContainsAny(id, ", \t") {
					t.Fatalf("%q: id %q", text, id)
				}
			}
		}
	})
}

// tool puts a program of that name into PATH.
func tool(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestSlotsAsksTheLocalStartd(t *testing.T) {
	tool(t, "condor_status", `[ "$1" = -direct ] && [ "$2" = "" ] && [ "$3" = -long ] && echo 'Name = "slot1@h"'`)
	got, err := Slots(t.Context(), "")
	if err != nil || len(got) != 1 || got[0].Name != "slot1@h" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestCommandErrors(t *testing.T) {
	for name, c := range map[string]struct{ program, script, want string }{
		"fails":         {"condor_version", "echo 'Error: no config' >&2; exit 1", "exit status 1: Error: no config"},
		"not installed": {"other", "", "install HTCondor 24.0.1 or later"},
		"says nothing":  {"condor_version", "", "no $CondorVersion"},
		"hangs":         {"condor_version", "exec sleep 60", "did not end in time"},
	} {
		t.Run(name, func(t *testing.T) {
			tool(t, c.program, c.script)
			ctx, cancel := context.WithCancel(t.Context())
			if name == "hangs" {
				ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
			}
			defer cancel()
			_, err := InstalledVersion(ctx)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

// TestBoundedOutput: what users chose to stand in ads cannot take the agent's memory.
func TestBoundedOutput(t *testing.T) {
	out, err := output(t.Context(), nil, "sh", "-c", "echo begin; head -c 70000000 /dev/zero")
	if err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("%d bytes, %v", len(out), err)
	}
	if out, err = output(t.Context(), nil, "sh", "-c", "echo out; echo err >&2"); err != nil || out != "out\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err = output(t.Context(), nil, "sh", "-c", "echo why >&2; exit 3"); err == nil || !strings.HasSuffix(err.Error(), "exit status 3: why") {
		t.Error(err)
	}
}
