package condor

import (
	"strings"
	"testing"
)

func TestCheckVersion(t *testing.T) {
	for version, want := range map[string]struct{ warning, err string }{
		"23.0.29":  {"", "too old"},
		"23.7.2":   {"", "too old"},
		"23.8.1":   {"", "HTCONDOR-2678"},
		"23.9.6":   {"", "HTCONDOR-2678"},
		"23.10.29": {"", "HTCONDOR-2678"},
		"23.10.30": {"", "too old"},
		"24.0.0":   {"", "too old"},
		"24.0.1":   {"", ""},
		"24.12.14": {"", ""},
		"25.14.1":  {"", ""},
		"26.0.0":   {"not tried with HTCondor 26.0.0", ""},
		"10.0.9":   {"", "too old"},
	} {
		v, err := ParseVersion("$CondorVersion: " + version + " 2026-10-16 PackageID: 25.14.1+dfsg-1 $\n$CondorPlatform: X86_64-Debian_ $")
		if err != nil || v.String() != version {
			t.Errorf("%s is read as %s, %v", version, v, err)
			continue
		}
		warning, err := Check(v)
		if (warning == "") != (want.warning == "") || !strings.Contains(warning, want.warning) {
			t.Errorf("%s: warning %q, want %q", version, warning, want.warning)
		}
		if (err == nil) != (want.err == "") || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("%s: error %v, want %q", version, err, want.err)
		}
		if err != nil && !strings.Contains(err.Error(), "upgrade to 24.0.1 or later") {
			t.Errorf("%s: %v does not say what to do", version, err)
		}
	}
}

func TestParseVersionRefuses(t *testing.T) {
	for _, s := range []string{"", "25.14.1", "$CondorVersion: $", "$CondorVersion: 25.14 $", "$CondorVersion: 25.-1.1", "$CondorVersion: 25.14.1.2 $", "$CondorVersion: 25.99999999.1 $"} {
		if v, err := ParseVersion(s); err == nil {
			t.Errorf("%q is read as %s", s, v)
		}
	}
}

// A version that is accepted is the one in the text.
func FuzzParseVersion(f *testing.F) {
	f.Add("$CondorVersion: 25.14.1 2026-10-16 $")
	f.Add("x$CondorVersion:\t024.0.1")
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseVersion(s)
		if err != nil {
			return
		}
		again, err := ParseVersion("$CondorVersion: " + v.String() + " $")
		if err != nil || again != v {
			t.Fatalf("%q is %s, which is read as %s: %v", s, v, again, err)
		}
	})
}
