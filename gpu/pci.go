package gpu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// PCIBusID is a PCI address in the kernel's spelling, "dddd:bb:dd.f" in lower
// case; a domain above ffff has more digits.
type PCIBusID string

// Before reports whether p comes before o on the bus.
func (p PCIBusID) Before(o PCIBusID) bool {
	if len(p) != len(o) { // only domains differ in length
		return len(p) < len(o)
	}
	return p < o
}

// ParsePCIBusID accepts the kernel's form and NVML's, whose domain has eight
// digits ("00000000:3B:00.0"), with or without domain and function.
func ParsePCIBusID(s string) (PCIBusID, error) {
	bad := fmt.Errorf("PCI bus id %q is not of the form dddd:bb:dd.f", foreign.Clip(s))
	rest, function := s, "0"
	if i := strings.LastIndexByte(s, '.'); i >= 0 {
		rest, function = s[:i], s[i+1:]
	}
	parts := strings.Split(rest, ":")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 3 {
		return "", bad
	}
	var n [4]uint64
	for i, f := range []struct {
		text string
		bits int
		most uint64
	}{{parts[0], 32, 1<<32 - 1}, {parts[1], 8, 0xff}, {parts[2], 8, 0x1f}, {function, 8, 7}} {
		v, err := strconv.ParseUint(f.text, 16, f.bits)
		if err != nil || v > f.most || len(f.text) > 8 {
			return "", bad
		}
		n[i] = v
	}
	return PCIBusID(fmt.Sprintf("%04x:%02x:%02x.%x", n[0], n[1], n[2], n[3])), nil
}

func (p PCIBusID) String() string { return string(p) }

// UnmarshalText lets encoding/json read a bus id strictly.
func (p *PCIBusID) UnmarshalText(b []byte) (err error) {
	*p, err = ParsePCIBusID(string(b))
	return err
}

// PCIDevice is a PCI device and vendor id as NVML packs them and mig-parted
// spells them: 0xDDDDVVVV.
type PCIDevice uint32

func (d PCIDevice) String() string { return fmt.Sprintf("0x%08X", uint32(d)) }

// MarshalText writes 0xDDDDVVVV.
func (d PCIDevice) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads 0xDDDDVVVV, the digits in either case.
func (d *PCIDevice) UnmarshalText(b []byte) error {
	digits, hex := strings.CutPrefix(strings.ToLower(string(b)), "0x")
	id, err := strconv.ParseUint(digits, 16, 32)
	if !hex || len(digits) != 8 || err != nil {
		return fmt.Errorf("%q is no PCI id such as 0x20B010DE", foreign.Clip(string(b)))
	}
	*d = PCIDevice(id)
	return nil
}
