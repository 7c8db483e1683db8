package scenes

import (
	"context"
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
)

// slotOf picks a GPU's partitionable slot for condor_status.
func slotOf(u gpu.UUID) string {
	return fmt.Sprintf(`SlotType == "Partitionable" && GPUSlotUUID == "%s"`, u)
}

// slotSays is what the collector has of a GPU's partitionable slot.
func (st *Stage) slotSays(ctx context.Context, u gpu.UUID, attrs ...string) (string, error) {
	out, err := st.Run(ctx, append([]string{"condor_status", "-constraint", slotOf(u), "-af"}, attrs...)...)
	return strings.TrimSpace(out.Stdout), err
}

// slotAccepts is what the startd's ad says of a GPU.
func (st *Stage) slotAccepts(ctx context.Context, u gpu.UUID) (accept bool, reason string) {
	text, err := st.slotSays(ctx, u, "GPUAccept", "GPUAcceptReason")
	if err != nil {
		return false, err.Error()
	}
	word, reason, _ := strings.Cut(text, " ")
	return word == "true", reason
}

func (st *Stage) waitSlot(ctx context.Context, u gpu.UUID, accept bool) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	return st.Wait(ctx, fmt.Sprintf("GPUAccept = %v of %s", accept, u), func() bool {
		now, _ := st.slotAccepts(ctx, u)
		return now == accept
	})
}

// freshStamp waits until the monitor has just spoken, so that what happens next
// happens behind its back for most of its period.
func (st *Stage) freshStamp(ctx context.Context, u gpu.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	first := ""
	return st.Wait(ctx, "a new time stamp of "+string(u), func() bool {
		now, err := st.slotSays(ctx, u, "GPUAcceptTime")
		if first == "" {
			first = now
		}
		return err == nil && now != first
	})
}

// waitTenant waits until a GPU's slot says that it is an account's.
func (st *Stage) waitTenant(ctx context.Context, u gpu.UUID, who string) error {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	return st.Wait(ctx, "the slot to name its tenant", func() bool {
		tenant, err := st.slotSays(ctx, u, "GPUTenant")
		return err == nil && tenant == who
	})
}

// waitClosed waits until a GPU's slot says that it takes no jobs, and why.
func (st *Stage) waitClosed(ctx context.Context, u gpu.UUID) (reason string, err error) {
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	err = st.Wait(ctx, "the slot to say why it is closed", func() bool {
		text, err := st.slotSays(ctx, u, "GPUAccept", "GPUAcceptReason")
		word, why, _ := strings.Cut(text, " ")
		reason = why
		return err == nil && word == "false" && reason != ""
	})
	return reason, err
}
