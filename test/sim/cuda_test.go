package sim

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/test/driver"
)

func TestVisibleDevices(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, threeGPUs)
		// Fastest first; equal ones by bus address.
		const all = "bbbb2222 aaaa1111 aaaa0000"
		tests := []struct{ name, list, want string }{
			{"numbers follow CUDA's order", "2,0", "aaaa0000 bbbb2222"},
			{"number by strtol", "1gpu,0x", "aaaa1111 bbbb2222"},
			{"spaces", " 1, 2", "aaaa1111 aaaa0000"},
			{"empty", "", ""},
			{"minus one hides all", "-1", ""},
			{"minus one ends the list", "0,-1,1", "bbbb2222"},
			{"number out of range ends the list", "1,3,0", "aaaa1111"},
			{"number twice", "0,1,0", ""},
			{"same number spelled twice", "1,01", ""},
			{"word", "none", ""},
			{"uuid", "GPU-aaaa0000-0000-4000-8000-000000000000", "aaaa0000"},
			{"beginnings", "GPU-bbbb,GPU-aaaa1", "bbbb2222 aaaa1111"},
			{"ambiguous beginning ends the list", "GPU-bbbb,GPU-aaaa,GPU-aaaa1", "bbbb2222"},
			{"unknown uuid first", "GPU-cccc,GPU-bbbb", ""},
			{"unknown uuid ends the list", "GPU-bbbb,GPU-cccc,GPU-aaaa1", "bbbb2222"},
			{"uuid twice", "GPU-bbbb,GPU-bbbb2222", ""},
			{"number among uuids ends the list", "GPU-bbbb,1", "bbbb2222"},
			{"uuid among numbers ends the list", "1,GPU-bbbb", "aaaa1111"},
			{"upper case is unknown", "GPU-BBBB", ""},
			{"MIG id without MIG", "MIG-bbbb", ""},
			{"trailing comma", "0,", "bbbb2222"},
		}
		if got := n.devices(t); got != all {
			t.Errorf("without the variable: %q, want %q", got, all)
		}
		if got, want := n.devices(t, "CUDA_DEVICE_ORDER=PCI_BUS_ID"), "aaaa1111 aaaa0000 bbbb2222"; got != want {
			t.Errorf("by bus id: %q, want %q", got, want)
		}
		for _, tt := range tests {
			if got := n.devices(t, "CUDA_VISIBLE_DEVICES="+tt.list); got != tt.want {
				t.Errorf("%s: %q shows %q, want %q", tt.name, tt.list, got, tt.want)
			}
		}
		n.simgpu(t, "lose", "2")
		if got, want := n.devices(t), "aaaa1111 aaaa0000"; got != want {
			t.Errorf("with a lost GPU: %q, want %q", got, want)
		}
	})
}

// MIG User Guide, "CUDA Device Enumeration": one compute instance, and no whole
// GPU beside it.
func TestVisibleMIGDevices(t *testing.T) {
	needRoot(t)
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, threeGPUs)
		n.simgpu(t, "mig", "2", "on")
		if got, want := n.devices(t), "aaaa1111 aaaa0000"; got != want {
			t.Errorf("MIG on without instances: %q, want %q", got, want)
		}
		n.simgpu(t, "mig", "2", "create", "3g.20gb@4", "1g.5gb@0")
		mig := n.shown(t).GPUs[2].Devices
		if len(mig) != 2 {
			t.Fatalf("%d MIG devices, want 2", len(mig))
		}
		first, second := mig[0].UUID, mig[1].UUID
		short := func(u string) string { return strings.TrimPrefix(u, "MIG-")[:8] }
		tests := []struct{ name, list, want string }{
			{"by id", second, short(second)},
			{"two are one", second + "," + first, short(second)},
			{"one twice", first + "," + first, ""},
			{"not abbreviated", second[:16], ""},
			{"unknown first", "MIG-00000000-0000-0000-0000-000000000000," + first, ""},
			{"parent means its first", "GPU-bbbb2222", short(first)},
			{"parent hides the others", "GPU-aaaa1,GPU-bbbb2222", short(first)},
			{"other GPUs alone", "GPU-aaaa1,GPU-aaaa0", "aaaa1111 aaaa0000"},
		}
		if got, want := n.devices(t), short(first); got != want {
			t.Errorf("without the variable: %q, want %q", got, want)
		}
		for _, tt := range tests {
			if got := n.devices(t, "CUDA_VISIBLE_DEVICES="+tt.list); got != tt.want {
				t.Errorf("%s: %q shows %q, want %q", tt.name, tt.list, got, tt.want)
			}
		}
		// The memory and the multiprocessors are those of the instance.
		for uuid, want := range map[string]string{first: "MIG 3g.20gb, 19959 MiB, 42 multi", second: "MIG 1g.5gb, 4861 MiB, 14 multi"} {
			if out, _ := n.job(t, "devices", "CUDA_VISIBLE_DEVICES="+uuid); !strings.Contains(out, want) {
				t.Errorf("%s is not %q:\n%s", uuid, want, out)
			}
		}
		wantJob(t, n, "alloc 5000", "context on device 0: ok\nalloc 5000 MiB: error 2 CUDA_ERROR_OUT_OF_MEMORY: out of memory", 1,
			"CUDA_VISIBLE_DEVICES="+second)
	})
}

// A process holds what it allocates, and a context besides; SIGKILL frees it.
func TestMemory(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, `{"gpus": [{"model": "T4"}]}`)
		const total, overhead = 15360 - 393, 24 + 2*40 // 98 to 107 in public listings
		wantJob(t, n, "alloc 1000 info free info", fmt.Sprintf(`
context on device 0: ok
alloc 1000 MiB: ok
info %d MiB free of %d MiB: ok
free: ok
info %d MiB free of %d MiB: ok`, total-overhead-1000, total, total-overhead, total), 0)
		wantJob(t, n, "go on alloc 10000 alloc 6000 alloc 3000 exit 7", `
context on device 0: ok
alloc 10000 MiB: ok
alloc 6000 MiB: error 2 CUDA_ERROR_OUT_OF_MEMORY: out of memory
alloc 3000 MiB: ok`, 7)

		a := n.start(t, "alloc 9000 until eof")
		a.line("alloc 9000 MiB: ok")
		s := n.shown(t)
		if s.GPUs[0].Used != 9000+overhead || len(s.Processes) != 1 || s.Processes[0].PID != a.cmd.Process.Pid {
			t.Errorf("the state says %+v", s)
		}
		wantJob(t, n, "alloc 6000", "context on device 0: ok\nalloc 6000 MiB: error 2 CUDA_ERROR_OUT_OF_MEMORY: out of memory", 1)
		_ = a.cmd.Process.Kill() // not waited for: a zombie has no memory
		n.eventually(t, "free of the killed job", func(s shown) bool { return s.GPUs[0].Used == 0 && len(s.Processes) == 0 })
		wantJob(t, n, "alloc 6000", "context on device 0: ok\nalloc 6000 MiB: ok", 0)

		b := n.start(t, "alloc 2000 free alloc 100 until eof")
		b.line("alloc 100 MiB: ok")
		if p := n.shown(t).Processes[0]; p.Peak != 2000+overhead || p.Memory != 100+overhead {
			t.Errorf("memory %d, peak %d MiB; want %d, %d", p.Memory, p.Peak, 100+overhead, 2000+overhead)
		}
		if code := b.end(); code != 0 {
			t.Errorf("the job ended with %d", code)
		}
	})
}

// The compute modes of nvml.h and of the CUDA C++ Programming Guide.
func TestComputeModes(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		const unavailable = "context on device 0: error 46 CUDA_ERROR_DEVICE_UNAVAILABLE: CUDA-capable device(s) is/are busy or unavailable"
		n.make(t, `{"gpus": [{"model": "T4", "compute_mode": "exclusive-process"}, {"model": "A100-40"}]}`)
		const t4 = "CUDA_VISIBLE_DEVICES=1"
		a := n.start(t, "context until eof", t4)
		a.line("context on device 0: ok")
		wantJob(t, n, "context", unavailable, 1, t4)
		wantJob(t, n, "context", "context on device 0: ok", 0, "CUDA_VISIBLE_DEVICES=0") // the other GPU
		if code := a.end(); code != 0 {
			t.Errorf("the holder ended with %d", code)
		}
		wantJob(t, n, "context", "context on device 0: ok", 0, t4)
		n.simgpu(t, "mode", "0", "prohibited")
		wantJob(t, n, "context", unavailable, 1, t4)
		n.simgpu(t, "mode", "0", "default")
		b := n.start(t, "context until eof", t4)
		b.line("context on device 0: ok")
		wantJob(t, n, "context", "context on device 0: ok", 0, t4)
	})
}

// A kernel's load stands in the state while it runs, and ends with its process.
func TestLoad(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, `{"gpus": [{"model": "T4"}]}`)
		a := n.start(t, "load 40 1000s")
		b := n.start(t, "load 25 1ms until eof")
		n.eventually(t, "40 % busy", func(s shown) bool { return s.GPUs[0].Load == 40 })
		b.line("load 25 1ms: ok")
		if got := n.shown(t).GPUs[0].Load; got != 40 {
			t.Errorf("load %d %% after the short kernel, want 40", got)
		}
		_ = a.cmd.Process.Kill()
		n.eventually(t, "idle", func(s shown) bool { return s.GPUs[0].Load == 0 })
	})
}

// What simgpu injects reaches a program that runs.
func TestInjectedFaults(t *testing.T) {
	tests := []struct {
		name   string
		inject []string
		want   string
	}{
		{"lost", []string{"lose", "0"}, "until eof: error 999 CUDA_ERROR_UNKNOWN: unknown error"},
		{"ECC", []string{"ecc", "0", "uncorrected", "1"}, "until eof: error 214 CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered"},
		{"planned", []string{"fail", "0", "cuCtxSynchronize", "719", "1"}, "until eof: error 719 CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure"},
	}
	legs(t, func(t *testing.T, n *Node) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				n.make(t, `{"gpus": [{"model": "T4"}]}`)
				a := n.start(t, "context until eof")
				a.line("context on device 0: ok")
				n.simgpu(t, tt.inject...)
				if got := a.line("until eof"); got != tt.want {
					t.Errorf("%q, want %q", got, tt.want)
				}
				if code := a.end(); code != 1 {
					t.Errorf("the job ended with %d, want 1", code)
				}
			})
		}
	})
}

// A hanging GPU holds its callers until it is released.
func TestHang(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, `{"gpus": [{"model": "T4"}]}`)
		for _, hang := range [][]string{{"hang", "0"}, {"hang", "any", "cuMemAlloc*"}} {
			n.simgpu(t, hang...)
			a := n.start(t, "devices alloc 10 until eof")
			a.line("init: ok")
			n.simgpu(t, "release", "any")
			a.line("alloc 10 MiB: ok")
			if code := a.end(); code != 0 {
				t.Errorf("%v: the job ended with %d", hang, code)
			}
		}
	})
}

// A kernel that goes wrong leaves its XID and a context that answers nothing else.
func TestKernelFaults(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, `{"gpus": [{"model": "T4"}]}`)
		for _, tt := range []struct {
			kind, want string
			xid        int
		}{
			{"illegal_address", "error 700 CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", 31},
			{"illegal_instruction", "error 715 CUDA_ERROR_ILLEGAL_INSTRUCTION: an illegal instruction was encountered", 13},
			{"assert", "error 710 CUDA_ERROR_ASSERT: device-side assert triggered", 43},
		} {
			wantJob(t, n, "go on fault "+tt.kind+" alloc 1 load 10 1ms",
				fmt.Sprintf("context on device 0: ok\nfault %s: %s\nalloc 1 MiB: %[2]s\nload 10 1ms: %[2]s", tt.kind, tt.want), 1)
			if got := n.shown(t).GPUs[0].XID; got != tt.xid {
				t.Errorf("%s: XID %d, want %d", tt.kind, got, tt.xid)
			}
		}
		wantJob(t, n, "go on exit on 700 fault illegal_address alloc 1",
			"context on device 0: ok\nfault illegal_address: error 700 CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", 1)
		wantJob(t, n, "fault nonesuch", "context on device 0: ok\nfault nonesuch: error 500 CUDA_ERROR_NOT_FOUND: named symbol not found", 1)
	})
}

// CUDA does not survive fork.
func TestFork(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, `{"gpus": [{"model": "T4"}]}`)
		wantJob(t, n, "context fork sync", "context on device 0: ok\nsync: error 3 CUDA_ERROR_NOT_INITIALIZED: initialization error", 1)
		wantJob(t, n, "fork context", "context on device 0: ok", 0)
	})
}

// Without a driver there is no device.
func TestNoDriver(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		const none = "init: error 100 CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
		wantJob(t, n, "devices", none, 1) // no state file yet
		n.make(t, `{"gpus": []}`)
		wantJob(t, n, "devices", none, 1)
		n.make(t, `{"gpus": [{"model": "T4"}]}`)
		n.simgpu(t, "driver", "missing")
		wantJob(t, n, "devices", none, 1)
		n.simgpu(t, "driver", "loaded")
		wantJob(t, n, "context", "context on device 0: ok", 0)
	})
}

// The names and texts of the results are those of the real library.
func TestResultsAreTheReal(t *testing.T) {
	n := New(t, "550.163.01", "T4")
	ours, code := n.job(t, "results")
	if code != 0 || strings.Count(ours, "\n") < 20 {
		t.Fatalf("simjob results: exit code %d:\n%s", code, ours)
	}
	for _, branch := range driver.Branches() {
		t.Run(branch, func(t *testing.T) {
			real, code := n.job(t, "results", "LD_LIBRARY_PATH="+driver.Libraries(driver.Dir(t, branch)))
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, real)
			}
			known := map[string]bool{}
			for _, l := range strings.Split(real, "\n") {
				known[l] = true
			}
			for _, l := range strings.Split(strings.TrimSpace(ours), "\n") {
				if younger := branch == "535" && strings.HasPrefix(l, "915 "); !known[l] && !younger { // 915 came with 12.4
					t.Errorf("the real libcuda does not say %q", l)
				}
			}
		})
	}
}

// The library exports CUDA's names and nothing of the simulator.
func TestCUDAExports(t *testing.T) {
	n := New(t, "550.163.01", "T4")
	out, err := exec.CommandContext(t.Context(), "nm", "-D", "--defined-only", filepath.Join(n.Lib(), "libcuda.so.1")).Output()
	if err != nil {
		t.Fatal(err)
	}
	real, err := exec.CommandContext(t.Context(), "nm", "-D", "--defined-only",
		filepath.Join(driver.Libraries(driver.Dir(t, "550")), "libcuda.so.1")).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		f := strings.Fields(l)
		if name := f[len(f)-1]; !bytes.Contains(real, []byte(" "+name+"\n")) {
			t.Errorf("%s is no function of libcuda 550", name)
		}
	}
}

// Eight processes that take all they can get never get more than there is.
func TestRacingAllocations(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, `{"gpus": [{"model": "T4"}]}`)
		const total, overhead, step = 15360 - 393, 24 + 2*40, 500
		var jobs []*running
		for range 8 {
			jobs = append(jobs, n.start(t, "go on context"+strings.Repeat(fmt.Sprintf(" alloc %d", step), 40)+" sync until eof"))
		}
		want := 0
		for _, j := range jobs {
			j.line("sync")
			for _, l := range j.said() {
				switch {
				case strings.HasPrefix(l, "alloc") && strings.HasSuffix(l, "ok"):
					want += step
				case strings.HasPrefix(l, "context") && strings.HasSuffix(l, "ok"):
					want += overhead
				}
			}
		}
		if used := n.shown(t).GPUs[0].Used; used != want || used > total || total-used >= step {
			t.Errorf("%d MiB used of %d, the jobs hold %d", used, total, want)
		}
	})
}
