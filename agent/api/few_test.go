package api

import "testing"

// TestReadReplyOfFew: of a reply that every job waits for, only what it may have is read.
func TestReadReplyOfFew(t *testing.T) {
	for op, few := range map[Op]bool{OpPrepare: true, OpStart: true, OpEnd: true, OpStatus: false, OpMonitor: false} {
		reply, err := readReply(op, []byte(`{"v":1,"error":"no","status":"no object"}`))
		if (err == nil) != few || few && (reply.Version != 1 || reply.Error != "no") {
			t.Errorf("%s: %+v, %v", op, reply, err)
		}
	}
}
