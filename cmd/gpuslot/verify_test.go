package main

import (
	"testing"

	"github.com/gpuslot/gpuslot/agent/api"
)

// TestVerifyExitCodes: as the help lists them.
func TestVerifyExitCodes(t *testing.T) {
	var (
		holds  = verification{Verification: api.Verification{OK: true}}
		broken = verification{}
		missed = verification{Verification: api.Verification{Skipped: "it is closed"}}
		busy   = verification{Verification: api.Verification{Skipped: "jobs run on it"}, leftAlone: true}
	)
	for name, tt := range map[string]struct {
		found verifications
		want  int
	}{
		"all holds":          {verifications{holds, holds}, exitOK},
		"one is busy":        {verifications{holds, busy}, exitOK},
		"one does not":       {verifications{holds, broken, missed, busy}, exitFound},
		"one was not tried":  {verifications{holds, missed}, exitFailed},
		"all are busy":       {verifications{busy, busy}, exitFailed},
		"there is none":      {nil, exitFailed},
		"only not to be had": {verifications{missed}, exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			if code := codeOf(tt.found.result()); code != tt.want {
				t.Errorf("exit code %d, want %d", code, tt.want)
			}
		})
	}
}
