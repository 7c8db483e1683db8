package server

import (
	"context"
	"net"
	"time"

	"github.com/gpuslot/gpuslot/agent/room"
	"github.com/gpuslot/gpuslot/gpu/backoff"
)

// mostUnread is about how much of a reply the kernel keeps for a caller that does not read it. This memory
// counts as gpuslotd's, also after gpuslotd has closed the connection, and the kernel keeps twice as much.
const mostUnread = 8 << 10

// How often an unread reply is looked at.
const (
	unreadAgain = time.Millisecond
	unreadRests = 5 * time.Second
)

// awaitRead waits until a caller has read its reply, or has closed the connection. Its request is under way
// until then. A caller that never reads could otherwise fill the memory of gpuslotd's cgroup.
func awaitRead(ctx context.Context, conn *net.UnixConn) {
	// The caller's reads end with the reply, and its writes at once.
	shut(conn)
	for again := unreadAgain; ctx.Err() == nil && room.Unsent(conn); again = min(2*again, unreadRests) {
		_ = backoff.Wait(ctx, again) // the context is looked at above
	}
}
