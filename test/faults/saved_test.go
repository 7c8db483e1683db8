package faults

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
)

// savedFile is one file that an agent reads at its start.
type savedFile struct {
	// by is the package that writes it.
	by, name, path string
	// closes: all GPUs are closed until an operator has opened them.
	closes bool
	// quiesced: it is read on a node that is out of service.
	quiesced bool
	// mended is what the operator does, besides opening GPUs.
	mended func(c *campaign)
}

func savedFiles(c *campaign) []savedFile {
	remove := func(path string) func(*campaign) {
		return func(c *campaign) {
			if err := os.Remove(path); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	return []savedFile{
		{by: "agent", name: "plan", path: c.path("r/plan.json")},
		{by: "agent/faults", name: "faults", path: c.path("r/troubles.json"), closes: true},
		{by: "agent/verify", name: "verifications", path: c.path("r/verified.json")},
		{by: "agent/closures", name: "closures", path: c.path("s/holds.json"), closes: true},
		{by: "agent/modes", name: "undo", path: c.path("s/undo.json"), mended: remove(c.path("s/undo.json"))},
		{by: "agent/partitions", name: "partitions", path: c.path("r/partitions.json")},
		{by: "agent/layouts", name: "layouts", path: c.path("s/repartition.json")},
		{by: "agent/release", name: "inventory", path: c.path("s/quiesced.json"), quiesced: true},
	}
}

// limitFiles are those of drivers that limit the VRAM of cgroups.
func limitFiles(c *campaign) []savedFile {
	return []savedFile{{by: "agent/budget", name: "limits", path: c.path("r/cgroups.json")}}
}

// damages are what may become of a file. Good is what the agent wrote into it, empty if it
// wrote none.
var damages = []struct {
	name string
	make func(good string) string
}{
	{"empty", func(string) string { return "" }},
	{"truncated", func(good string) string { return (good + `{"schema": "gpuslot-`)[:max(len(good)/2, 10)] }},
	{"rubbish", func(string) string { return "\x00\xff\x00\x00" }},
	{"null", func(string) string { return "null\n" }},
	{"an unknown field", func(good string) string {
		if strings.HasPrefix(good, "{") {
			return `{"from_elsewhere": 1,` + good[1:]
		}
		return `[{"from_elsewhere": 1}]`
	}},
	{"text after the end", func(good string) string { return good + `{"schema": 1}` + "]" }},
	{"an older schema", func(good string) string { return reschemed(good, "/0") }},
	{"a newer schema", func(good string) string { return reschemed(good, "/99") }},
}

// reschemed is the text with another version of its schema, or with a schema where it has none.
func reschemed(good, version string) string {
	if strings.Contains(good, `/1"`) {
		return strings.Replace(good, `/1"`, version+`"`, 1)
	}
	return `{"schema": "gpuslot-other` + version + `"}`
}

// TestSavedFiles: each file that an agent left for the next, damaged in each way. The next
// agent runs, says which file it is, throws nothing away, opens nothing that the file may
// have closed, and serves again after what the operator is told to do. One damage a file;
// with GPUSLOT_CAMPAIGN=1 each.
func TestSavedFiles(t *testing.T) {
	if elsewhere(t) {
		return
	}
	c := newCampaign(newNode(t, "550.163.01", plain()), 1)
	defer c.clear()
	c.now = &row{outcomes: map[string]int{}}
	c.guarded("start", func() {
		c.settle("all GPUs to open", c.allOpen)
		// Closures of a GPU that is opened again leave a file.
		c.operator("gpu", "close", c.uuids[0], "--reason", "a fan")
		c.operator("gpu", "open", c.uuids[0])
	})
	c.damageEach(savedFiles(c))
	if c.found == nil && os.Geteuid() == 0 {
		c.guarded("wrong owners", c.wrongOwners)
	}
	if c.found != nil {
		t.Fatalf("does not hold: %s\n%s", c.found.rule, c.found.text)
	}
}

// TestSavedLimits is the same with what only newer drivers have.
func TestSavedLimits(t *testing.T) {
	if elsewhere(t) {
		return
	}
	c := newCampaign(newNode(t, "615.71.09", plain()), 1)
	defer c.clear()
	c.now = &row{outcomes: map[string]int{}}
	c.guarded("start", func() { c.settle("all GPUs to open", c.allOpen) })
	c.damageEach(limitFiles(c))
	if c.found != nil {
		t.Fatalf("does not hold: %s\n%s", c.found.rule, c.found.text)
	}
}

// damageEach damages each file, in one way or in all.
func (c *campaign) damageEach(files []savedFile) {
	for i, f := range files {
		for k, d := range damages {
			if os.Getenv(longVariable) == "" && k != i%len(damages) {
				continue
			}
			if c.found != nil {
				return
			}
			name := f.name + ", " + d.name
			c.guarded(name, func() { c.damage(f, d.make) })
			c.t.Log(name)
		}
	}
}

// operator runs gpuslot, which must succeed.
func (c *campaign) operator(args ...string) {
	if out, err := c.gpuslot(args...); err != nil {
		c.fail(settles, fmt.Sprintf("gpuslot %v: %s", args, out))
	}
}

// damage restarts the agent with a damaged file.
func (c *campaign) damage(f savedFile, make func(good string) string) {
	if f.quiesced {
		c.clear() // it waits for the last job's end
		c.watched = nil
		_, _ = c.gpuslot("node", "quiesce", "--reason", "a new driver") // an error says that it waits
		c.settle("the node to be quiesced", func(st *api.Status) bool { return st.Node != nil && st.Node.Phase == "quiesced" })
	}
	c.stopAgent(syscall.SIGTERM)
	good, _ := os.ReadFile(f.path)
	bad := []byte(make(string(good)))
	if err := os.WriteFile(f.path, bad, 0o644); err != nil {
		c.t.Fatal(err)
	}
	from := len(c.log.String())
	c.startAgent()
	if f.quiesced { // it has no GPUs then
		c.waitFor("the agent to name "+f.path, func() bool {
			out, _ := c.gpuslot("status") // an error says that no GPU takes jobs
			return strings.Contains(out, f.path)
		})
		_, _ = c.gpuslot("node", "resume") // an error says that it waits
	} else {
		c.settle("the agent to name "+f.path, func(st *api.Status) bool {
			said := strings.Join(st.Warnings, "\n") + c.log.String()[from:]
			for i := range gpus {
				said += c.gpuOf(st, i).Reason
			}
			return strings.Contains(said, f.path)
		})
		c.kept(f.path, bad)
	}
	if f.closes {
		c.settle("all GPUs to be closed", func(st *api.Status) bool {
			return !slices.ContainsFunc(st.GPUs, func(g api.StatusGPU) bool { return g.Accept })
		})
	}
	if f.quiesced {
		c.settle("a verification, which fails without CUDA", func(st *api.Status) bool {
			return !slices.ContainsFunc(st.GPUs, func(g api.StatusGPU) bool {
				return !strings.Contains(g.Reason, "verification after the node resumed failed")
			}) && len(st.GPUs) == gpus
		})
	}
	if f.mended != nil {
		f.mended(c)
		c.reload()
	}
	if f.closes || f.quiesced {
		c.operator("gpu", "open", "all", "--override")
	}
	c.settle("all GPUs to open", c.allOpen)
	if f.mended == nil && !f.quiesced { // an inventory is read again on the node that resumed
		c.kept(f.path, bad)
	}
	for gpu := range gpus {
		c.settle("a job to run", c.serves(gpu))
	}
	c.dismiss()
}

// kept: what could not be read is where it was, or beside it.
func (c *campaign) kept(path string, bad []byte) {
	for _, name := range []string{path, path + ".unreadable"} {
		if b, err := os.ReadFile(name); err == nil && bytes.Equal(b, bad) {
			return
		}
	}
	c.fail(settles, path+": what could not be read is thrown away")
}

// wrongOwners: files of another account, as a copied directory has them, count as they are.
func (c *campaign) wrongOwners() {
	c.operator("gpu", "close", c.uuids[1], "--reason", "a fan")
	c.stopAgent(syscall.SIGTERM)
	for _, f := range savedFiles(c) {
		if err := os.Chown(f.path, 65534, 65534); err != nil && !os.IsNotExist(err) {
			c.t.Fatal(err)
		}
		if err := os.Chmod(f.path, 0o600); err != nil && !os.IsNotExist(err) {
			c.t.Fatal(err)
		}
	}
	c.startAgent()
	c.settle("the other GPUs to open", func(st *api.Status) bool {
		return c.gpuOf(st, 0).Accept && strings.Contains(c.gpuOf(st, 1).Reason, "a fan")
	})
	c.operator("gpu", "open", c.uuids[1])
	c.settle("all GPUs to open", c.allOpen)
}
