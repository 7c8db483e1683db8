package condor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/test/node"
)

// htcondor runs the tools of a real HTCondor out of the unpacked image of the
// test node, with a configuration of the test's own: no daemon, no namespace.
type htcondor struct {
	image, dir string
}

func realHTCondor(t *testing.T) htcondor {
	t.Helper()
	if err := node.Available(); err != nil {
		t.Skip("no real HTCondor:", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	image, err := node.Image(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := htcondor{image, t.TempDir()}
	if err := os.Mkdir(filepath.Join(h.dir, "config.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.write(t, "condor_config", "RELEASE_DIR = /usr\nLOCAL_DIR = "+h.dir+"\nLOCAL_CONFIG_DIR = "+h.dir+"/config.d\n")
	return h
}

// write makes a file below the test's directory and returns its path.
func (h htcondor) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// run returns standard output; an error status and any word on standard error fail the test.
func (h htcondor) run(t *testing.T, tool string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lib := filepath.Join(h.image, "usr/lib")
	cmd := exec.CommandContext(ctx, filepath.Join(h.image, "lib64/ld-linux-x86-64.so.2"),
		append([]string{"--library-path", lib + ":" + lib + "/x86_64-linux-gnu:" + lib + "/condor",
			filepath.Join(h.image, "usr/bin", tool)}, args...)...)
	cmd.Env = []string{"CONDOR_CONFIG=" + filepath.Join(h.dir, "condor_config"), "PATH=/usr/bin:/bin"}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if tool == "condor_transform_ads" {
		err = nil // ends with 1 also when all went well (25.14.1); its output is what counts
	}
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%s %s: %v: %s%s", tool, strings.Join(args, " "), err, stderr.String(), stdout.String())
	}
	return strings.TrimRight(stdout.String(), "\n")
}

func (h htcondor) value(t *testing.T, args ...string) string {
	t.Helper()
	return h.run(t, "condor_config_val", args...)
}

// evaluate evaluates an expression in an ad that sees another as its TARGET:
// as an attribute of that name, since condor_status -target has no effect on
// ads from a file (25.14.1).
func (h htcondor) evaluate(t *testing.T, ad, target, expr string) string {
	t.Helper()
	target = strings.ReplaceAll(strings.TrimSpace(target), "\n", "; ")
	return h.run(t, "condor_status", "-ads", h.write(t, "my.ad", ad+"TARGET = [ "+target+" ]\n"), "-af", expr)
}

func executionPoint(t *testing.T, n Node) string {
	t.Helper()
	text, err := ExecutionPoint(n)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every example is read without a complaint, and says what it is to say.
func TestRealExecutionPoint(t *testing.T) {
	h := realHTCondor(t)
	for name, n := range examples() {
		t.Run(name, func(t *testing.T) {
			h.write(t, "config.d/50-gpuslot.conf", executionPoint(t, n))
			h.write(t, "config.d/90-site.conf", "START = Owner =!= \"mallory\"\n")
			dump := h.value(t, "-dump")
			types := slotTypes(n)
			most, err := strconv.Atoi(h.value(t, "-subsystem", "STARTD", "MAX_SLOT_TYPES"))
			for _, st := range types {
				if err != nil || most < st.number {
					t.Errorf("HTCondor reads %d slot types, not %d: %v", most, st.number, err)
				}
				number := strconv.Itoa(st.number)
				start := h.value(t, "SLOT_TYPE_"+number+"_START")
				if !strings.Contains(start, `&& (Owner =!= "mallory")`) {
					t.Errorf("type %s does not hold the site's START: %s", number, start)
				}
				if got := h.value(t, "SLOT_TYPE_"+number); !strings.HasSuffix(got, fmt.Sprintf("GPUs=%d : %s", st.ids, st.among)) && got[len(got)-6:] != "GPUs=0" {
					t.Errorf("SLOT_TYPE_%s = %q", number, got)
				}
				keyword := strings.Contains(dump, "slot_type_"+number+".STARTER_JOB_HOOK_KEYWORD = GPUSLOT\n")
				if keyword != (st.single || st.whole || st.elastic) {
					t.Errorf("type %s (%s): hook keyword %v", number, st.title, keyword)
				}
			}
			if got := strings.Count(dump, "_PARTITIONABLE = true\n"); got != len(types) {
				t.Errorf("there are %d slot types, not %d", got, len(types))
			}
		})
	}
}

// The starter of a shared GPU's slot reads its knobs by the local name of the
// slot's type; that of another slot reads HTCondor's defaults.
func TestRealLocalName(t *testing.T) {
	h := realHTCondor(t)
	h.write(t, "config.d/50-gpuslot.conf", executionPoint(t, examples()["whole"]))
	for local, want := range map[string]string{
		"slot_type_101": "GPU_DEVICE_ORDINAL=/(CUDA|OCL)//  CUDA_VISIBLE_DEVICES=/CUDA//  CUDA_MPS_PIPE_DIRECTORY=|^|/run/gpuslot/mps/|",
		"slot_type_501": "GPU_DEVICE_ORDINAL=/(CUDA|OCL)//  CUDA_VISIBLE_DEVICES=/CUDA//",
		"slot_type_502": "GPU_DEVICE_ORDINAL=/(CUDA|OCL)//  CUDA_VISIBLE_DEVICES=/CUDA//",
	} {
		if got := h.value(t, "-local-name", local, "ENVIRONMENT_FOR_AssignedGPUs"); got != want {
			t.Errorf("%s: %q, want %q", local, got, want)
		}
	}
}

// The packaged snippet changes nothing where gpuslotd wrote nothing, is closed where
// it set the node up, and includes what it generated.
func TestRealSnippet(t *testing.T) {
	h := realHTCondor(t)
	snippet, err := os.ReadFile("../etc/condor/50-gpuslot.conf")
	if err != nil {
		t.Fatal(err)
	}
	const generated = "/run/gpuslot/condor/execution-point.conf"
	if !strings.Contains(string(snippet), "include ifexist : "+generated+"\n") {
		t.Fatalf("the snippet does not include %s", generated)
	}
	const kept = "/var/lib/gpuslot/condor-closed.conf"
	if !strings.Contains(string(snippet), "include ifexist : "+kept+"\n") {
		t.Fatalf("the snippet does not include %s", kept)
	}
	site := h.run(t, "condor_config_val", "-dump")
	here := strings.NewReplacer(generated, filepath.Join(h.dir, "execution-point.conf"), kept, filepath.Join(h.dir, "condor-closed.conf"))
	h.write(t, "config.d/50-gpuslot.conf", here.Replace(string(snippet)))
	if d := cmp.Diff(settingsIn(site), settingsIn(h.run(t, "condor_config_val", "-dump"))); d != "" {
		t.Errorf("the snippet alone changes HTCondor's configuration (-site +snippet):\n%s", d)
	}
	const starts = "TARGET.Owner != \"mallory\""
	h.write(t, "config.d/60-site.conf", "START = "+starts+"\n") // of the site, read later
	node := exampleNode(v100s(0))
	h.write(t, "condor-closed.conf", string(ClosedNode(node)))
	const closed = "/usr/libexec/gpuslot/gpuslot-condor inventory /dev/null"
	if got := h.value(t, "MACHINE_RESOURCE_INVENTORY_GPUs"); got != closed {
		t.Errorf("without the file the inventory is %q, want %q", got, closed)
	}
	wantStart := func(when, want string) {
		t.Helper()
		if got := h.value(t, "-subsystem", "STARTD", "START"); got != want {
			t.Errorf("%s START is %q, want %q", when, got, want)
		}
	}
	wantStart("where no GPU was divided", starts)
	divided := examples()["follows"]
	if !divided.supervisesAll() {
		t.Fatal("jobs of this node wait for no rule")
	}
	h.write(t, "condor-closed.conf", string(ClosedNode(divided)))
	wantStart("where a GPU was divided", "false")
	h.write(t, "execution-point.conf", executionPoint(t, divided))
	wantStart("with the file", starts)
	h.write(t, "execution-point.conf", executionPoint(t, examples()["shared"]))
	wantStart("with the file of a node that is not divided any more", starts)
	const open = "/usr/libexec/gpuslot/gpuslot-condor inventory /run/gpuslot/condor/inventory.ad"
	if got := h.value(t, "MACHINE_RESOURCE_INVENTORY_GPUs"); got != open {
		t.Errorf("with the file the inventory is %q, want %q", got, open)
	}
}

// settingsIn are the settings of a dump, but for the process that printed it.
func settingsIn(dump string) []string {
	return slices.DeleteFunc(strings.Split(dump, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "#") || strings.HasPrefix(line, "PID = ") || strings.HasPrefix(line, "PPID = ")
	})
}

// HTCondor's own parser reads back what Quote wrote.
func TestRealQuote(t *testing.T) {
	h := realHTCondor(t)
	for _, s := range []string{"", `a"b`, `C:\dir\n`, `ends in \`, `\"`, `""`, `"`, `\\`, `it's`, "a\tb", "é", `x\" y`} {
		var ad classad.Ad
		ad.SetString("S", s)
		var got []map[string]any
		out := h.run(t, "condor_status", "-ads", h.write(t, "s.ad", "Name = \"n\"\n"+ad.Print()), "-json")
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%q: %v: %s", s, err, out)
		}
		if got[0]["S"] != s {
			t.Errorf("HTCondor reads %q as %q", s, got[0]["S"])
		}
	}
}

// HTCondor escapes in JSON what a user may have in a string, and expressions are told
// from strings that look like them; see Slots.
func TestRealJSON(t *testing.T) {
	h := realHTCondor(t)
	var octal, want strings.Builder
	for c := 1; c <= 0x7f; c++ {
		fmt.Fprintf(&octal, "\\%03o", c)
		want.WriteByte(byte(c))
	}
	path := h.write(t, "slots.new", `[ Name = "slot1_1@h"; JobId = "1.0"; Cmd = "/x/`+octal.String()+`";
		AccountingGroup = "grp\nVRAM = 1\n\nName = 1"; VRAM = 2048; JobBatchName = "\\/Expr(1)\\/"; WantDocker = true;
		RequestVRAM = formatTime(0, "%n\"C:\\d\n"); RequestCpus = {1, "a\nb"}; RequestMemory = undefined ]`)
	text := h.run(t, "condor_status", "-ads:new", path, "-json", "-attributes",
		strings.Join(slices.Concat(slotAttributes, jobWords), ","))
	ads, err := classad.ParseJSON(text)
	if err != nil || len(ads) != 1 {
		t.Fatalf("%d ads, %v: %s", len(ads), err, text)
	}
	cmd, _ := ads[0].String("Cmd")
	batch, _ := ads[0].String("JobBatchName")
	request, _ := ads[0].Expr("RequestVRAM")
	program := "/x/" + strings.NewReplacer("\n", " ", "\r", " ").Replace(want.String())
	if cmd != program || batch != `\/Expr(1)\/` || request != `formatTime(0,"%n\"C:\d ")` || ads[0].Has("RequestMemory") {
		t.Errorf("Cmd %q, JobBatchName %q, RequestVRAM %q", cmd, batch, request)
	}
	slots, err := readSlots(text)
	if err != nil || len(slots) != 1 || *slots[0].VRAM != 2048 || !slots[0].Docker || slots[0].Unreadable != "" {
		t.Errorf("%+v, %v: %s", slots, err, text)
	}
}

// A slot whose user wrote too much is left out of the second answer, whatever has the
// text: a string, an expression, a list, a nested ad. Nobody else is. (TestTenantsByGroup
// of test/scenes asks a startd.)
func TestRealShorterTarget(t *testing.T) {
	h := realHTCondor(t)
	long := strings.Repeat("g", mostWords)
	var ads, want []string
	for i, text := range []string{
		`AcctGroup = "cms"`, "AcctGroup = undefined", "AcctGroup = error", "RequestCpus = 1", `Cmd = "/bin/true"`,
		`AcctGroup = "` + long[:mostWords-2] + `"`, `Other = "` + long + `"`,
		// From here on too long.
		`AcctGroup = "` + long + `"`, `AccountingGroup = "` + long + `"`, `x509UserProxyVOName = "` + long + `"`,
		`AcctGroup = { "` + long + `" }`, `AcctGroup = [ x = "` + long + `" ]`, `Cmd = ifThenElse(true, "a", "` + long + `")`,
		"RequestVRAM = 1" + strings.Repeat(" + 1", mostWords/4), "WantDocker = true || " + long, `JobBatchName = "` + long + `"`,
		`Cmd = "` + long[:mostWords/2] + `"; JobBatchName = "` + long[:mostWords/2] + `"`,
	} {
		name := fmt.Sprintf("slot1_%d@h", i+1)
		ads = append(ads, fmt.Sprintf("[ Name = %q; TARGET = [ %s ] ]\n", name, text))
		if i < 7 {
			want = append(want, name)
		}
	}
	path := h.write(t, "slots.new", strings.Join(ads, ""))
	got := h.run(t, "condor_status", "-ads:new", path, "-constraint", shorterTarget(mostWords, jobWords...), "-af", "Name")
	if d := cmp.Diff(want, strings.Fields(got)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A job with long requests is left out of what waits; nobody else is.
func TestRealIdleJobs(t *testing.T) {
	h := realHTCondor(t)
	long := strings.Repeat("g", 1<<20)
	var ads, want string
	for i, lines := range []string{
		"RequestVRAM = 2048", "RequestVRAM = 2048; RequireGPUs = Capability >= 8.0", "RequestVRAM = undefined",
		"RequestMemory = ifThenElse(MemoryUsage is undefined, 2000, MemoryUsage * 3 / 2)", `Other = "` + long + `"`,
		// From here on too long.
		`RequireGPUs = DeviceName == "` + long + `"`, "RequestVRAM = " + long, `RequestCpus = { "` + long + `" }`,
		`RequestMemory = [ x = "` + long + `" ]`,
	} {
		ads += fmt.Sprintf(`[ ClusterId = %d; ProcId = 0; Owner = "a"; User = "a@b"; JobStatus = 1; JobUniverse = 5; `+
			"RequestGPUs = 1; %s ]\n", i+1, lines)
		if i < 5 {
			want += fmt.Sprintln(i + 1)
		}
	}
	got := h.run(t, "condor_q", "-jobads", h.write(t, "jobs.new", ads), "-constraint", idleJobs(), "-af", "ClusterId")
	if d := cmp.Diff(strings.TrimSpace(want), got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Each job prints one line of idleColumns, whatever its user wrote; expressions are read by
// their value.
func TestRealIdleColumns(t *testing.T) {
	h := realHTCondor(t)
	var ads string
	for i, request := range []string{
		`RequestVRAM = formatTime(0, "1%n1 2 3%n")`, "RequestVRAM = 2048", "RequestVRAM = ifThenElse(true, 7, 8)",
		"RequestVRAM = {1, 2}", `RequestVRAM = 8; RequireGPUs = DeviceName == "x\n1 4096 1 1 1 \n"`,
		"RequestVRAM = int(First * pow(2.0, 1)); First = 1000; RequestMemory = ifThenElse(MemoryUsage is undefined, 200, 1)",
	} {
		ads += fmt.Sprintf(`[ ClusterId = %d; ProcId = 0; Owner = "a"; User = "a@b"; EnteredCurrentStatus = 5; `+
			"RequestGPUs = 1; %s ]\n", i+1, request)
	}
	text := h.run(t, "condor_q", append([]string{"-jobads", h.write(t, "jobs.new", ads), "-af"}, idleColumns...)...)
	var got []Waiting
	for line := range strings.Lines(text) {
		w, _ := parseIdle(line, counted)
		if w.Owner != "a" && w.GPUs > 0 {
			t.Errorf("the owner of %q is %q", line, w.Owner)
		}
		got = append(got, Waiting{VRAM: w.VRAM, Memory: w.Memory, Require: w.Require})
	}
	want := []Waiting{{}, {VRAM: 2048}, {VRAM: 7}, {}, {VRAM: 8, Require: `DeviceName == "x\n1 4096 1 1 1 \n"`}, {VRAM: 2000, Memory: 256}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", text, d)
	}
}
