package gpu

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseUUID(t *testing.T) {
	const bare = "5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001"
	for text, want := range map[string]UUID{
		"GPU-" + bare:                  "GPU-" + bare,
		"GPU-" + strings.ToUpper(bare): "GPU-" + bare,
		"gpu-" + bare:                  "GPU-" + bare,
		"MIG-" + bare:                  "MIG-" + bare,
		"mig-" + strings.ToUpper(bare): "MIG-" + bare,
	} {
		if got, err := ParseUUID(text); err != nil || got != want {
			t.Errorf("ParseUUID(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestParseUUIDRefuses(t *testing.T) {
	const start, form = "does not start with GPU- or MIG-", "is not of the form GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	for text, want := range map[string]string{
		"":                                     start,
		"GPU-":                                 start,
		"5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001": start,
		"GPU_5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001": start,
		"GPU-5a1e0c11": form, // the short form of nvidia-smi and HTCondor
		"GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f00":       form,
		"GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f0011":     form,
		"GPU-5a1e0c1g-7d02-4b6a-9c31-0e84a2d1f001":      form,
		"GPU-5a1e0c11_7d02-4b6a-9c31-0e84a2d1f001":      form,
		"GPU-5a1e0c117-d02-4b6a-9c31-0e84a2d1f001":      form,
		"GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001/0/0":  form,
		"GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f00\n":     form,
		"GPU- 5a1e0c11-7d02-4b6a-9c31-0e84a2d1f00":      form,
		"GPU-" + strings.Repeat("a", 1000):              form,
		"GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f\xff\xfe": form,
	} {
		got, err := ParseUUID(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseUUID(%.60q) = %q, %v; want an error with %q", text, got, err, want)
		} else if len(err.Error()) > 300 {
			t.Errorf("ParseUUID(%.60q): the error has %d bytes", text, len(err.Error()))
		}
	}
}

func TestUUIDKind(t *testing.T) {
	const bare = "5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001"
	for _, c := range []struct {
		uuid UUID
		mig  bool
		bare string // HTCondor's DeviceUuid
	}{{"GPU-" + bare, false, bare}, {"MIG-" + bare, true, "MIG-" + bare}} {
		if c.uuid.IsMIG() != c.mig || c.uuid.Bare() != c.bare {
			t.Errorf("%s: IsMIG %v, Bare %q; want %v, %q", c.uuid, c.uuid.IsMIG(), c.uuid.Bare(), c.mig, c.bare)
		}
	}
}

// FuzzParseUUID: what is accepted is a fixed point, has one spelling, and
// survives JSON.
func FuzzParseUUID(f *testing.F) {
	for _, s := range []string{
		"GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001", "mig-5A1E0C11-7d02-4b6a-9c31-0e84a2d1f001",
		"GPU-5a1e0c11", "", "GPU-", "5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001", "MIG-GPU-5a1e0c11-7d02-4b6a-9c31-0e84a2d1f001/7/0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := ParseUUID(text)
		if err != nil {
			return
		}
		if again, err := ParseUUID(u.String()); err != nil || again != u {
			t.Errorf("ParseUUID(%q) = %q, which reads as %q, %v", text, u, again, err)
		}
		if !strings.EqualFold(string(u), text) || len(u) != len(text) || strings.ToLower(string(u[4:])) != string(u[4:]) {
			t.Errorf("ParseUUID(%q) = %q", text, u)
		}
		b, err := json.Marshal(u)
		var back UUID
		if err != nil || json.Unmarshal(b, &back) != nil || back != u {
			t.Errorf("%q reads back from JSON %s as %q", u, b, back)
		}
	})
}
