package condor

import (
	"strings"
	"testing"
)

// grower has the rules of growth that the site's examples have.
func grower() Node {
	n := exampleNode(v100s(0))
	n.Growth = Growth{Retries: 3, Factor: 2, ExitCodes: []int{85}, LimitPercent: 90, EarlyPercent: 95, OverBudget: 76, AtLimit: 82, NearLimit: 83}
	return n
}

// grow is a job's ad after the access point's transforms and whatever befell it.
func (h htcondor) grow(t *testing.T, job, since string) string {
	t.Helper()
	text, err := AccessPoint(PoolOf(grower()))
	if err != nil {
		t.Fatal(err)
	}
	h.write(t, "config.d/60-gpuslot.conf", string(text))
	names := strings.Join(strings.Fields(h.value(t, "JOB_TRANSFORM_NAMES")), ",")
	return transformed(h.run(t, "condor_transform_ads", "-jobtransforms", names, h.write(t, "job.ad", "ClusterId = 1\nProcId = 0\n"+job))) + "\n" + since
}

// What becomes of a job's request, by HTCondor's own evaluation.
func TestRealGrowth(t *testing.T) {
	h := realHTCondor(t)
	const again = "the job ended at the limit of its VRAM, 4096 MiB: it runs again with request_vram = 8192"
	ended := func(more string) string { return "VRAMProvisioned = 4096\nExitBySignal = false\n" + more }
	for _, c := range []struct {
		name, job, since string
		next             string
		hit, held        string
		reason           string // of the hold at the job's end
	}{
		{"at first twice what it asked for", fourGB, "", "8192", "false", "false", ""},
		{"a success", fourGB, ended("ExitCode = 0\nVRAMUsage = 4096.0\n"), "8192", "false", "false", ""},
		{"the site's exit code", fourGB, ended("ExitCode = 85\n"), "8192", "true", "true", again},
		{"an error near the limit", fourGB, ended("ExitCode = 1\nVRAMUsage = 3700.0\n"), "8192", "true", "true", again},
		{"an error far from it", fourGB, ended("ExitCode = 1\nVRAMUsage = 3600.0\n"), "8192", "false", "false", ""},
		{"an error with an unknown use", fourGB, ended("ExitCode = 1\n"), "8192", "false", "false", ""},
		{"an abort near the limit", fourGB, "VRAMProvisioned = 4096\nExitBySignal = true\nExitSignal = 6\nVRAMUsage = 4000.0\n", "8192", "true", "true", again},
		{"after one such end", fourGB, "RequestVRAM = 8192\n", "16384", "false", "false", ""},
		{"up to the card", oneJob + "RequestVRAM = 20000\n", "", "32256", "false", "false", ""},
		{"at the card", oneJob + "RequestVRAM = 32256\n", ended("ExitCode = 85\n"), "32256", "true", "false", ""},
		{"no more than that often", oneJob + "RequestVRAM = 1536\n", "RequestVRAM = 12288\n" + ended("ExitCode = 85\n"), "12288", "true", "false", ""},
		{"no more than the job wants", fourGB + "MaxRequestVRAM = 6000\n", "", "6000", "false", "false", ""},
		{"not more than the site wants", oneJob + "RequestVRAM = 1536\nMaxRequestVRAM = 99999\n", "RequestVRAM = 10000\n", "12288", "false", "false", ""},
		{"not at all", fourGB + "MaxRequestVRAM = 0\n", ended("ExitCode = 85\n"), "0", "true", "false", ""},
		{"the job's own rule goes first", fourGB + "OnExitHold = ExitCode > 80\nOnExitHoldReason = \"mine\"\n", ended("ExitCode = 85\n"), "8192", "true", "true", "mine"},
		{"and leaves the rest to ours, with its own reason", fourGB + "OnExitHold = ExitCode > 90\nOnExitHoldReason = \"mine\"\n", ended("ExitCode = 85\n"), "8192", "true", "true", "mine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ad := h.grow(t, c.job, c.since)
			got := []string{h.evaluate(t, ad, "", "NextRequestVRAM"), h.evaluate(t, ad, "", "VRAMLimitHit"), h.evaluate(t, ad, "", "OnExitHold")}
			if want := []string{c.next, c.hit, c.held}; strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("next request, limit hit, held: %v, want %v", got, want)
			}
			if got := h.evaluate(t, ad, "", "OnExitHoldReason"); c.reason != "" && got != c.reason {
				t.Errorf("reason %q, want %q", got, c.reason)
			}
		})
	}
	if ad := h.grow(t, twoGPUs+"RequestVRAM = 4096\n", ""); strings.Contains(ad, "NextRequestVRAM") {
		t.Errorf("a job with several GPUs grows: %s", ad)
	}
}

// The slot's policy stops a job that can grow before it meets its limit.
func TestRealEarly(t *testing.T) {
	h := realHTCondor(t)
	h.write(t, "config.d/50-gpuslot.conf", executionPoint(t, grower()))
	for name, c := range map[string]struct{ slot, job, preempt, code string }{
		"near":                   {"VRAMUsage = 3892.0\n", "RequestVRAM = 4096\nNextRequestVRAM = 8192\n", "true", "83"},
		"not so near":            {"VRAMUsage = 3891.0\n", "RequestVRAM = 4096\nNextRequestVRAM = 8192\n", "false", "undefined"},
		"over it, for the agent": {"VRAMUsage = 4097.0\n", "RequestVRAM = 4096\nNextRequestVRAM = 8192\n", "false", "undefined"},
		"near, and cannot grow":  {"VRAMUsage = 4096.0\n", "RequestVRAM = 4096\nNextRequestVRAM = 4096\n", "false", "undefined"},
		"near, elsewhere's job":  {"VRAMUsage = 4096.0\n", "", "false", "undefined"},
		"no use known":           {"", "RequestVRAM = 4096\nNextRequestVRAM = 8192\n", "false", "undefined"},
		"near, and the agent's":  {"VRAMUsage = 4096.0\nGPUSlotHoldReason = \"r\"\nGPUSlotHoldCode = 76\n", "RequestVRAM = 4096\nNextRequestVRAM = 8192\n", "true", "76"},
		"the agent's, no growth": {"GPUSlotHoldReason = \"r\"\nGPUSlotHoldCode = 77\n", "", "true", "77"},
	} {
		ad := "Name = \"s\"\n" + dslot + c.slot
		if got := h.evaluate(t, ad, c.job, h.value(t, "SLOT_TYPE_101_PREEMPT")); got != c.preempt {
			t.Errorf("%s: PREEMPT is %s, want %s", name, got, c.preempt)
		}
		if got := h.evaluate(t, ad, c.job, h.value(t, "SLOT_TYPE_101_WANT_HOLD_SUBCODE")); got != c.code {
			t.Errorf("%s: WANT_HOLD_SUBCODE is %s, want %s", name, got, c.code)
		}
	}
	ad := "Name = \"s\"\n" + dslot + "VRAMUsage = 3900.0\n"
	const want = "used 3900 MiB of 4096 MiB requested, which is near its limit: it runs again with a larger request_vram"
	if got := h.evaluate(t, ad, "RequestVRAM = 4096\nNextRequestVRAM = 8192\n", h.value(t, "SLOT_TYPE_101_WANT_HOLD_REASON")); got != want {
		t.Errorf("reason %q", got)
	}
}
