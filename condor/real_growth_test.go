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
	const again = ": it runs again with request_vram = "
	for _, c := range []struct {
		name, job, since string
		request          string
		hit, held        string
		reason           string // of the hold at the job's end
	}{
		{"at first what it asked for", fourGB, "", "4096", "false", "false", ""},
		{"a success", fourGB, "VRAMProvisioned = 4096\nExitBySignal = false\nExitCode = 0\nVRAMUsage = 4096.0\n", "4096", "false", "false", ""},
		{"the site's exit code", fourGB, "VRAMProvisioned = 4096\nExitBySignal = false\nExitCode = 85\n", "4096", "true", "true",
			"the job ended at the limit of its VRAM, 4096 MiB" + again + "8192, retry 1 of 3"},
		{"an error near the limit", fourGB, "VRAMProvisioned = 4096\nExitBySignal = false\nExitCode = 1\nVRAMUsage = 3700.0\n", "4096", "true", "true",
			"the job ended at the limit of its VRAM, 4096 MiB" + again + "8192, retry 1 of 3"},
		{"an error far from it", fourGB, "VRAMProvisioned = 4096\nExitBySignal = false\nExitCode = 1\nVRAMUsage = 3600.0\n", "4096", "false", "false", ""},
		{"an error with an unknown use", fourGB, "VRAMProvisioned = 4096\nExitBySignal = false\nExitCode = 1\n", "4096", "false", "false", ""},
		{"an abort near the limit", fourGB, "VRAMProvisioned = 4096\nExitBySignal = true\nExitSignal = 6\nVRAMUsage = 4000.0\n", "4096", "true", "true",
			"the job ended at the limit of its VRAM, 4096 MiB" + again + "8192, retry 1 of 3"},
		{"after one such end", fourGB, "NumHoldsByReason = [ JobPolicy = 1 ]\nVRAMProvisioned = 4096\n", "8192", "false", "false", ""},
		{"after evictions", fourGB, "RequestVRAMGrown = 2\nVRAMProvisioned = 8192\n", "16384", "false", "false", ""},
		{"up to the card", oneJob + "RequestVRAM = 20000\n", "RequestVRAMGrown = 1\nVRAMProvisioned = 20480\n", "32256", "false", "false", ""},
		{"at the card", oneJob + "RequestVRAM = 20000\n", "RequestVRAMGrown = 1\nVRAMProvisioned = 32256\nExitBySignal = false\nExitCode = 85\n", "32256", "true", "true",
			"the job ended at the limit of its VRAM, 32256 MiB, the largest budget of this pool (Tesla V100S-PCIE-32GB): make it smaller, or spread it over several GPUs"},
		{"no more than that often", fourGB + "VRAMRetries = 1\n", "NumHoldsByReason = [ JobPolicy = 1 ]\nVRAMProvisioned = 8192\nExitBySignal = false\nExitCode = 85\n", "8192", "true", "true",
			"the job ended at the limit of its VRAM, 8192 MiB, after retry 1 of 1: release it with a larger request_vram, if that is what it needs"},
		{"not oftener than the site wants", fourGB + "VRAMRetries = 99\n", "NumHoldsByReason = [ JobPolicy = 4 ]\n", "32256", "false", "false", ""},
		{"not at all", fourGB + "VRAMRetries = 0\n", "VRAMProvisioned = 4096\nExitBySignal = false\nExitCode = 85\n", "4096", "true", "false", ""},
		{"the job's own rule goes first", fourGB + "OnExitHold = ExitCode > 80\nOnExitHoldReason = \"mine\"\n", "VRAMProvisioned = 4096\nExitBySignal = false\nExitCode = 85\n", "4096", "true", "true", "mine"},
		{"and leaves the rest to ours", fourGB + "OnExitHold = ExitCode > 90\nOnExitHoldReason = \"mine\"\n", "VRAMProvisioned = 4096\nExitBySignal = false\nExitCode = 85\n", "4096", "true", "true",
			"the job ended at the limit of its VRAM, 4096 MiB" + again + "8192, retry 1 of 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ad := h.grow(t, c.job, c.since)
			got := []string{h.evaluate(t, ad, "", "RequestVRAM"), h.evaluate(t, ad, "", "VRAMLimitHit"), h.evaluate(t, ad, "", "OnExitHold")}
			if want := []string{c.request, c.hit, c.held}; strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("request, limit hit, held: %v, want %v", got, want)
			}
			if got := h.evaluate(t, ad, "", "OnExitHoldReason"); c.reason != "" && got != c.reason {
				t.Errorf("reason %q, want %q", got, c.reason)
			}
		})
	}
	if ad := h.grow(t, twoGPUs+"RequestVRAM = 4096\n", ""); strings.Contains(ad, "VRAMRetries") {
		t.Errorf("a job with several GPUs grows: %s", ad)
	}
}

// Which held jobs are let go again.
func TestRealGrowthRelease(t *testing.T) {
	h := realHTCondor(t)
	for name, c := range map[string]struct{ since, want string }{
		"at its limit":           {"HoldReasonCode = 3\nHoldReasonSubCode = 82\nNumHoldsByReason = [ JobPolicy = 1 ]\nVRAMProvisioned = 4096\n", "true"},
		"over its budget":        {"HoldReasonCode = 21\nHoldReasonSubCode = 76\nRequestVRAMGrown = 1\nVRAMProvisioned = 4096\n", "true"},
		"no more":                {"HoldReasonCode = 3\nHoldReasonSubCode = 82\nNumHoldsByReason = [ JobPolicy = 4 ]\nVRAMProvisioned = 32768\n", "false"},
		"for another reason":     {"HoldReasonCode = 21\nHoldReasonSubCode = 77\nRequestVRAMGrown = 1\nVRAMProvisioned = 4096\n", "false"},
		"by its own rule":        {"HoldReasonCode = 3\nHoldReasonSubCode = 0\nNumHoldsByReason = [ JobPolicy = 1 ]\nVRAMProvisioned = 4096\n", "false"},
		"by its user":            {"HoldReasonCode = 1\nNumHoldsByReason = [ UserRequest = 1 ]\nVRAMProvisioned = 4096\n", "false"},
		"changed by its user":    {"RequestVRAM = 9000\nHoldReasonCode = 21\nHoldReasonSubCode = 76\nVRAMProvisioned = 4096\n", "true"},
		"before it ran anywhere": {"HoldReasonCode = 21\nHoldReasonSubCode = 76\n", "undefined"},
	} {
		ad := h.grow(t, fourGB, c.since)
		if got := h.evaluate(t, ad, "", h.value(t, "SYSTEM_PERIODIC_RELEASE_GPUSlotGrow")); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The slot's policy stops a job that can grow before it meets its limit.
func TestRealEarly(t *testing.T) {
	h := realHTCondor(t)
	h.write(t, "config.d/50-gpuslot.conf", executionPoint(t, grower()))
	for name, c := range map[string]struct{ slot, job, preempt, code string }{
		"near":                   {"VRAMUsage = 3892.0\n", "VRAMCanGrow = true\n", "true", "83"},
		"not so near":            {"VRAMUsage = 3891.0\n", "VRAMCanGrow = true\n", "false", "undefined"},
		"over it, for the agent": {"VRAMUsage = 4097.0\n", "VRAMCanGrow = true\n", "false", "undefined"},
		"near, and cannot grow":  {"VRAMUsage = 4096.0\n", "VRAMCanGrow = false\n", "false", "undefined"},
		"near, elsewhere's job":  {"VRAMUsage = 4096.0\n", "", "false", "undefined"},
		"no use known":           {"", "VRAMCanGrow = true\n", "false", "undefined"},
		"near, and the agent's":  {"VRAMUsage = 4096.0\nGPUSlotHoldReason = \"r\"\nGPUSlotHoldCode = 76\n", "VRAMCanGrow = true\n", "true", "76"},
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
	if got := h.evaluate(t, ad, "VRAMCanGrow = true\n", h.value(t, "SLOT_TYPE_101_WANT_HOLD_REASON")); got != want {
		t.Errorf("reason %q", got)
	}
}
