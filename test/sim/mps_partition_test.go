package sim

import (
	"fmt"
	"strings"
	"testing"
)

// Static partitions of the multiprocessors (R590). Nothing of it was measured:
// the commands are those of the MPS documentation, the replies those that
// published scripts read, and the rest is inferred.

const oneH200 = `{"driver": "590.48.01", "gpus": [{"model": "H200", "uuid": "GPU-aaaa0000-0000-4000-8000-000000000000"}]}`

// partition creates one and returns what CUDA_MPS_SM_PARTITION is to be.
func (d daemon) partition(t *testing.T, chunks int) string {
	t.Helper()
	got := d.control(t, fmt.Sprint("sm_partition add GPU-aaaa ", chunks))
	id, ok := strings.CutSuffix(strings.TrimPrefix(got, "Partition "), " created")
	if !ok || !strings.HasPrefix(id, uuidA+"/") {
		t.Fatalf("sm_partition add: %q", got)
	}
	return id
}

// bare is the id without the GPU.
func bare(partition string) string {
	_, id, _ := strings.Cut(partition, "/")
	return id
}

func TestStaticPartitions(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, oneH200)
		d := n.daemonWith(t, []string{"-d", "-S"})
		const refused = "Failed to fulfill the requested SM partition of %d chunks, error CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"
		for _, chunks := range []int{0, 17, -1, 64} { // 132 multiprocessors are 16 chunks of 8
			if got := d.control(t, fmt.Sprint("sm_partition add ", uuidA, " ", chunks)); got != fmt.Sprintf(refused, chunks) {
				t.Errorf("%d chunks: %q", chunks, got)
			}
		}
		large, small := d.partition(t, 7), d.partition(t, 2)
		if got := d.control(t, "sm_partition add GPU-aaaa 8"); got != fmt.Sprintf(refused, 8) {
			t.Errorf("8 of 7 chunks: %q", got)
		}

		// Every client has to name one, and sees its multiprocessors alone.
		const invalid = "context on device 0: error 915 CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: one or more resources are insufficient or non-applicable for the operation"
		for _, name := range []string{"", uuidA + "/AAAA", "GPU-bbbb/" + bare(large)} {
			wantJob(t, n, "context", invalid, 1, append(d.vars(), "CUDA_MPS_SM_PARTITION="+name)...)
		}
		in := func(words, partition string) *running {
			return n.start(t, words, append(d.vars(), "CUDA_MPS_SM_PARTITION="+partition, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=10")...)
		}
		a := in("context devices until eof", large)
		if got := a.line("  0 "); !strings.HasSuffix(got, " 56 multiprocessors: ok") {
			t.Errorf("in 7 chunks: %q, want 56 multiprocessors and no percentage", got)
		}
		b := in("context devices until eof", small)
		if got := b.line("  0 "); !strings.HasSuffix(got, " 16 multiprocessors: ok") {
			t.Errorf("in 2 chunks: %q", got)
		}
		want := fmt.Sprintf(`GPU Partition free used free used clients
chunk chunk SM SM
GPU-aaaa0000 - 7 9 60 72 -
GPU-aaaa0000 %s - 7 - 56 Yes
GPU-aaaa0000 %s - 2 - 16 Yes`, bare(large), bare(small))
		if got := squeeze(d.control(t, "lspart")); got != want {
			t.Errorf("lspart:\n%s\nwant:\n%s", got, want)
		}
		// In use: not removed, and no other is made on the device.
		if got := d.control(t, fmt.Sprintf("sm_partition rm %s %s", uuidA, bare(small))); got != "Partition "+small+" is in use" {
			t.Errorf("rm in use: %q", got)
		}
		if got := d.control(t, "sm_partition add GPU-aaaa 1"); got != fmt.Sprintf(refused, 1) {
			t.Errorf("add under clients: %q", got)
		}
		b.end()
		n.eventually(t, "removed", func(shown) bool {
			return d.control(t, fmt.Sprintf("sm_partition rm GPU-a %s", bare(small))) == "Partition "+small+" removed"
		})
		if got := d.control(t, "sm_partition rm GPU-a "+bare(small)); !strings.HasSuffix(got, "not found") {
			t.Errorf("a second time: %q", got)
		}
	})
}

// TestPartitionsIsolateFaults: from R610 on a fault stays with its client.
func TestPartitionsIsolateFaults(t *testing.T) {
	for driver, alone := range map[string]bool{"590.48.01": false, "615.71.09": true} {
		legs(t, func(t *testing.T, n *Node) {
			n.make(t, strings.Replace(oneH200, "590.48.01", driver, 1))
			d := n.daemonWith(t, []string{"-d", "--static-partitioning"})
			one, other := d.partition(t, 4), d.partition(t, 4)
			neighbour := n.start(t, "context until eof", append(d.vars(), "CUDA_MPS_SM_PARTITION="+one)...)
			neighbour.line("context on device 0: ok")
			out, code := n.job(t, "fault launch_failed", append(d.vars(), "CUDA_MPS_SM_PARTITION="+other)...)
			if code != 1 || !strings.Contains(out, "error 719") {
				t.Errorf("%s: the culprit: %d, %q", driver, code, out)
			}
			if !alone {
				neighbour.line("until eof: error 719 ")
				return
			}
			server := d.control(t, "get_server_list")
			if got := d.control(t, "get_server_status "+server); got != "ACTIVE" || neighbour.end() != 0 {
				t.Errorf("%s: the server is %s, and the neighbour says %q", driver, got, neighbour.said())
			}
		})
	}
}

// TestNoStaticPartitions: without -S there are none, and before 590 no such
// flag and no such command. Before Ampere there is nothing to divide.
func TestNoStaticPartitions(t *testing.T) {
	legs(t, func(t *testing.T, n *Node) {
		n.make(t, oneH200)
		d := n.daemon(t)
		if got := d.control(t, "sm_partition add GPU-aaaa 2"); got != "Static partitioning is not enabled" {
			t.Errorf("without -S: %q", got)
		}
		wantJob(t, n, "context", "context on device 0: ok", 0, d.vars()...)
		const devices = "Ordinal,Server,PCI ID,Device UUID,Name,Total SMs,Total Chunks,Attributes\n0,%s,0000:17:00.0,%s,NVIDIA H200,132,16,-"
		if got, want := d.control(t, "device_query --csv"), fmt.Sprintf(devices, d.control(t, "get_server_list"), uuidA); got != want {
			t.Errorf("device_query: %q, want %q", got, want)
		}
		n.make(t, strings.Replace(oneH200, "590.48.01", "555.58.02", 1))
		older := n.daemon(t)
		for _, command := range []string{"sm_partition add GPU-aaaa 2", "lspart", "device_query"} {
			word, _, _ := strings.Cut(command, " ")
			if got := older.control(t, command); got != fmt.Sprintf("Unknown command %q", word) {
				t.Errorf("555: %s: %q", command, got)
			}
		}
		n.make(t, `{"driver": "590.48.01", "gpus": [{"model": "T4", "uuid": "GPU-aaaa0000-0000-4000-8000-000000000000"}]}`)
		turing := n.daemonWith(t, []string{"-S", "-d"})
		if got := turing.control(t, "sm_partition add GPU-aaaa 1"); !strings.HasPrefix(got, "Failed to fulfill ") {
			t.Errorf("Turing: %q", got)
		}
	})
}

// TestMoreClients: 60 clients from CUDA 13.1 (R590) on.
func TestMoreClients(t *testing.T) {
	n := nodeWith(t, nil)
	n.make(t, oneH200)
	d := n.daemon(t)
	jobs := make([]*running, 60)
	for i := range jobs {
		jobs[i] = n.start(t, "context until eof", d.vars()...)
	}
	for _, j := range jobs {
		j.line("context on device 0: ok")
	}
	if out, code := n.job(t, "context", d.vars()...); code != 1 || !strings.HasPrefix(out, "init: error 808 ") {
		t.Errorf("the 61st: %d, %q, want 808", code, out)
	}
}
