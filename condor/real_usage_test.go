package condor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The fleet's table is read by the real condor_status and shows one line for
// each shared GPU: open, with a stale stamp, closed with its reason.
func TestRealPrintFormat(t *testing.T) {
	h := realHTCondor(t)
	slot := func(name, uuid, more string) string {
		return "Name = \"" + name + "@wn1\"\nMachine = \"wn1\"\nSlotType = \"Partitionable\"\nTotalSlotGPUs = 8\nTotalSlotVRAM = 32256\nVRAM = 24064\nNumDynamicSlots = 2\nGPUSlotUUID = \"" + uuid + "\"\n" + more + "\n"
	}
	ads := slot("slot1", "GPU-5a1e0c11-7d02", "GPUAccept = true\nGPUAcceptTime = time() - 5\nGPUTenant = \"alice\"\nGPUVerified = true\n") +
		slot("slot2", "GPU-8c24d7b2-19e5", "GPUAccept = true\nGPUAcceptTime = 1\n") +
		slot("slot3", "GPU-c07d51e9-26ab", "GPUAccept = false\nGPUAcceptTime = time()\nGPUAcceptReason = \"Xid 79: it is lost\"\n") +
		"Name = \"slot4@wn1\"\nMachine = \"wn1\"\nSlotType = \"Partitionable\"\nCpus = 8\n\n"
	format, err := filepath.Abs("../etc/condor/gpuslot-status.cpf")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(h.run(t, "condor_status", "-ads", h.write(t, "slots.ad", ads), "-print-format", format)) {
		if line := strings.Join(strings.Fields(line), " "); line != "" {
			got = append(got, line)
		}
	}
	want := []string{
		"NODE GPU JOBS SHARES GIVEN/MiB POOL/MiB TAKES TENANT VERIFIED REASON",
		"wn1 GPU-5a1e0c11 2 8 8192 32256 yes alice yes",
		"wn1 GPU-8c24d7b2 2 8 8192 32256 stale - -",
		"wn1 GPU-c07d51e9 2 8 8192 32256 no - - Xid 79: it is lost",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The expressions for AUDITOR evaluate to whole numbers in any job's ad; the
// collector splits at commas, so there is none.
func TestRealAuditorKeys(t *testing.T) {
	h := realHTCondor(t)
	text, err := os.ReadFile("../etc/auditor/gpuslot-htcondor-collector.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, components, _ := strings.Cut(string(text), "\ncomponents:\n")
	used := "VRAMUsage = 800.0\nGPUTimeUsage = 6.5\nGPUEnergyUsage = 3886.18\nRemoteWallClockTime = 12.0\n"
	want := map[string]map[string]string{"GPUPeak": {used: "800", "RemoteWallClockTime = 0.0\n": "0"}, "GPUTime": {used: "541", "RemoteWallClockTime = 0.0\n": "0"}, "GPUPower": {used: "323", "RemoteWallClockTime = 0.0\n": "0"}}
	name := ""
	for line := range strings.Lines(components) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "- name":
			name = value
		case "key":
			for ad, number := range want[name] {
				if got := h.evaluate(t, ad, "", value); got != number || strings.Contains(value, ",") {
					t.Errorf("%s: %s is %q in %q, want %s", name, value, got, ad, number)
				}
			}
			delete(want, name)
		}
	}
	if len(want) > 0 {
		t.Errorf("not in the file: %v", want)
	}
}
