package node

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Reboot lets systemd reboot the node, and waits until it has started everything that is enabled. Files stay;
// /run, /tmp and /dev/shm are new, the boot id too. No other method may be called meanwhile.
func (n *Node) Reboot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	before := n.leader
	_, _ = n.Run(ctx, "systemctl", "reboot") // it may end with the node
	for {
		leader, err := n.up.leader(ctx)
		if err != nil {
			return fmt.Errorf("reboot node %s: %w; console: %s", n.name, err, n.state.console())
		}
		if leader != before {
			n.leader = leader
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("reboot node %s: %w; console: %s", n.name, ctx.Err(), n.state.console())
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := n.state.put("leader", strconv.Itoa(n.leader)+"\n"); err != nil {
		return err
	}
	return n.waitBooted(ctx)
}
