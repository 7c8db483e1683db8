//go:build cgo

package nvml

import (
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/gpus"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
)

// TestMIGDeviceUnread: a MIG device that is there and cannot be read is told. A hole, and one that
// goes away beside the reading, are not. The GPU and its other devices stay.
func TestMIGDeviceUnread(t *testing.T) {
	broken := &mock.Device{GetGpuInstanceIdFunc: func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }}
	for name, c := range map[string]struct {
		handles []nvml.Return // of index 5, one after the other
		want    string
	}{
		"a hole":                 {[]nvml.Return{nvml.ERROR_NOT_FOUND}, ""},
		"beyond the last":        {[]nvml.Return{nvml.ERROR_INVALID_ARGUMENT}, ""},
		"no handle":              {[]nvml.Return{nvml.ERROR_UNKNOWN}, "MIG device 5 of the GPU with NVML index 0: nvmlDeviceGetMigDeviceHandleByIndex: "},
		"a handle and no answer": {[]nvml.Return{nvml.SUCCESS, nvml.SUCCESS}, "MIG device 5 of the GPU with NVML index 0: nvmlDeviceGetGpuInstanceId: "},
		"it goes away":           {[]nvml.Return{nvml.SUCCESS, nvml.ERROR_NOT_FOUND}, ""},
	} {
		s := mocked(t, gpus.A100_SXM4_40GB)
		d := s.Devices[0].(*server.Device)
		holds(&d.Device, 40960*mockMiB, 600*mockMiB, 1000*mockMiB)
		divide(t, d)
		whole, asked := d.GetMigDeviceHandleByIndexFunc, 0
		d.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
			if i != 5 {
				return whole(i)
			}
			asked++
			return broken, c.handles[min(asked, len(c.handles))-1]
		}
		inv, unreadable, err := readNode(s, symbols{migMode: true, migDevices: true, memoryV2: true}, func(string) {})
		if err != nil || len(inv.GPUs) != 1 || !inv.GPUs[0].MIGEnabled || len(inv.GPUs[0].MIGDevices) != 1 {
			t.Fatalf("%s: %+v, %v", name, inv, err)
		}
		if (len(unreadable) > 0) != (c.want != "") || c.want != "" && !strings.HasPrefix(unreadable[0].Error(), c.want) {
			t.Errorf("%s: %q, want %q", name, unreadable, c.want)
		}
	}
}
