package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

const doctorGPU = gpu.UUID("GPU-0000000a-0000-4000-8000-000000000000")

// healthy are the facts of a node where every check finds nothing.
func healthy() facts {
	cfg := config.Default()
	return facts{
		root: true, config: cfg, ptrace: "1", inventory: gpu.Inventory{Driver: "615.71.09"},
		plan:        plan.Plan{GPUs: []plan.GPU{{UUID: doctorGPU, Mode: config.ModeMPS, Shares: 7, Tenancy: plan.Tenancy{Policy: config.TenancyOneAtATime}}}},
		persistence: map[gpu.UUID]gpu.Measured[bool]{doctorGPU: gpu.Known(true)},
		status:      api.Status{Version: "0.1.0", GPUs: []api.StatusGPU{{Accept: true, DaemonPID: 7}}},
		openFiles:   []openFiles{{pid: 7, what: "control daemon of GPU 0", soft: 65536}},
		version:     condor.Version{Major: 25, Minor: 14, Patch: 1},
		totalGPUs:   7,
		selinux:     selinux{absent: true},
		settings: map[string]string{
			settingOpen: "x", settingHook: cfg.Paths.Libexec + "/prepare", settingScratch: `"/tmp,/var/tmp"`, settingSharedMemory: "false",
			startOf(101): "MY.GPUAccept =?= true && true", keywordOf(101): "GPUSLOT", wrapperOf(101): cfg.Paths.Libexec + "/supervise",
			settingInventory: cfg.Paths.Libexec + "/gpuslot-condor inventory /run/gpuslot/condor/inventory.ad",
			settingDaemons:   "MASTER, SCHEDD STARTD", settingTransforms: "X GPUSlotRound", settingLogins: "False",
		},
	}
}

// TestHealthy: each check says ok, and why.
func TestHealthy(t *testing.T) {
	for _, f := range diagnose(healthy()) {
		if f.Level != OK || f.What == "" {
			t.Errorf("%+v", f)
		}
	}
	if worst := Worst(diagnose(healthy())); worst != OK && worst != Note {
		t.Errorf("the worst is %s", worst)
	}
}

// TestNothingKnown: what could not be read is never ok.
func TestNothingKnown(t *testing.T) {
	none := errors.New("none of it")
	unknown := facts{config: config.Default(), planErr: none, generatedErr: none, prepareErr: none, inventoryErr: none,
		persistenceErr: none, uvmErr: none, statusErr: none, versionErr: none, totalErr: none, settingsErr: none,
		selinux: selinux{err: none}}
	for _, f := range diagnose(unknown) {
		if f.Level == OK {
			t.Errorf("%+v", f)
		}
	}
	for name, spoil := range map[string]func(*facts){
		"plan":     func(f *facts) { f.planErr, f.plan = none, plan.Plan{} },
		"settings": func(f *facts) { f.settingsErr, f.settings = none, nil },
	} {
		f := healthy()
		spoil(&f)
		for _, check := range []func(facts) []Finding{checkGuards, checkHooks, checkWrappers, checkInventory, checkHiding,
			checkAccounts, checkJobExit, checkContainers, checkOutside} {
			for _, found := range check(f) {
				if found.Level == OK {
					t.Errorf("%s: %+v", name, found)
				}
			}
		}
	}
}

// TestPrintCounts: the sums at the end are those of the lines above.
func TestPrintCounts(t *testing.T) {
	f := healthy()
	f.settingsErr = errors.New("none of it")
	var b strings.Builder
	Print(&b, diagnose(f))
	lines := 0
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "warning") {
			lines++
		}
	}
	if want := "warning " + strconv.Itoa(lines) + ","; lines == 0 || !strings.Contains(b.String(), want) {
		t.Errorf("%d lines:\n%s", lines, b.String())
	}
}

// TestDriverFeatures: doctor has the table of plan and docs. What the branch before lacks is
// named with its driver and what follows.
func TestDriverFeatures(t *testing.T) {
	for _, feature := range plan.Features() {
		line := fmt.Sprintf("driver %d: %s; without it: %s", feature.Branch, feature.Name, feature.Without)
		for branch, want := range map[int]bool{feature.Branch - 1: true, feature.Branch: false} {
			found := checkDriver(facts{inventory: gpu.Inventory{Driver: fmt.Sprintf("%d.10.01", branch)}})
			if has := strings.Contains(found[0].What, line); len(found) != 1 || has != want {
				t.Errorf("driver %d: %+v; want %q: %v", branch, found, line, want)
			}
		}
	}
}

// divided is a node of one A100 in MIG mode.
func divided(driver string, profiles ...string) func(*facts) {
	return func(f *facts) {
		g := gpu.GPU{UUID: doctorGPU, Name: "NVIDIA A100-SXM4-40GB", Memory: 40960, Capability: gpu.ComputeCapability{Major: 8}, Multiprocessors: 108,
			MIGCapable: true, MIGEnabled: true, MIGDevices: []gpu.MIGDevice{}}
		for _, p := range profiles {
			g.MIGDevices = append(g.MIGDevices, gpu.MIGDevice{Profile: p})
		}
		f.inventory = gpu.Inventory{Driver: driver, GPUs: []gpu.GPU{g}}
	}
}

// besides has a GPU without MIG mode too.
func besides(driver string) func(*facts) {
	return func(f *facts) {
		divided(driver, "3g.20gb", "4g.20gb")(f)
		f.inventory.GPUs = append(f.inventory.GPUs, gpu.GPU{Index: 1, Name: "Tesla V100S-PCIE-32GB"})
	}
}

// TestChecks: one thing is wrong, and exactly the check for it says so. Every
// case starts from a healthy node.
func TestChecks(t *testing.T) {
	none := errors.New("none of it")
	yes, no := true, false
	privileges := func(has *bool) []api.Capability { return []api.Capability{{Name: "privilege-checks", Has: has}} }
	tenancy := func(p config.TenancyPolicy, user string) func(*facts) {
		return func(f *facts) { f.plan.GPUs[0].Tenancy = plan.Tenancy{Policy: p, User: user} }
	}
	common := tenancy(config.TenancyCommon, "gpujobs")
	for name, c := range map[string]struct {
		spoil func(*facts)
		check func(facts) []Finding
		level Level
		says  string // in what, why or do
	}{
		"not root":            {func(f *facts) { f.root = false }, checkRoot, Note, "sudo gpuslot doctor"},
		"bad file":            {func(f *facts) { f.configErr = errors.New("a\nb") }, checkConfiguration, Error, "a\nb"},
		"no plan":             {func(f *facts) { f.planErr = none }, checkConfiguration, Warning, "not checked: which GPUs"},
		"persistence off":     {func(f *facts) { f.persistence[doctorGPU] = gpu.Known(false) }, checkPersistence, Warning, "GPU 0: persistence mode is off"},
		"persistence unknown": {func(f *facts) { f.persistence = nil }, checkPersistence, Note, "GPU 0: there is no persistence mode"},
		"no NVML":             {func(f *facts) { f.persistenceErr = none }, checkPersistence, Warning, "not checked: none of it"},
		"persistence of what": {func(f *facts) { f.planErr, f.plan = none, plan.Plan{} }, checkPersistence, Warning, "not checked: none of it"},
		"nothing shared":      {func(f *facts) { f.persistenceErr, f.plan = none, plan.Plan{} }, checkPersistence, OK, "no GPU is shared"},
		"MIG not known":       {func(f *facts) { f.inventoryErr = none }, checkMIG, Warning, "not checked: none of it"},
		"MIG without devices": {divided("550.163.01"), checkMIG, Error, "nvidia-smi -i " + string(doctorGPU) + " -mig 0"},
		"MIG in full size":    {divided("550.163.01", "7g.40gb"), checkMIG, Warning, "loses 10 of 108 SMs"},
		"MIG beside others":   {besides("550.163.01"), checkMIG, Warning, "driver 570"},
		"MIG beside, new":     {besides("570.86.15"), checkMIG, OK, "1 of 2 GPUs"},
		"MIG as it should be": {divided("550.163.01", "3g.20gb", "4g.20gb"), checkMIG, OK, "1 of 1 GPUs are in MIG mode"},
		"nobody tells demand": {func(f *facts) { f.status.Repartition = []api.StatusRepartition{{Setting: "auto", At: time.Now()}} }, checkMIG, Warning, "no access point"},
		"driver not known":    {func(f *facts) { f.inventory.Driver = "" }, checkDriver, Warning, "not checked"},
		"driver 615":          {func(f *facts) { f.inventory.Driver = "615.71.09" }, checkDriver, OK, "615.71.09 has all"},
		"driver 470":          {func(f *facts) { f.inventory.Driver = "470.256.02" }, checkDriver, Warning, "GPUs are whole"},
		"no uvm":              {func(f *facts) { f.uvmErr = none }, checkUVM, Warning, "nvidia-modprobe -u -c 0"},
		"no uvm needed":       {func(f *facts) { f.uvmErr, f.plan = none, plan.Plan{} }, checkUVM, OK, "no GPU is shared"},
		"few files":           {func(f *facts) { f.openFiles[0].soft = leastOpenFiles - 1 }, checkOpenFiles, Warning, "may open 16383 files"},
		"just enough files":   {func(f *facts) { f.openFiles[0].soft = leastOpenFiles }, checkOpenFiles, OK, "1 control daemons"},
		"files unreadable":    {func(f *facts) { f.openFiles[0].err = none }, checkOpenFiles, Warning, "not checked: control daemon of GPU 0"},
		"no daemons":          {func(f *facts) { f.openFiles = nil }, checkOpenFiles, Warning, "not checked: no control daemon"},
		"no agent, no files":  {func(f *facts) { f.statusErr = none }, checkOpenFiles, Warning, "not checked"},
		"multi-user":          {tenancy(config.TenancyMultiUser, ""), checkTenancy, Note, "command lines"},
		"common":              {common, checkTenancy, Note, "the account gpujobs"},
		"common, signals":     {common, checkTenancy, Note, "signals, read and change each other's files"},
		"common, ptrace":      {common, checkTenancy, Note, "ptrace_scope is 1"},
		"common, not known":   {common, checkTenancy, Note, "is not known"},
		"common, 535":         {func(f *facts) { common(f); f.status.MPS = privileges(&no) }, checkTenancy, Note, "change everybody's limits"},
		"common, 550":         {func(f *facts) { common(f); f.status.MPS = privileges(&yes) }, checkTenancy, Note, "only root may change"},
		"tenancy of what":     {func(f *facts) { f.planErr = none }, checkTenancy, Warning, "not checked"},
		"no agent":            {func(f *facts) { f.statusErr, f.inForce = none, true }, checkAgent, Error, "systemctl restart gpuslotd.socket"},
		"never an agent":      {func(f *facts) { f.statusErr = none }, checkAgent, Error, "systemctl enable --now gpuslotd"},
		"no hook program":     {func(f *facts) { f.prepareErr = none }, checkHooks, Error, "install the package"},
		"hook of nothing":     {func(f *facts) { f.plan = plan.Plan{} }, checkHooks, OK, "no GPU is shared"},
		"startds of what":     {func(f *facts) { f.planErr, f.plan = none, plan.Plan{} }, checkStartds, Warning, "not checked"},
		"out of service":      {func(f *facts) { outOfService(f); f.status.GPUs[0].Accept = false }, checkAgent, Warning, "gpuslot node resume"},
		"no daemons, away":    {func(f *facts) { outOfService(f); f.openFiles = nil }, checkOpenFiles, OK, "the node is reverted"},
		"agent refuses":       {func(f *facts) { f.root, f.statusErr = false, errors.New("gpuslotd refuses the request: x") }, checkAgent, Warning, "not checked: gpuslotd refuses"},
		"agent refuses root":  {func(f *facts) { f.statusErr = errors.New("gpuslotd refuses the request: x") }, checkAgent, Error, "refuses"},
		"agent is not there":  {func(f *facts) { f.root, f.statusErr = false, none }, checkAgent, Error, "none of it"},
		"rejected":            {func(f *facts) { f.status.ConfigError = "line 2" }, checkAgent, Error, "was rejected: line 2"},
		"unlisted":            {func(f *facts) { f.status.GPUs[0].Unlisted = "875 MiB are in use" }, checkAgent, Warning, "GPU 0: 875 MiB are in use"},
		"closed":              {func(f *facts) { f.status.GPUs[0].Accept, f.status.GPUs[0].Reason = false, "wedged" }, checkAgent, Warning, "takes no jobs: wedged"},
		"absent":              {func(f *facts) { f.status.Absent = []string{"GPU-9"} }, checkAgent, Warning, "GPU-9 is configured"},
		"agent warns":         {func(f *facts) { f.status.Warnings = []string{"older plan"} }, checkAgent, Warning, "older plan"},
		"missing wall":        {func(f *facts) { f.status.MissingEnforcement = []string{"no cgroups"} }, checkEnforcement, Note, "no cgroups"},
		"broken version":      {func(f *facts) { f.version = condor.Version{Major: 23, Minor: 9, Patch: 6} }, checkVersion, Error, "2678"},
		"new version":         {func(f *facts) { f.version.Major = 99 }, checkVersion, Warning, "not tried"},
		"no HTCondor":         {func(f *facts) { f.versionErr = none }, checkVersion, Warning, "not checked"},
		"ids forgotten":       {func(f *facts) { f.totalGPUs = 1 }, checkIDs, Error, "counts 1 GPUs, the inventory has 7 ids"},
		"ids with a whole GPU": {func(f *facts) {
			f.plan.GPUs = append(f.plan.GPUs, plan.GPU{Mode: config.ModeWhole, Shares: 1})
			f.totalGPUs = 8
		}, checkIDs, OK, "all 8 ids"},
		"no guards, never there": {func(f *facts) { delete(f.settings, settingOpen); f.generatedErr, f.statusErr = none, none }, checkGuards, Error, "systemctl enable --now gpuslotd"},
		"no guards yet":          {func(f *facts) { delete(f.settings, settingOpen); f.generatedErr = none }, checkGuards, Error, "see the finding about the agent"},
		"no guards, the site's": {func(f *facts) {
			delete(f.settings, settingOpen)
			f.generatedErr, f.config.HTCondor.Manage = none, false
		}, checkGuards, Error, "gpuslot condor-config prints"},
		"no guards, away":        {func(f *facts) { outOfService(f); delete(f.settings, settingOpen) }, checkGuards, Note, "gpuslot node resume"},
		"no startd":              {func(f *facts) { f.totalErr = none }, checkIDs, Warning, "not checked"},
		"ids of what":            {func(f *facts) { f.planErr = none }, checkIDs, Warning, "not checked"},
		"no guards":              {func(f *facts) { delete(f.settings, settingOpen) }, checkGuards, Error, "include ifexist : /run/gpuslot/condor/execution-point.conf"},
		"START overridden":       {func(f *facts) { f.settings[startOf(101)] = "true" }, checkGuards, Error, "SLOT_TYPE_101_START"},
		"no settings":            {func(f *facts) { f.settingsErr = none }, checkGuards, Warning, "not checked"},
		"guards of what":         {func(f *facts) { f.planErr = none }, checkGuards, Warning, "not checked"},
		"no keyword":             {func(f *facts) { delete(f.settings, keywordOf(101)) }, checkHooks, Error, "slot_type_101.STARTER_JOB_HOOK_KEYWORD = GPUSLOT"},
		"another keyword":        {func(f *facts) { f.settings[keywordOf(101)] = "SITE" }, checkHooks, Warning, "is SITE, not GPUSLOT"},
		"another program":        {func(f *facts) { f.settings[settingHook] = "/site" }, checkHooks, Warning, "is /site, not"},
		"hooks unknown":          {func(f *facts) { f.settingsErr = none }, checkHooks, Warning, "not checked"},
		"another wrapper":        {func(f *facts) { f.settings[wrapperOf(101)] = "/site" }, checkWrappers, Warning, "htcondor.job_wrapper"},
		"no wrapper":             {func(f *facts) { delete(f.settings, wrapperOf(101)) }, checkWrappers, Warning, "is -, not"},
		"without supervise":      {func(f *facts) { f.config.HTCondor.Supervise = false }, checkWrappers, Note, "supervise = false"},
		"wrappers unknown":       {func(f *facts) { f.settingsErr = none }, checkWrappers, Warning, "not checked"},
		"scratch hides":          {func(f *facts) { f.settings[settingScratch] = `"/tmp, /run"` }, checkScratch, Error, "it names /run"},
		"scratch hides all":      {func(f *facts) { f.settings[settingScratch] = "/run/gpuslot/mps/" }, checkScratch, Error, "it names /run/gpuslot/mps"},
		"scratch hides another":  {func(f *facts) { f.settings[settingScratch] = "/run/gpuslot/m,/ru" }, checkScratch, OK, "/run/gpuslot/mps"},
		"scratch is computed":    {func(f *facts) { f.settings[settingScratch] = `ifThenElse(x, "/run", "")` }, checkScratch, Warning, "not checked"},
		"scratch unknown":        {func(f *facts) { f.settingsErr = none }, checkScratch, Warning, "not checked"},
		"private shared memory":  {func(f *facts) { f.settings[settingSharedMemory] = "true" }, checkSharedMemory, Note, "MOUNT_PRIVATE_DEV_SHM = false"},
		"shared memory not said": {func(f *facts) { delete(f.settings, settingSharedMemory) }, checkSharedMemory, Note, "means true"},
		"another inventory":      {func(f *facts) { f.settings[settingInventory] = "condor_gpu_discovery" }, checkInventory, Error, "use feature:GPUs"},
		"bare ids":               {func(f *facts) { f.settings[settingIDs] = "GPU-1" }, checkInventory, Error, "take MACHINE_RESOURCE_GPUs out"},
		"inventory of what":      {func(f *facts) { f.planErr = none }, checkInventory, Warning, "not checked"},
		"no inventory needed":    {func(f *facts) { f.plan, f.settings = plan.Plan{}, nil }, checkInventory, OK, "no GPU is shared"},
		"no startds":             {perGPU("MASTER STARTD", ""), checkStartds, Error, "GPUSLOT_STARTDS is not defined"},
		"startds not started":    {perGPU("MASTER STARTD", "STARTD_GPU1 STARTD_GPU2"), checkStartds, Error, "DAEMON_LIST = $(DAEMON_LIST) $(GPUSLOT_STARTDS)"},
		"startds as they are":    {perGPU("MASTER STARTD STARTD_GPU1", "STARTD_GPU1"), checkStartds, OK, "startds of 1 GPUs"},
		"startds unknown":        {func(f *facts) { perGPU("", "")(f); f.settingsErr = none }, checkStartds, Warning, "not checked"},
		"one startd":             {func(f *facts) { f.settings = nil }, checkStartds, OK, "one startd for all GPUs"},
		"nothing hidden":         {func(f *facts) { f.settings[settingHide] = "False" }, checkHiding, Warning, "STARTER_HIDE_GPU_DEVICES = true"},
		"hiding emptied":         {func(f *facts) { f.plan.GPUs[0].UUID = "MIG-1" }, checkHiding, Note, "hides nothing from jobs on MIG-1"},
		"hiding unknown":         {func(f *facts) { f.settingsErr = none }, checkHiding, Warning, "not checked"},
		"an account each":        {func(f *facts) { f.slotUsers = map[string]string{"SLOT1_1_USER": "b", "SLOT1_2_USER": "a"} }, checkAccounts, Warning, "(a, b)"},
		"an account for all":     {func(f *facts) { f.slotUsers = map[string]string{"SLOT1_1_USER": "a", "SLOT1_2_USER": "a"} }, checkAccounts, OK, "no setting"},
		"accounts at once": {func(f *facts) {
			tenancy(config.TenancyMultiUser, "")(f)
			f.slotUsers = map[string]string{"SLOT1_1_USER": "b", "SLOT1_2_USER": "a"}
		}, checkAccounts, OK, "no setting"},
		"dedicated accounts":  {func(f *facts) { f.settings[settingDedicated] = "slot.*" }, checkAccounts, Warning, "MPS server"},
		"accounts unknown":    {func(f *facts) { f.settingsErr = none }, checkAccounts, Warning, "not checked"},
		"a job exit hook":     {func(f *facts) { f.settings[settingJobExit] = "/site" }, checkJobExit, Error, "never finishes"},
		"job exit unknown":    {func(f *facts) { f.settingsErr = none }, checkJobExit, Warning, "not checked"},
		"docker":              {func(f *facts) { f.settings[settingDocker] = "/usr/bin/docker" }, checkContainers, Warning, "condor_config_val -verbose DOCKER"},
		"binds by supervise":  {func(f *facts) { f.settings[settingBinds] = `"/cvmfs"` }, checkContainers, OK, "or supervise does"},
		"binds without pipes": {func(f *facts) { f.config.HTCondor.Supervise, f.settings[settingBinds] = false, `"/cvmfs"` }, checkContainers, Warning, "$(GPUSLOT_BIND_EXPR)"},
		"render nodes":        {func(f *facts) { f.renders = []string{"/dev/dri/renderD128"} }, checkRenders, Warning, "open /dev/dri/renderD128"},
		"logins":              {func(f *facts) { delete(f.settings, settingLogins) }, checkOutside, Note, "by condor_ssh_to_job"},
		"plugins in Python": {func(f *facts) {
			f.settings[settingPlugins] = "/usr/libexec/condor/curl_plugin, /usr/libexec/condor/box_plugin.py"
		}, checkOutside, Note, "by the file transfer plugin /usr/libexec/condor/box_plugin.py"},
		"outside unknown":       {func(f *facts) { f.settingsErr = none }, checkOutside, Warning, "not checked"},
		"containers unknown":    {func(f *facts) { f.settingsErr = none }, checkContainers, Warning, "not checked"},
		"transforms purged":     {func(f *facts) { delete(f.settings, settingTransforms) }, checkAccessPoint, Warning, "--for access-point"},
		"no access point":       {func(f *facts) { f.settings[settingDaemons] = "MASTER STARTD" }, checkAccessPoint, OK, "has no SCHEDD"},
		"access point unknown":  {func(f *facts) { f.settingsErr = none }, checkAccessPoint, Warning, "not checked"},
		"shared memory unknown": {func(f *facts) { f.settingsErr = none }, checkSharedMemory, Warning, "not checked"},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			c.spoil(&f)
			found := c.check(f)
			if len(found) != 1 || found[0].Level != c.level || !strings.Contains(found[0].What+found[0].Why+found[0].Do, c.says) {
				t.Errorf("%+v", found)
			}
		})
	}
}

// outOfService is a node that was reverted.
func outOfService(f *facts) {
	f.status.Node = &api.NodeStatus{Phase: "reverted", Reason: "whole GPUs"}
}

// TestOneCause: a node that HTCondor knows nothing of is one finding, not one for
// each setting that is missing, with lines to write by hand.
func TestOneCause(t *testing.T) {
	f := healthy()
	f.settings, f.generatedErr, f.statusErr, f.totalGPUs = map[string]string{settingDaemons: "MASTER"}, errors.New("none"), errors.New("nobody listens"), 0
	var worse []string
	for _, found := range diagnose(f) {
		if found.Level == Error {
			worse = append(worse, found.Check)
		}
		if strings.Contains(found.Do, "slot_type") || strings.Contains(found.Do, "MACHINE_RESOURCE") {
			t.Errorf("it tells to write by hand what gpuslotd writes: %+v", found)
		}
	}
	if strings.Join(worse, " ") != "agent START" {
		t.Errorf("errors of %q", worse)
	}
}

// TestOlderLayout: what a startd does not run yet the agent says, with its jobs.
func TestOlderLayout(t *testing.T) {
	f := healthy()
	f.totalGPUs, f.status.Changes = 3, []api.Change{{Need: "restart", Says: "STARTD runs an older layout"}}
	if found := checkIDs(f); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

// TestPending: an edit that no reload has brought yet is noted.
func TestPending(t *testing.T) {
	inv := gpu.Inventory{GPUs: []gpu.GPU{{UUID: doctorGPU, Name: "Tesla V100S-PCIE-32GB", Memory: 32768, Multiprocessors: 80}}, Host: gpu.Host{CPUs: 16, Memory: 65536}}
	p, err := plan.Build(config.Default(), inv)
	if err != nil {
		t.Fatal(err)
	}
	f := healthy()
	f.plan, f.inventory, f.inForce = p, inv, true
	if found := checkConfiguration(f); len(found) != 1 || found[0].Level != OK {
		t.Errorf("%+v", found)
	}
	f.config.CPUOnly.CPUs.Percent = 50
	if found := checkConfiguration(f); len(found) != 2 || found[1].Level != Note || !strings.Contains(found[1].Do, "systemctl reload gpuslotd") {
		t.Errorf("%+v", found)
	}
}

// TestWorst: the exit code is the worst level's, and the worst comes first.
func TestWorst(t *testing.T) {
	f := healthy()
	f.root = false // a note
	if worst := Worst(diagnose(f)); worst != Note {
		t.Errorf("a note: %v", worst)
	}
	f.uvmErr = errors.New("none")
	if worst := Worst(diagnose(f)); worst != Warning {
		t.Errorf("a warning: %v", worst)
	}
	f.totalGPUs = 1
	found := diagnose(f)
	if worst := Worst(found); worst != Error {
		t.Errorf("an error: %v", worst)
	}
	if found[0].Level != Error || found[1].Level != Warning || found[2].Level != Note || found[3].Level != OK {
		t.Errorf("%+v", found)
	}
}

func TestParseOpenFiles(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units\n"
	for text, want := range map[string]uint64{
		head + "Max open files            1024                 524288               files\n": 1024,
		head + "Max open files            unlimited            unlimited            files\n": unlimitedFiles,
	} {
		if n, err := parseOpenFiles(text); err != nil || n != want {
			t.Errorf("%d, %v", n, err)
		}
	}
	for _, text := range []string{"", head, "Max open files", "Max open files many", "Max open files -1"} {
		if n, err := parseOpenFiles(text); err == nil {
			t.Errorf("%q: %d", text, n)
		}
	}
}

// FuzzParseOpenFiles: what is found is what the line says.
func FuzzParseOpenFiles(f *testing.F) {
	f.Add("Max open files 1024 4096 files\n")
	f.Add("Max open files unlimited")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseOpenFiles(text)
		if err != nil || n == unlimitedFiles {
			return
		}
		again, err := parseOpenFiles("Max open files " + strconv.FormatUint(n, 10) + " files\n")
		if err != nil || again != n || !strings.Contains(text, "Max open files") {
			t.Errorf("%q: %d, %d, %v", text, n, again, err)
		}
	})
}

func TestParseSlotUsers(t *testing.T) {
	got := parseSlotUsers("# Configuration from machine: x\nSLOT1_1_USER = a\nslot1_2_user=b\nSLOT1_USER = c\nSLOT1_3_USER =\nrubbish\n")
	if len(got) != 2 || got["SLOT1_1_USER"] != "a" || got["SLOT1_2_USER"] != "b" {
		t.Errorf("%q", got)
	}
}

// FuzzParseSlotUsers: every name is a slot's, and none is without an account.
func FuzzParseSlotUsers(f *testing.F) {
	f.Add("SLOT1_1_USER = a\n")
	f.Fuzz(func(t *testing.T, dump string) {
		for name, user := range parseSlotUsers(dump) {
			if !strings.HasPrefix(name, "SLOT") || !strings.HasSuffix(name, "_USER") || strings.TrimSpace(user) == "" {
				t.Errorf("%q: %q", name, user)
			}
		}
	})
}

// perGPU is a node with layout = "startd-per-gpu" and this list of daemons.
func perGPU(daemons, startds string) func(*facts) {
	return func(f *facts) {
		f.config.HTCondor.Layout = config.LayoutStartdPerGPU
		f.settings[settingDaemons] = daemons
		if startds != "" {
			f.settings[settingStartds] = startds
		}
	}
}

// On an observed node hook, slots and control daemons are absent on purpose; what
// another mode left in HTCondor's configuration is not.
func TestDoctorOfAnObservedNode(t *testing.T) {
	f := facts{root: true, config: config.Default(), plan: plan.Plan{Observe: true, GPUs: []plan.GPU{{UUID: doctorGPU, Mode: config.ModeObserve}}},
		status: api.Status{Observe: true, GPUs: []api.StatusGPU{{Accept: true}}}, settings: map[string]string{settingJobAttributes: "x " + toldAttributes}, versionErr: errors.New("old")}
	for _, found := range diagnose(f) {
		if found.Level != OK {
			t.Errorf("%+v", found)
		}
	}
	f.settings[settingJobAttributes] = "jobbatchname,RequestGPUs"
	if found := checkJobAttributes(f)[0]; found.Level != Note || strings.Contains(found.Do, "JobBatchName") || !strings.Contains(found.Do, "STARTD_JOB_ATTRS = $(STARTD_JOB_ATTRS) Cmd RequestCpus") {
		t.Errorf("%+v", found)
	}
	if page, err := os.ReadFile("../../../docs/operations.md"); err != nil || !strings.Contains(string(page), "$(STARTD_JOB_ATTRS) "+toldAttributes) {
		t.Errorf("operations.md names other attributes (%v)", err)
	}
	f.status.GPUs[0].Jobs = []api.StatusJob{{Slot: "slot1_1"}}
	if found := checkJobsTold(f)[0]; found.Level != Warning || !strings.Contains(found.What, "GPU 0") {
		t.Errorf("%+v", found)
	}
	f.settings[settingOpen] = "x"
	if found := diagnose(f)[0]; found.Level != Error || !strings.Contains(found.Do, "--release") {
		t.Errorf("%+v", found)
	}
}

// TestOpenRenders: NVIDIA's nodes for graphics that all accounts can open, by the kernel's name of their driver.
func TestOpenRenders(t *testing.T) {
	sys, dev := t.TempDir(), t.TempDir()
	for name, c := range map[string]struct {
		driver string
		mode   os.FileMode
	}{"renderD128": {"nvidia", 0o666}, "renderD129": {"nvidia", 0o660}, "renderD130": {"i915", 0o666}, "card0": {"nvidia", 0o664}} {
		device, node := filepath.Join(sys, "class/drm", name, "device"), filepath.Join(dev, "dri", name)
		if err := errors.Join(os.MkdirAll(device, 0o755), os.Symlink("../../bus/pci/drivers/"+c.driver, filepath.Join(device, "driver")),
			os.MkdirAll(filepath.Dir(node), 0o755), os.WriteFile(node, nil, c.mode), os.Chmod(node, c.mode)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{filepath.Join(dev, "dri/card0"), filepath.Join(dev, "dri/renderD128")}
	if got := openRenders(sys, dev); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	v2 := filepath.Join(sys, "fs/cgroup/cgroup.controllers")
	if err := errors.Join(os.MkdirAll(filepath.Dir(v2), 0o755), os.WriteFile(v2, nil, 0o444)); err != nil {
		t.Fatal(err)
	}
	if got := openRenders(sys, dev); len(got) > 0 {
		t.Errorf("with cgroups of version 2: %q", got)
	}
}
