package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/condor"
	"github.com/gpuslot/gpuslot/gpu"
)

func writeJSON(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

func TestWrapped(t *testing.T) {
	grant := api.Grant{
		Environment: map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-1", "CUDA_MPS_PIPE_DIRECTORY": "/run/p"},
		Defaults:    map[string]string{"TF": "true", "XLA": ".1", "NEW": "1", "CUDA_MPS_PIPE_DIRECTORY": "never"},
	}
	got := wrapped([]string{
		"PATH=/bin", "CUDA_MPS_PIPE_DIRECTORY=/mine", "CUDA_MPS_LOG_DIRECTORY=/mine", "CUDA_VISIBLE_DEVICES=7",
		"APPTAINERENV_CUDA_MPS_PIPE_DIRECTORY=/mine", "SINGULARITYENV_CUDA_VISIBLE_DEVICES=7", "APPTAINERENV_MINE=1",
		"TF=false", "SINGULARITYENV_XLA=.9", "ODD",
	}, grant)
	want := []string{
		"PATH=/bin", "APPTAINERENV_MINE=1", "TF=false", "SINGULARITYENV_XLA=.9", "ODD",
		"CUDA_MPS_PIPE_DIRECTORY=/run/p", "APPTAINERENV_CUDA_MPS_PIPE_DIRECTORY=/run/p", "SINGULARITYENV_CUDA_MPS_PIPE_DIRECTORY=/run/p",
		"CUDA_VISIBLE_DEVICES=GPU-1", "APPTAINERENV_CUDA_VISIBLE_DEVICES=GPU-1", "SINGULARITYENV_CUDA_VISIBLE_DEVICES=GPU-1",
		"NEW=1", "APPTAINERENV_NEW=1", "SINGULARITYENV_NEW=1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnmentioned(t *testing.T) {
	const a, b = gpu.UUID("GPU-a"), gpu.UUID("GPU-b")
	rest := unmentioned([]gpu.UUID{a, b}, []condor.GPUState{{UUID: a, Accept: true, Time: time.Now()}})
	if len(rest) != 1 || rest[0].UUID != b || rest[0].Accept || !strings.Contains(rest[0].Reason, "restart the startd") {
		t.Errorf("%+v", rest)
	}
}

// Both links and the first argument find every verb, and nothing else does.
func TestFind(t *testing.T) {
	for _, v := range verbs() {
		if got, ok := find(v.name); !ok || got.name != v.name {
			t.Errorf("%s is not found", v.name)
		}
	}
	if _, ok := find("gpuslot-condor"); ok {
		t.Error("the program's own name is a verb")
	}
}
