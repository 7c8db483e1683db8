//go:build cgo

package cuda

// #cgo linux LDFLAGS: -ldl
// #include "library.h"
import "C"

import (
	"github.com/gpuslot/gpuslot/gpu"
)

// load opens the driver's library. A program linked to it would not even start
// where there is none.
func load() Step {
	if why := C.cuda_load(); why != nil {
		return Step{Code: NotLoaded, Result: "not loaded", Text: C.GoString(why)}
	}
	return Step{Result: "loaded"}
}

// driverVersion answers before cuInit (run on 550.163.01).
func driverVersion() (version int, ok bool) {
	var v C.int
	r := C.cuda_driver_version(&v)
	return int(v), r == Success
}

func cuInit() Step { return result(C.cuda_init()) }

func deviceCount(count *int) Step {
	var n C.int
	r := C.cuda_device_count(&n)
	*count = int(n)
	return result(r)
}

func ctxRetain() Step { return result(C.cuda_context()) }

func ctxRelease() { C.cuda_release() }

func memInfo(free, total *gpu.Bytes) Step {
	var f, t C.size_t
	r := C.cuda_mem_info(&f, &t)
	*free, *total = gpu.Bytes(f), gpu.Bytes(t)
	return result(r)
}

func memAlloc(size gpu.MiB) Step { return result(C.cuda_alloc(C.size_t(size) << 20)) }

func memFree() Step { return result(C.cuda_free()) }

// result has the driver's own words.
func result(r C.int) Step {
	return Step{Code: int(r), Result: C.GoString(C.cuda_name(r)), Text: C.GoString(C.cuda_text(r))}
}
