package gpu

// What the operator has to do. A reset needs the GPU without any user, and an
// NVML session is one: gpuslotd and MPS hold it too (nvidia-smi(1), --gpu-reset).
const (
	doNothing = "nothing; if it comes often, show it to your hardware vendor"
	doJob     = "nothing on the node; the job's owner finds the bug with compute-sanitizer or cuda-gdb"
	doRepeat  = "nothing; if it comes with different jobs, reset the GPU and show it to your hardware vendor"
	doReset   = "drain the node, stop gpuslotd, MPS and what else holds the GPU, run nvidia-smi --gpu-reset, " +
		"and start them again; show it to your hardware vendor if it comes back"
	doReboot = "drain the node and reboot it; " +
		"power-cycle it if the GPU does not come back, and show it to your hardware vendor"
	doPower = "drain the node and power-cycle it; " +
		"see the kernel log and the BMC for PCIe and power, and show it to your hardware vendor"
	doCables = "drain the node and connect the GPU's auxiliary power"
	doLook   = "see the kernel log for its NVRM line, and NVIDIA's Xid catalog"
	doAction = "nothing by itself: gpuslotd follows the recovery action that the driver reports"
	doLater  = "reset the GPU when its jobs are done; until then jobs may run"
	doLink   = "see nvidia-smi nvlink -e; gpuslotd follows the recovery action that the driver reports"
)

// xids holds a row for each number that has words of its own.
var xids = map[int]XID{
	8: {Name: "GPU stopped processing", Class: XIDApplication, Reach: ReachClients, Do: doRepeat,
		Source: "catalog RESTART_APP"},
	11: {Name: "invalid or corrupted push buffer stream", Class: XIDApplication, Reach: ReachClients, Do: doJob,
		Source: "catalog RESTART_APP"},
	13: {Name: "graphics engine exception", Class: XIDApplication, Reach: ReachClients, Do: doJob,
		Source: "catalog RESTART_APP: typically an out-of-bounds access, rarely hardware"},
	14: {Name: "injected from user space", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "catalog IGNORE"},
	25: {Name: "invalid or illegal push buffer stream", Class: XIDApplication, Reach: ReachClients, Do: doJob,
		Source: "catalog RESTART_APP"},
	31: {Name: "GPU memory page fault", Class: XIDApplication, Reach: ReachClients, Do: doJob,
		Source: "catalog RESTART_APP: typically an illegal address"},
	32: {Name: "invalid or corrupted push buffer stream", Class: XIDApplication, Reach: ReachClients, Do: doRepeat,
		Source: "catalog RESTART_APP; primarily the quality of PCIe, not the application"},
	37: {Name: "driver firmware error", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "catalog IGNORE"},
	38: {Name: "driver firmware error", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "catalog IGNORE"},
	43: {Name: "GPU stopped processing", Class: XIDApplication, Reach: ReachClients, Do: doJob,
		Source: "catalog IGNORE: an application's error, the GPU stays healthy"},
	44: {Name: "graphics engine fault during context switch", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "catalog IGNORE"},
	45: {Name: "preemptive cleanup", Class: XIDApplication, Reach: ReachProcess,
		Do:     "nothing: a program ended, was killed, or met the Xid before this one",
		Source: "catalog WORKFLOW_XID_45: follow the other Xid"},
	46: {Name: "GPU stopped processing", Class: XIDNeedsReset, Reach: ReachGPU, Do: doReset, Source: "catalog RESET_GPU"},
	48: {Name: "double bit ECC error", Class: XIDNeedsReset, Reach: ReachGPU, Do: doReset,
		Source: "catalog: a GPU reset or node reboot is needed to clear it"},
	54: {Name: "auxiliary power is not connected", Class: XIDBroken, Reach: ReachGPU, Do: doCables,
		Source: "catalog CHECK_MECHANICALS"},
	60: {Name: "video processor exception", Class: XIDApplication, Reach: ReachClients, Do: doRepeat,
		Source: "catalog RESTART_APP"},
	61: {Name: "internal micro-controller breakpoint", Class: XIDNeedsReset, Reach: ReachGPU, Do: doReset,
		Source: "inferred: PMU_BREAKPOINT of nverror.h, unused in the catalog; classed with 62"},
	62: {Name: "internal micro-controller halt", Class: XIDNeedsReset, Reach: ReachGPU, Do: doReset,
		Source: "catalog RESET_GPU"},
	63: {Name: "memory row remapped or page retired", Class: XIDInformation, Reach: ReachNobody, Do: doLater,
		Source: "catalog IGNORE; GPU Memory Error Management: new workloads can be launched"},
	64: {Name: "memory row not remapped, or page not retired", Class: XIDNeedsReset, Reach: ReachGPU, Do: doReset,
		Source: "catalog RESET_GPU"},
	66: {Name: "illegal access by driver", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "catalog IGNORE"},
	67: {Name: "illegal access by driver", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "catalog IGNORE"},
	68: {Name: "video decoder exception", Class: XIDApplication, Reach: ReachClients, Do: doRepeat,
		Source: "catalog RESTART_APP"},
	69: {Name: "graphics engine class error", Class: XIDApplication, Reach: ReachClients, Do: doJob,
		Source: "catalog RESTART_APP"},
	74: {Name: "NVLink error", Class: XIDNeedsReset, Reach: ReachGPU,
		Do:     doReset + "; see nvidia-smi nvlink -e: the cause may be the other end",
		Source: "catalog: a GPU reset or node reboot is needed to clear it"},
	79: {Name: "GPU has fallen off the bus", Class: XIDBroken, Reach: ReachGPU, Do: doPower,
		Source: "catalog RESTART_BM"},
	80: {Name: "corrupted data sent to GPU", Class: XIDApplication, Reach: ReachClients, Do: doRepeat,
		Source: "catalog RESTART_APP"},
	86: {Name: "optical flow accelerator exception", Class: XIDApplication, Reach: ReachClients, Do: doRepeat,
		Source: "catalog RESTART_APP"},
	92: {Name: "high single-bit ECC error rate", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "catalog IGNORE"},
	93: {Name: "InfoROM wear limit", Class: XIDInformation, Reach: ReachNobody, Do: doNothing, Source: "catalog IGNORE"},
	94: {Name: "contained memory error", Class: XIDApplication, Reach: ReachClients, Do: doLater,
		Source: "catalog RESTART_APP: contained to one application; reset when convenient; reach under MPS inferred"},
	95: {Name: "uncontained memory error", Class: XIDNeedsReset, Reach: ReachGPU, Do: doReset,
		Source: "catalog RESET_GPU: must be reset before applications can restart"},
	109: {Name: "context switch timeout", Class: XIDNeedsReset, Reach: ReachGPU, Do: doReset, Source: "catalog RESET_GPU"},
	110: {Name: "security fault", Class: XIDNeedsReset, Reach: ReachGPU, Do: doPower,
		Source: "catalog RESET_GPU: cold reset the system"},
	119: {Name: "GSP RPC timeout", Class: XIDNeedsReset, Reach: ReachGPU, Do: doReset,
		Source: "catalog RESET_GPU, or a power cycle if it persists"},
	120: {Name: "GSP error", Class: XIDNeedsReset, Reach: ReachGPU, Do: doReset,
		Source: "catalog RESET_GPU, or a power cycle if it persists"},
	121: {Name: "corrected C2C link error", Class: XIDInformation, Reach: ReachNobody, Do: doLater,
		Source: "catalog IGNORE: no operational impact"},
	122: {Name: "board flash not read", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "inferred: SPI_PMU_RPC_READ_FAIL of nverror.h, unused in the catalog"},
	123: {Name: "board flash not written", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "inferred: SPI_PMU_RPC_WRITE_FAIL of nverror.h, unused in the catalog"},
	136: {Name: "link training failed", Class: XIDNeedsReset, Reach: ReachGPU, Do: doReset, Source: "catalog RESET_GPU"},
	137: {Name: "illegal NVLink peer access", Class: XIDApplication, Reach: ReachClients, Do: doJob,
		Source: "catalog IGNORE: typically an application's bug"},
	139: {Name: "optical flow accelerator exception", Class: XIDApplication, Reach: ReachClients, Do: doRepeat,
		Source: "catalog RESTART_APP"},
	140: {Name: "unrecovered ECC error", Class: XIDNeedsReset, Reach: ReachGPU, Do: doReset, Source: "catalog RESET_GPU"},
	141: {Name: "CUDA fast path error", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "catalog IGNORE"},
	143: {Name: "GPU initialization error", Class: XIDNeedsReset, Reach: ReachGPU, Do: doReset,
		Source: "catalog RESET_GPU"},
	151: {Name: "key rotation error", Class: XIDNeedsReset, Reach: ReachGPU, Do: doReboot, Source: "catalog RESTART_VM"},
	154: {Name: "GPU recovery action changed", Class: XIDInformation, Reach: ReachNobody, Do: doAction,
		Source: "catalog XID_154: sums up what the Xids before it need"},
	155: {Name: "NVLink went down", Class: XIDInformation, Reach: ReachNobody, Do: doLink,
		Source: "catalog RESET_GPU, yet also logged for links put to sleep; linked to the recovery action since R565"},
	156: {Name: "resource retired", Class: XIDNeedsReset, Reach: ReachGPU, Do: doReset, Source: "catalog RESET_GPU"},
	157: {Name: "resource not retired", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "catalog IGNORE: workloads may still be run"},
	158: {Name: "GPU fatal timeout", Class: XIDNeedsReset, Reach: ReachGPU, Do: doReset, Source: "catalog RESET_GPU"},
	160: {Name: "memory channel retired", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "catalog IGNORE"},
	161: {Name: "memory channel not retired", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "catalog IGNORE"},
	171: {Name: "uncorrectable DRAM error", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "catalog: additional to Xid 48"},
	172: {Name: "uncorrectable SRAM error", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "catalog: additional to Xid 48"},
}

// xidRanges holds the numbers of engines that a chip has several of.
var xidRanges = []struct {
	first, last int
	xid         XID
}{
	{39, 41, engine("copy engine")},
	{70, 72, engine("copy engine")},
	{75, 77, engine("copy engine")},
	{85, 85, engine("copy engine")},
	{126, 135, engine("copy engine")},
	{82, 82, engine("JPEG decoder")},
	{99, 105, engine("JPEG decoder")},
	{83, 84, engine("video decoder")},
	{88, 89, engine("video decoder")},
	{96, 98, engine("video decoder")},
	{106, 107, XID{Name: "SMBus test message", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "catalog IGNORE"}},
	{144, 150, XID{Name: "NVLink error", Class: XIDInformation, Reach: ReachNobody, Do: doLink,
		Source: "catalog WORKFLOW_NVLINK5_ERR: by sub-code; linked to the recovery action since R565"}},
	{162, 165, XID{Name: "power smoothing", Class: XIDInformation, Reach: ReachNobody, Do: doNothing,
		Source: "catalog: no GPU reset required"}},
}

func engine(name string) XID {
	return XID{Name: name + " exception", Class: XIDApplication, Reach: ReachClients, Do: doRepeat,
		Source: "catalog RESTART_APP; reach under MPS inferred"}
}
