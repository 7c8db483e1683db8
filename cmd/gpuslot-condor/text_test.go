package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpuslot/gpuslot/condor"
)

// FuzzMasked: a signal is in the mask that a process gets for it.
func FuzzMasked(f *testing.F) {
	f.Add("SigIgn:\t0000000000001000\nSigCgt:\t0000000180004002\n", 15)
	f.Add("SigCgt:", 2)
	f.Add("SigCgt:\t-1\n", 64)
	f.Fuzz(func(t *testing.T, status string, number int) {
		if number < 1 || number > 64 {
			return // no signal
		}
		s := syscall.Signal(number)
		if masked(status, "SigCgt:", s) && !strings.Contains(status, "SigCgt:") {
			t.Errorf("%v by %q", s, status)
		}
		if other := masked("SigCgt:\t0\n"+status, "SigCgt:", s); other {
			t.Errorf("%v by another line than the first", s)
		}
	})
}

// FuzzReadInventory: what the startd gets lists GPUs of ours, or says that there are none.
func FuzzReadInventory(f *testing.F) {
	f.Add([]byte("DetectedGPUs=\"GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001\"\n"))
	f.Add([]byte(condor.NoInventory))
	f.Add([]byte("DetectedGPUs=\"GPU-0, CUDA0\"\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "inventory.ad")
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		ads, err := readInventory(path)
		if err == nil && (string(ads) != string(text) || len(condor.InventoryUUIDs(ads)) == 0 && string(ads) != condor.NoInventory) {
			t.Errorf("%q from %q", ads, text)
		}
	})
}

// FuzzWithBinds: a job keeps every variable that is not gpuslot's to set.
func FuzzWithBinds(f *testing.F) {
	f.Add("A=b\nCUDA_MPS_PIPE_DIRECTORY=/run/gpuslot/mps/x\nAPPTAINER_BIND=/data", "/usr/bin/apptainer")
	f.Add("=\nA\nSINGULARITY_BIND=", "sh")
	f.Fuzz(func(t *testing.T, environ, program string) {
		had := strings.Split(environ, "\n")
		has := map[string]bool{}
		for _, entry := range withBinds(had, []string{program}, []string{"/run/gpuslot/agent.sock"}) {
			has[entry] = true
		}
		for _, entry := range had {
			if !has[entry] && !strings.HasPrefix(entry, "APPTAINER") && !strings.HasPrefix(entry, "SINGULARITY") {
				t.Errorf("%q is gone from %q", entry, environ)
			}
		}
	})
}
