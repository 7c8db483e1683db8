package gpu

import (
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// UUID names a GPU ("GPU-…") or a MIG device ("MIG-…") in NVIDIA's spelling,
// hexadecimal digits in lower case.
type UUID string

const (
	gpuPrefix = "GPU-"
	migPrefix = "MIG-"
)

// ParseUUID accepts the full form of a GPU's or MIG device's UUID, in either
// case, and returns it with lower-case digits. Short forms ("GPU-1234abcd"),
// which NVML's tools also print, are refused: they do not name one device.
func ParseUUID(s string) (UUID, error) {
	prefix, bare, ok := cutUUIDPrefix(s)
	if !ok {
		return "", fmt.Errorf("UUID %q does not start with GPU- or MIG-", foreign.Clip(s))
	}
	if !isBareUUID(bare) {
		return "", fmt.Errorf("UUID %q is not of the form %sxxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", foreign.Clip(s), prefix)
	}
	return UUID(prefix + strings.ToLower(bare)), nil
}

func cutUUIDPrefix(s string) (prefix, bare string, ok bool) {
	for _, p := range []string{gpuPrefix, migPrefix} {
		if len(s) > len(p) && strings.EqualFold(s[:len(p)], p) {
			return p, s[len(p):], true
		}
	}
	return "", "", false
}

func isBareUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if s[i] != '-' {
				return false
			}
			continue
		}
		if !isHex(s[i]) {
			return false
		}
	}
	return true
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// IsMIG reports whether u names a MIG device.
func (u UUID) IsMIG() bool { return strings.HasPrefix(string(u), migPrefix) }

// Bare is the UUID as HTCondor's DeviceUuid wants it: without "GPU-", but with
// "MIG-" for a MIG device.
func (u UUID) Bare() string { return strings.TrimPrefix(string(u), gpuPrefix) }

func (u UUID) String() string { return string(u) }

// UnmarshalText lets encoding/json and TOML read a UUID strictly.
func (u *UUID) UnmarshalText(b []byte) (err error) {
	*u, err = ParseUUID(string(b))
	return err
}
