package mps

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/sim"
)

// The replies are those of NVIDIA's documentation (static SM partitioning) and
// of published scripts; no driver that has them was at hand.
const table = `GPU           Partition   free   used   free  used  clients
                          chunk  chunk  SM    SM
GPU-00000000  -           9      7      76    56    -
GPU-00000000  Dx4AAA...   -      7      -     56    Yes
`

func count(n int) *int { return &n }

func TestParsePartitions(t *testing.T) {
	has := true
	want := []Partition{
		{GPU: "GPU-00000000", FreeChunks: count(9), UsedChunks: count(7), FreeSMs: count(76), UsedSMs: count(56)},
		{GPU: "GPU-00000000", Name: "Dx4AAA...", UsedChunks: count(7), UsedSMs: count(56), HasClients: &has},
	}
	got, err := parsePartitions(table)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"GPU-1 - 1 2 3 4", "GPU-1 - 1 2 3 x -", "GPU-1 - -1 2 3 4 -", "GPU-1 - 99999999999999999999 2 3 4 -"} {
		if got, err := parsePartitions(bad); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

func TestParsePartitionID(t *testing.T) {
	id := string(uuid0) + "/Dx4AAAAA"
	for reply, want := range map[string]string{
		"Partition " + id + " created": id,
		id:                             id,
		"Partition " + string(uuid0) + "//BAA/A created": string(uuid0) + "//BAA/A",
		"":                     "",
		string(uuid0):          "",
		string(uuid0) + "/":    "",
		string(uuid1) + "/Dx4": "",
		"Failed to fulfill the requested SM partition of 28 chunks, error CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION": "",
		`Unknown command "sm_partition"`: "",
	} {
		if got, ok := parsePartitionID(reply, string(uuid0)); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", reply, got, ok)
		}
	}
}

func FuzzParsePartitions(f *testing.F) {
	f.Add(table)
	f.Add("GPU-1 - 1 2 3 4 -\nGPU-1 x - - - - no")
	f.Fuzz(func(t *testing.T, reply string) {
		all, err := parsePartitions(reply)
		if err != nil {
			return
		}
		for _, p := range all {
			if !strings.HasPrefix(p.GPU, "GPU-") || p.Name == "-" || !strings.Contains(reply, p.GPU) || !strings.Contains(reply, p.Name) {
				t.Fatalf("%q gave %+v", reply, p)
			}
			for _, n := range []*int{p.FreeChunks, p.UsedChunks, p.FreeSMs, p.UsedSMs} {
				if n != nil && *n < 0 {
					t.Fatalf("%q gave %d", reply, *n)
				}
			}
		}
		if id, ok := parsePartitionID(reply, string(uuid0)); ok && (!strings.Contains(reply, id) || len(id) < len(uuid0)+2) {
			t.Fatalf("%q gave the id %q", reply, id)
		}
	})
}

// partitioning is a command line that knows partitions: one of 7 chunks can be
// made, and what is named "busy" stays.
var partitioning = `#!/bin/sh
made=$0.made
while read -r line; do case $line in
"sm_partition add "*" 7") echo made >$made; echo "Partition ` + string(uuid0) + `/Dx4AAAAA created" ;;
"sm_partition add "*) echo "Failed to fulfill the requested SM partition" ;;
"sm_partition rm "*" Dx4AAAAA") rm -f $made ;;
"sm_partition rm "*) echo "in use" ;;
lspart)
	echo "GPU Partition free used free used clients"
	[ ! -e $made ] || echo "GPU-00000000 Dx4AAA... - 7 - 56 No"
	echo "GPU-00000000 busy - 1 - 8 Yes" ;;
eof-*) echo "Unknown command \"$line\"" ;;
esac; done
`

func TestPartitions(t *testing.T) {
	d := started(t, onDriver(t, "550"))
	d.program = writeProgram(t, filepath.Join(tempDir(t), "cli"), partitioning)
	id, err := d.AddPartition(t.Context(), 7)
	if err != nil || id != string(uuid0)+"/Dx4AAAAA" {
		t.Fatalf("%q, %v", id, err)
	}
	if all, err := d.Partitions(t.Context()); err != nil || len(all) != 2 || *all[0].UsedSMs != 56 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := d.RemovePartition(t.Context(), id); err != nil {
		t.Error(err)
	}
	wantFault(t, d.RemovePartition(t.Context(), string(uuid0)+"/busy"), Refused, "in use", "when its clients have ended")
	wantFault(t, d.RemovePartition(t.Context(), "busy"), Invalid)
	wantFault(t, d.RemovePartition(t.Context(), string(uuid0)+"/a b"), Invalid)
	_, err = d.AddPartition(t.Context(), 8)
	wantFault(t, err, Refused, "Failed to fulfill")
	_, err = d.AddPartition(t.Context(), 0)
	wantFault(t, err, Invalid)
}

// TestSimulatedPartitions: the same with the simulated daemon of R590.
func TestSimulatedPartitions(t *testing.T) {
	n := sim.New(t, "590.48.01", "H200")
	r := runnerWith(t, onNode(t, n, "590.48.01", publicCopy(t, filepath.Join(n.Dir, "bin/nvidia-cuda-mps-control"))))
	r.Flags = []string{"-S"}
	w := Wanted{GPU: onlyGPU(t, n), Limit: 4096, ThreadPercentage: 100}
	s := daemonsOf(r)
	wantResults(t, set(t, s, []Wanted{w}), Started, 1)
	d, err := s.Daemon(w.GPU)
	if err != nil {
		t.Fatal(err)
	}
	id, err := d.AddPartition(t.Context(), 5)
	if err != nil {
		t.Fatal(err)
	}
	all, err := d.Partitions(t.Context())
	if err != nil || len(all) != 2 || *all[0].FreeChunks != 11 || !strings.HasSuffix(id, "/"+all[1].Name) || *all[1].UsedSMs != 40 || *all[1].HasClients {
		t.Errorf("%s: %+v, %v", id, all, err)
	}
	_, err = d.AddPartition(t.Context(), 12)
	wantFault(t, err, Refused, "Failed to fulfill")
	if err := d.RemovePartition(t.Context(), id); err != nil {
		t.Error(err)
	}
	if all, err := d.Partitions(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestNoPartitions: older daemons do not know the commands.
func TestNoPartitions(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		d := started(t, r)
		_, err := d.Partitions(t.Context())
		wantFault(t, err, Refused, "lspart", "R590")
		_, err = d.AddPartition(t.Context(), 7)
		wantFault(t, err, Refused, "R590")
		wantFault(t, d.RemovePartition(t.Context(), string(uuid0)+"/x"), Refused, "R590")
	})
}

// TestMultiUser: with the flag the daemon starts one server of root for all.
func TestMultiUser(t *testing.T) {
	needsRoot(t)
	r := onDriver(t, "555")
	r.Flags = []string{"-multiuser-server"}
	writeProgram(t, filepath.Join(r.ServerPath, "nvidia-cuda-mps-server"), fakeServer)
	d := started(t, r)
	if err := d.StartServer(t.Context(), 4711); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a server is listed", func() bool {
		all, err := d.Servers(t.Context())
		return err == nil && len(all) == 1 && all[0].UID == 0 && all[0].Started != 0
	})
}

// TestChunkSMs: NVIDIA's documentation of R590 names Ampere, and Hopper, by name.
func TestChunkSMs(t *testing.T) {
	for capability, want := range map[gpu.ComputeCapability]int{
		{Major: 7}: 0, {Major: 7, Minor: 5}: 0, {Major: 8}: 4, {Major: 8, Minor: 9}: 4, {Major: 9}: 8, {Major: 10, Minor: 3}: 8, {Major: 12}: 8,
	} {
		if got, ok := ChunkSMs(capability); got != want || ok != (want != 0) {
			t.Errorf("%s: %d, %v, want %d", capability, got, ok, want)
		}
	}
}
