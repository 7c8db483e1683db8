package verify

import (
	"fmt"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu/cuda"
	"github.com/gpuslot/gpuslot/mps"
)

// verdict says what an attempt shows. It is pure.
func (t attempt) verdict(at time.Time) api.Verification {
	v := api.Verification{At: at, Account: t.who.name, LimitMiB: int64(t.limit)}
	for _, s := range t.report.Steps {
		v.Steps = append(v.Steps, api.VerifyStep{Step: s.Name, Result: s.Result, Milliseconds: s.Milliseconds})
	}
	if c := t.report.CUDA; c != nil {
		v.CUDA = fmt.Sprintf("%d.%d", *c/1000, *c%1000/10) // CUDA Driver API, cuDriverGetVersion
	}
	v.Text = t.wrong()
	if v.OK = v.Text == ""; v.OK {
		above, _ := t.report.Step(cuda.StepAbove)
		v.Text = fmt.Sprintf("as %s: an MPS client; of its %s it got %s, and for %s %s",
			t.who.name, t.limit, t.order.Below, t.order.Above, above.Result)
	}
	return v
}

// wrong says what does not hold and what to do; empty if all does.
func (t attempt) wrong() string {
	switch {
	case t.startErr != nil:
		return fmt.Sprintf("%v: see whether %s may run gpuslotd's own program", t.startErr, t.who.name)
	case t.stuck:
		return fmt.Sprintf("its client (pid %d) waits in the driver and cannot be killed: reset the GPU or reboot", t.pid)
	case t.overdue:
		return t.hung()
	}
	for _, s := range t.report.Steps {
		if s.Name != cuda.StepAbove && s.Code != cuda.Success {
			return fmt.Sprintf("%s gave %s: %s", s.Name, s.Result, t.advice(s))
		}
	}
	above, done := t.report.Step(cuda.StepAbove)
	switch {
	case !done:
		return fmt.Sprintf("its client ended (%s) in %s: look at the kernel log", t.report.Ended, orUnknown(t.report.In))
	case t.report.Devices == nil || *t.report.Devices != 1:
		return "its client sees other GPUs than this one: " +
			"see whether CUDA_VISIBLE_DEVICES and the control daemon name the same UUID"
	case t.listErr != nil:
		return fmt.Sprintf("it is not known whether its client attached: %s", mps.Reason(t.listErr))
	case !t.attached():
		return "CUDA runs on it beside its control daemon, without a limit: " +
			"see whether its pipe directory is reached (namei -l on CUDA_MPS_PIPE_DIRECTORY), " +
			"and use compute_mode = \"exclusive-process\", which refuses such jobs"
	case above.Code == cuda.Success:
		return fmt.Sprintf("%s were given to a client whose limit is %s: nothing holds a job to its budget; "+
			"restart its control daemon (gpuslot gpu restart)", t.order.Above, t.limit)
	case above.Code != cuda.OutOfMemory:
		return fmt.Sprintf("%s gave %s instead of CUDA_ERROR_OUT_OF_MEMORY: %s", above.Name, above.Result, t.advice(above))
	}
	return ""
}

func orUnknown(step string) string {
	if step == "" {
		return "an unknown step"
	}
	return step
}

// hung says why a client did not come to its end.
func (t attempt) hung() string {
	said := fmt.Sprintf("%s did not return within %s", orUnknown(t.report.In), t.patience)
	for _, s := range t.servers {
		if s.UID != t.who.uid && len(s.Clients) > 0 {
			return fmt.Sprintf("%s, because MPS serves uid %d (server %d) until its clients %v end: "+
				"they belong to no job of gpuslot; end them", said, s.UID, s.PID, s.Clients)
		}
	}
	if t.listErr != nil {
		return fmt.Sprintf("%s; %s", said, mps.Reason(t.listErr))
	}
	return fmt.Sprintf("%s: see its log (journalctl -u gpuslot-mps@%s) and the kernel log for Xid lines", said, t.gpu)
}

// advice is what to do about a result. The meanings of 46 and 8xx are those of
// the MPS documentation, appendix "error codes".
func (t attempt) advice(s cuda.Step) string {
	log := fmt.Sprintf("see its log: journalctl -u gpuslot-mps@%s", t.gpu)
	switch s.Code {
	case cuda.NotLoaded:
		return s.Text + ": install the driver's CUDA library (Debian: libcuda1)"
	case cuda.OutOfMemory:
		return fmt.Sprintf("a context and %s do not fit into %s, the VRAM of a default request: "+
			"raise it, or offer fewer shares", t.order.Below, t.limit)
	case cuda.DeviceUnavailable:
		return "it is in an exclusive compute mode and the client did not attach, " +
			"or somebody else's process holds it: see nvidia-smi"
	case cuda.NoDevice:
		return fmt.Sprintf("see whether nvidia-smi lists it, and whether %s may open /dev/nvidia* and /dev/nvidia-uvm "+
			"(nvidia-modprobe -u -c=0 makes that)", t.who.name)
	case cuda.NotPermitted:
		return fmt.Sprintf("its control daemon does not serve %s: it must run as root; %s", t.who.name, log)
	case cuda.MPSConnectionFailed:
		return fmt.Sprintf("its MPS server does not start or cannot be reached by %s: %s", t.who.name, log)
	case cuda.MPSServerNotReady:
		return "its MPS server recovers from a fault, or starts: " + log
	case cuda.MPSMaxClientsReached:
		return "its MPS server has no room for another client: end those that belong to no job"
	}
	if s.Text != "" {
		return s.Text + "; " + log
	}
	return log
}
