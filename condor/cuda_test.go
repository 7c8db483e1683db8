package condor

import "testing"

// TestCUDAProperties: a version in HTCondor's two forms, nothing of what is none.
func TestCUDAProperties(t *testing.T) {
	for version, want := range map[string]string{
		"12.0": "DriverVersion=12.0; MaxSupportedVersion=12000;",
		"12.4": "DriverVersion=12.4; MaxSupportedVersion=12040;",
		"1.0":  "DriverVersion=1.0; MaxSupportedVersion=1000;",
		"0.9":  "", "12": "", "": "", "12.-1": "", "12.x": "", "x.1": "",
	} {
		if got := cudaProperties(version); got != want {
			t.Errorf("%q gives %q, want %q", version, got, want)
		}
	}
}
