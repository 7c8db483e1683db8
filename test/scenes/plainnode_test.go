package scenes

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// plainRoot is where a second startd of the pool lives: a node without gpuslot,
// with two simulated A100 that HTCondor's own discovery finds.
const plainRoot = "/var/lib/plain"

const plainConfig = `include : /etc/condor/condor_config
include : /etc/condor/config.d/10-node.config
LOCAL_DIR = ` + plainRoot + `
LOG = $(LOCAL_DIR)/log
SPOOL = $(LOCAL_DIR)/spool
EXECUTE = $(LOCAL_DIR)/execute
LOCK = $(LOCAL_DIR)/log
RUN = $(LOCAL_DIR)/log
LOCAL_CONFIG_DIR = ` + plainRoot + `/config.d
LOCAL_CONFIG_FILE =
STARTD_NAME = plain
DAEMON_LIST = MASTER STARTD
USE_SHARED_PORT = false
MASTER_ADDRESS_FILE = $(LOG)/.master_address
NUM_CPUS = 8
MEMORY = 16000
START = TARGET.Owner =!= "mallory"
use feature : GPUs
GPU_DISCOVERY_EXTRA = $(GPU_DISCOVERY_EXTRA) -simulate:4,2
`

// One job description runs on a node with gpuslot and on one without.
func TestPlainNode(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := newStage(t, 1, site.Options{})
	must(t, st.WaitAccept(ctx, 1))
	must(t, st.startPlainNode(ctx, gpu.Inventory{Schema: gpu.InventorySchema, Host: gpu.Host{Name: "plain.test", CPUs: 8, Memory: 16000}, GPUs: []gpu.GPU{a100(0), a100(1)}}))

	description := vram(4000, "request_cpus = 1")
	hold, release := holdFor(t, st, "plain")
	cluster, err := st.submit(ctx, job{Hold: hold, Lines: description, Queue: "queue 9"}) // seven fit the shared GPU
	must(t, err)
	must(t, st.waitJobs(ctx, cluster, running))
	release()
	must(t, st.waitJobs(ctx, cluster, completed))
	where := map[string][]string{}
	rows, err := st.JobAttrs(ctx, cluster, "LastRemoteHost", "VRAMProvisioned")
	must(t, err)
	for proc, row := range rows {
		_, host, _ := strings.Cut(strings.Trim(row[0], `"`), "@")
		o, err := st.output(ctx, cluster, proc)
		must(t, err)
		where[host] = append(where[host], o.Env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]+" "+row[1])
	}
	st.Check(len(where["wn1.test"]) == 7 && where["wn1.test"][0] == "0=4096M 4096", "seven of nine share the GPU of one node: %v", where["wn1.test"])
	st.Check(fmt.Sprint(where["plain@wn1.test"]) == "[ 4096  4096]", "two have a whole GPU each on the other: %v", where["plain@wn1.test"])
	_, err = st.complete(ctx, job{Lines: []string{"request_gpus = 2", "request_vram = 60000"}})
	must(t, err)
	done(t, st)
}

func a100(i int) gpu.GPU {
	return gpu.GPU{UUID: gpu.UUID(fmt.Sprintf("GPU-0000000%d-0000-4000-8000-00000000000a", i)), Index: i, Name: "A100-SXM4-40GB",
		PCI: gpu.PCIBusID(fmt.Sprintf("0000:%02x:00.0", 0x1a+i)), Memory: 40536, Capability: gpu.ComputeCapability{Major: 8}}
}

// startPlainNode configures it as a site would, from its recorded inventory.
func (st *Stage) startPlainNode(ctx context.Context, inv gpu.Inventory) error {
	text, err := inv.Encode()
	if err != nil {
		return err
	}
	for path, data := range map[string]string{"/etc/gpuslot/plain.json": string(text), "/etc/condor/plain.config": plainConfig} {
		if err := st.WriteFile(ctx, path, node.File{Data: data}); err != nil {
			return err
		}
	}
	_, err = st.Run(ctx, "sh", "-ec", "mkdir -p "+plainRoot+"/log "+plainRoot+"/spool "+plainRoot+"/execute "+plainRoot+"/config.d && chown -R condor: "+plainRoot+
		" && gpuslot condor-config --for plain-node --inventory /etc/gpuslot/plain.json >"+plainRoot+"/config.d/90-vram"+
		" && systemd-run --unit=plain -p Delegate=yes -p KillMode=mixed -E CONDOR_CONFIG=/etc/condor/plain.config /usr/sbin/condor_master -f")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	err = st.Wait(ctx, "the plain node's slot", func() bool {
		out, err := st.Run(ctx, "condor_status", "-constraint", `Name == "slot1@plain@wn1.test"`, "-af", "GPUs", "VRAM")
		return err == nil && strings.TrimSpace(out.Stdout) == "2 81072"
	})
	if err != nil {
		log, _ := st.Run(context.WithoutCancel(ctx), "sh", "-c", "cd "+plainRoot+"/log; tail -n 12 MasterLog; tail -n 30 StartLog; condor_status -af Name Machine GPUs VRAM")
		return fmt.Errorf("%w\n%s", err, log.Stdout)
	}
	return nil
}
