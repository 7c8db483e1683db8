package condor

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
)

// What a site's configuration takes from the generated one, by HTCondor's own reading.
func TestRealOverrides(t *testing.T) {
	h := realHTCondor(t)
	const ours, theirs = "config.d/50-gpuslot.conf", "config.d/90-site.conf"
	for name, c := range map[string]struct {
		site string
		// want are the beginnings of what is said, breaks is the worst of it.
		want   []string
		breaks Breaks
	}{
		"nothing":             {"START = Owner =!= \"mallory\"\nSTARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) SITE\n", nil, BreaksNothing},
		"fewer CPUs":          {"NUM_CPUS = 64\nMEMORY = 200000\nRESERVED_MEMORY = 4096\nRESERVED_DISK = 1000\n", nil, BreaksNothing},
		"attributes":          {"STARTD_ATTRS = SiteName\nSiteName = \"here\"\n", nil, BreaksNothing},
		"weight":              {"SLOT_WEIGHT = Cpus\nMAX_SLOT_TYPES = 20\n", nil, BreaksNothing},
		"cron jobs":           {"# comment\nSTARTD_CRON_JOBLIST = SITE\n", []string{"STARTD_CRON_JOBLIST = SITE (SITEFILE, line 2) leaves out GPUSLOT GPUSLOT_USAGE"}, BreaksPolicy},
		"one slot for all":    {"SLOT_TYPE_1 = 100%\nSLOT_TYPE_1_PARTITIONABLE = TRUE\nNUM_SLOTS_TYPE_1 = 1\n", []string{"NUM_SLOTS_TYPE_1 = 1 (SITEFILE, line 3) makes slots"}, BreaksLayout},
		"no slots":            {"SLOT_TYPE_1 = 100%\nNUM_SLOTS_TYPE_1 = 0\n", nil, BreaksNothing},
		"resource names":      {"MACHINE_RESOURCE_NAMES = GPUs, Foo\n", []string{"MACHINE_RESOURCE_NAMES = GPUs, Foo (SITEFILE, line 1) hides"}, BreaksLayout},
		"all resource names":  {"MACHINE_RESOURCE_NAMES = gpus vram\n", nil, BreaksNothing},
		"own GPUs":            {"MACHINE_RESOURCE_GPUs = a, b\n", []string{"MACHINE_RESOURCE_GPUs = a, b (SITEFILE, line 1) takes the place"}, BreaksLayout},
		"daemons":             {"DAEMON_LIST = MASTER, SCHEDD\n", []string{"DAEMON_LIST = MASTER, SCHEDD (SITEFILE, line 1) has no STARTD"}, BreaksPolicy},
		"our type":            {"SLOT_TYPE_101 = 25%\n", []string{"SLOT_TYPE_101 = 25% (SITEFILE, line 1) replaces"}, BreaksLayout},
		"our START":           {"SLOT_TYPE_102_START = true\n", []string{"SLOT_TYPE_102_START = true (SITEFILE, line 1) replaces"}, BreaksPolicy},
		"our hook":            {"slot_type_101.STARTER_JOB_HOOK_KEYWORD = SITE\n", []string{"slot_type_101.STARTER_JOB_HOOK_KEYWORD = SITE (SITEFILE, line 1)"}, BreaksNothing},
		"the startd's own":    {"STARTD.NUM_CPUS = 8\n", []string{"STARTD.NUM_CPUS = 8 (SITEFILE, line 1) replaces"}, BreaksLayout},
		"inventory":           {"use feature:GPUs\n", []string{"MACHINE_RESOURCE_INVENTORY_GPUs = "}, BreaksLayout},
		"the same once again": {"MACHINE_RESOURCE_VRAM = 64512\n", nil, BreaksNothing},
	} {
		t.Run(name, func(t *testing.T) {
			text := executionPoint(t, examples()["mixed"])
			file := h.write(t, ours, text)
			site := h.write(t, theirs, c.site)
			got := Overrides([]byte(text), file, parseSettings(h.value(t, "-dump", "-verbose")))
			var says []string
			breaks := BreaksNothing
			for i, o := range got {
				says = append(says, o.Says)
				breaks = max(breaks, o.Breaks)
				if i >= len(c.want) || !strings.HasPrefix(o.Says, strings.ReplaceAll(c.want[i], "SITEFILE", site)) {
					t.Errorf("it says %q, want %q", o.Says, c.want)
				}
			}
			if len(says) != len(c.want) || breaks != c.breaks {
				t.Errorf("%d overrides, the worst %d, want %d and %d: %q", len(says), breaks, len(c.want), c.breaks, says)
			}
		})
	}
	t.Run("startds of their own", func(t *testing.T) {
		text := executionPoint(t, examples()["each"])
		file := h.write(t, ours, text)
		for site, want := range map[string]int{"DAEMON_LIST = $(DAEMON_LIST) STARTD\n": 0, "DAEMON_LIST = MASTER STARTD\n": 1} {
			h.write(t, theirs, site)
			if got := Overrides([]byte(text), file, parseSettings(h.value(t, "-dump", "-verbose"))); len(got) != want {
				t.Errorf("%s: %+v", site, got)
			}
		}
	})
	t.Run("not read", func(t *testing.T) {
		h.write(t, ours, "")
		h.write(t, theirs, "")
		text := executionPoint(t, examples()["mixed"])
		got := Overrides([]byte(text), "/run/gpuslot/condor/execution-point.conf", parseSettings(h.value(t, "-dump", "-verbose")))
		if len(got) != 1 || got[0].Breaks != BreaksLayout || !strings.HasPrefix(got[0].Says, "HTCondor does not read /run/gpuslot") {
			t.Errorf("%+v", got)
		}
	})
}

// What the site leaves to HTCondor, and the slot types of its own, which get no slots.
func TestRealSiteLayout(t *testing.T) {
	h := realHTCondor(t)
	h.write(t, "config.d/90-site.conf", "NUM_CPUS = 64\nMEMORY = 200000\nRESERVED_MEMORY = 4096\n"+
		"SLOT_TYPE_1 = 100%\nNUM_SLOTS_TYPE_1 = 1\nNUM_SLOTS_TYPE_2 = 0\nMAX_SLOT_TYPES = 12\nDAEMON_LIST = MASTER, STARTD\n")
	n := examples()["mixed"]
	file := h.write(t, "config.d/50-gpuslot.conf", executionPoint(t, n))
	now := parseSettings(h.value(t, "-dump", "-verbose"))
	if got, want := now.Within(gpu.Host{CPUs: 96, Memory: 385024}), (gpu.Host{CPUs: 64, Memory: 200000 - 4096}); got != want {
		t.Errorf("the site leaves %+v, want %+v", got, want)
	}
	if got, want := now.Within(gpu.Host{CPUs: 8, Memory: 2048}), (gpu.Host{CPUs: 8, Memory: 2048}); got != want {
		t.Errorf("a small host: %+v, want %+v", got, want)
	}
	if n.SiteSlotTypes = now.SlotTypes(); !slices.Equal(n.SiteSlotTypes, []int{1}) {
		t.Fatalf("the site's slot types are %v", n.SiteSlotTypes)
	}
	text := executionPoint(t, n)
	h.write(t, "config.d/50-gpuslot.conf", text)
	startd := func(name string) string { return h.value(t, "-subsystem", "STARTD", name) }
	for name, want := range map[string]string{
		"NUM_SLOTS_TYPE_1": "0", "NUM_SLOTS_TYPE_101": "1", "NUM_CPUS": "96", "MEMORY": "385024 + 4096", "MAX_SLOT_TYPES": "700",
	} {
		if got := startd(name); got != want {
			t.Errorf("the startd reads %s = %s, want %s", name, got, want)
		}
	}
	got := Overrides([]byte(text), file, parseSettings(h.value(t, "-dump", "-verbose")))
	site := filepath.Join(h.dir, "config.d/90-site.conf")
	if len(got) != 1 || got[0].Breaks != BreaksNothing || !strings.HasPrefix(got[0].Says, "NUM_SLOTS_TYPE_1 = 1 ("+site+", line 5) counts no more") {
		t.Errorf("of the slot type that is set aside: %+v", got)
	}
}

// Nothing known bounds nothing.
func TestNoSettings(t *testing.T) {
	h := gpu.Host{CPUs: 96, Memory: 385024}
	if got := (Settings)(nil).Within(h); got != h {
		t.Errorf("%+v", got)
	}
	if got := (Settings)(nil).SlotTypes(); got != nil {
		t.Errorf("%v", got)
	}
}
