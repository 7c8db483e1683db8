package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpuslot/gpuslot/agent/verify"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/gpu/process"
	"github.com/gpuslot/gpuslot/mps"
)

const afterVerify = "[health]\nopen = \"after-verify\"\n"

// TestOpenAfterVerify: what closes a GPU until a client has run on it, and what
// does not.
func TestOpenAfterVerify(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*testAgent)
		says string // empty: it stays open
	}{
		{"nothing", func(*testAgent) {}, ""},
		{"another agent", func(ta *testAgent) { ta.restart() }, ""},
		{"another daemon", func(ta *testAgent) { ta.daemons.kill(uuid(0), true) }, "not verified yet: its control daemon was restarted"},
		{"another driver", func(ta *testAgent) {
			inv := inventoryOf(1)
			inv.Driver = "555.58.02"
			ta.hw.set(inv, nil)
		}, "not verified yet: the driver is 555.58.02 and was 550.163.01"},
		{"a fault", func(ta *testAgent) {
			ta.daemons.change(uuid(0), func(d *fakeDaemon) {
				d.servers = []mps.Server{{ID: process.ID{PID: 5}, Status: mps.Faulted}}
			})
			ta.apply(false)
			ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.servers = nil })
		}, "not verified yet: its MPS server met a fatal GPU error"},
		{"a fault, then another agent", func(ta *testAgent) {
			ta.daemons.change(uuid(0), func(d *fakeDaemon) {
				d.servers = []mps.Server{{ID: process.ID{PID: 5}, Status: mps.Faulted}}
			})
			ta.apply(false)
			ta.daemons.change(uuid(0), func(d *fakeDaemon) { d.servers = nil })
			ta.restart()
		}, "not verified yet: its MPS server met a fatal GPU error"},
		{"an event", func(ta *testAgent) {
			ta.faults.Event(gpu.Event{GPU: uuid(0), Kind: gpu.EventXID, XID: 79, Time: time.Now()})
			ta.apply(false)
			ta.faults.Open(uuid(0))
		}, "not verified yet: an event closed it"},
		{"a reboot", func(ta *testAgent) {
			if err := os.RemoveAll(filepath.Join(ta.dir, "r")); err != nil {
				ta.t.Fatal(err)
			}
			ta.restart()
		}, "not verified yet: a CUDA client runs on it first"},
		{"a broken file", func(ta *testAgent) {
			if err := os.WriteFile(filepath.Join(ta.dir, "r/verified.json"), []byte("{"), 0o644); err != nil {
				ta.t.Fatal(err)
			}
			ta.restart()
		}, "not verified yet: a CUDA client runs on it first"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ta, f := verifying(t, 1, afterVerify)
				if why := ta.reason(0); !strings.HasPrefix(why, "not verified yet: a CUDA client runs on it first") {
					t.Fatalf("before the first: %q", why)
				}
				ta.verifier.Due(t.Context())
				if why := ta.reason(0); why != "" || len(f.orders) != 1 {
					t.Fatalf("after %d clients: %q", len(f.orders), why)
				}
				tt.do(ta)
				ta.equip(f)
				ta.apply(false)
				ta.apply(false)
				if why := ta.reason(0); (tt.says == "") != (why == "") || !strings.Contains(why, tt.says) {
					t.Errorf("%q, want %q", why, tt.says)
				}
				if last := ta.status().GPUs[0].Verified; tt.says == "" && !last.OK || tt.says != "" && last != nil && last.OK {
					t.Errorf("status: %+v", last)
				}
				// It opens by itself again.
				ta.verifier.Due(t.Context())
				if why := ta.reason(0); why != "" {
					t.Errorf("in the end: %q", why)
				}
				if want := 1 + len(tt.says)/max(len(tt.says), 1); len(f.orders) != want {
					t.Errorf("%d clients, want %d", len(f.orders), want)
				}
			})
		})
	}
}

// TestVerifyBacksOff: a GPU that does not verify is tried again, ever more
// rarely, and says when.
func TestVerifyBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta, f := verifying(t, 1, afterVerify)
		f.unlimited = true
		background(t, func(ctx context.Context) { ta.loop(ctx, nil) })
		background(t, ta.verifier.Run)
		time.Sleep(time.Hour)
		synctest.Wait()
		// 30 s, 1, 2, 4, 8 min, then every 15 min.
		if n := len(f.orders); n < 7 || n > 9 {
			t.Errorf("%d clients in an hour", n)
		}
		if why := ta.reason(0); !strings.HasPrefix(why, "its verification failed: 4609 MiB were given") || !strings.Contains(why, "it is tried again at ") {
			t.Errorf("reason = %q", why)
		}
		ta.daemons.kill(uuid(0), true) // what was said of the last one no longer counts
		f.mend()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if why := ta.reason(0); why != "" {
			t.Errorf("reason = %q", why)
		}
		ta.nothingLeft(f)
	})
}

// TestAfterProofRunsNothing: no client comes unasked.
func TestAfterProofRunsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ta, f := verifying(t, 1, "")
		background(t, ta.verifier.Run)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(f.orders) != 0 {
			t.Errorf("%d clients", len(f.orders))
		}
	})
}

// TestVerifyWithoutClients: a GPU that cannot be verified says so.
func TestVerifyWithoutClients(t *testing.T) {
	ta := newTestAgent(t, 1, afterVerify)
	if why := ta.reason(0); !strings.Contains(why, verify.NoClients) {
		t.Errorf("reason = %q", why)
	}
}
