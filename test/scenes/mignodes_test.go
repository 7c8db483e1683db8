package scenes

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
)

// capsMajor is that of nvidia-caps on these nodes. No driver of the host has it,
// so a node that may be opened says "No such device or address".
const capsMajor = 509

// driverFiles are what NVIDIA's driver shows in /proc of GPUs and of the device
// nodes of MIG devices: see nv-caps.c of open-gpu-kernel-modules.
func driverFiles(t *testing.T, inv gpu.Inventory) []node.Bind {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte(text), 0o644))
	}
	host, err := os.ReadFile("/proc/devices")
	must(t, err)
	if strings.Contains(string(host), fmt.Sprintf("\n%d ", capsMajor)) {
		t.Skipf("major number %d belongs to a driver of this host", capsMajor)
	}
	write("devices", strings.Replace(string(host), "Character devices:\n", fmt.Sprintf("Character devices:\n%d nvidia-caps\n", capsMajor), 1))
	var minors strings.Builder
	minors.WriteString("config 1\nmonitor 2\n")
	for i, g := range inv.GPUs {
		for gi := range 15 {
			fmt.Fprintf(&minors, "gpu%d/gi%d/access %d\n", i, gi, minorOf(i, gi))
			for ci := range 8 {
				fmt.Fprintf(&minors, "gpu%d/gi%d/ci%d/access %d\n", i, gi, ci, minorOf(i, gi)+1+ci)
			}
		}
		write(fmt.Sprintf("driver/nvidia/gpus/%s/information", g.PCI),
			fmt.Sprintf("Model: \t\t %s\nGPU UUID: \t %s\nBus Location: \t %s\nDevice Minor: \t %d\n", g.Name, g.UUID, g.PCI, i))
	}
	write("driver/nvidia-caps/mig-minors", minors.String())
	return []node.Bind{{Host: filepath.Join(dir, "devices"), Guest: "/proc/devices"}, {Host: filepath.Join(dir, "driver"), Guest: "/proc/driver"}}
}

func minorOf(gpu, gi int) int { return 3 + 135*gpu + 9*gi }

// makeNodes makes the device nodes as nvidia-modprobe does.
func (st *Stage) makeNodes(ctx context.Context) error {
	script := "mkdir -p /dev/nvidia-caps; " +
		fmt.Sprintf("for n in $(seq 0 %d); do mknod -m 666 /dev/nvidia-caps/nvidia-cap$n c %d $n; done", minorOf(len(st.Inventory.GPUs), 0), capsMajor)
	_, err := st.Run(ctx, "sh", "-ec", script)
	return err
}

// opens is a program that says what opening nodes gives, at once.
func opens(name string) program {
	return program{name, `#!/bin/sh
for node; do echo "$node $(LC_ALL=C head -c1 "$node" 2>&1 >/dev/null | sed 's/.*: //')"; done
`}
}

// opensOwnNodes runs jobs that open nodes as the first thing they do. One on the
// device opens those of its own instance and not the sibling's, by whatever name
// it goes; one without a GPU opens none, and neither does a login to it.
func (st *Stage) opensOwnNodes(ctx context.Context, t *testing.T, own, sibling api.StatusGPU) {
	t.Helper()
	caps := func(device string, and int) string {
		return fmt.Sprintf("/dev/nvidia-caps/nvidia-cap%d", minorOf(0, st.instanceOf(ctx, t, device))+and)
	}
	nodes := []string{caps(own.Device, 0), caps(own.Device, 1), "/dev/nvidia-caps/nvidia-cap1", caps(sibling.Device, 0), caps(sibling.Device, 1)}
	const opened, closed = "No such device or address", "Operation not permitted"
	check := func(what, text string, mine string) {
		t.Helper()
		want := ""
		for i, node := range nodes {
			want += node + " " + map[bool]string{true: mine, false: closed}[i < 2] + "\n"
		}
		st.Check(text == want, "%s opens of its own, the layouts' and a sibling's nodes:\n%s", what, text)
	}
	onDevice := vram(2048, fmt.Sprintf("require_gpus = MIGProfile == %q", profileOf(own)))
	for range 3 {
		for name, lines := range map[string][]string{"opens.sh": onDevice, "condor_starter": onDevice, "cpu.sh": nil} {
			text, err := st.ran(ctx, job{Program: opens(name), Arguments: strings.Join(nodes, " "), Lines: lines})
			must(t, err)
			mine := opened
			if lines == nil {
				mine = closed
			}
			check("a job whose program is "+name, text, mine)
		}
	}
	must(t, st.WriteFile(ctx, "/home/alice/audit.so", node.File{Data: auditLibrary(ctx, t, len(st.Inventory.GPUs)), Mode: 0o755, Owner: user}))
	cluster, err := st.submit(ctx, job{Seconds: 600, Lines: []string{`environment = "LD_AUDIT=/home/alice/audit.so"`}})
	must(t, err)
	must(t, st.waitJobs(ctx, cluster, running))
	must(t, st.WriteFile(ctx, "/usr/local/bin/opens", node.File{Data: opens("").text, Mode: 0o755}))
	out, err := st.RunAs(ctx, user, append([]string{"timeout", "60", "condor_ssh_to_job", "-auto-retry", fmt.Sprint(cluster), "opens"}, nodes...)...)
	must(t, err)
	check("a login to a job without a GPU", out.Stdout, closed)
	must(t, st.remove(ctx, cluster))
	text, err := st.ReadFile(ctx, "/home/alice/audit.log")
	must(t, err)
	beside, refused, most := 0, 0, 0 // HTCondor sets the login up in the cgroup of its daemons
	for line := range strings.Lines(text) {
		var opened, no int
		var cgroup string
		_, err := fmt.Sscanf(line, "%d %d %s", &opened, &no, &cgroup)
		must(t, err)
		if !strings.Contains(cgroup, "/htcondor/") {
			beside++
		}
		refused += no
		most = max(most, opened)
	}
	st.Check(beside > 0 && most == 0, "a library of the user's, in %d programs outside the job's cgroup, opens %d nodes at most", beside, most)
	st.Check(refused == beside, "%d of them are refused the job's start", refused)
	st.opensByUserManager(ctx, t, nodes, own)
	text, err = st.metrics(ctx)
	must(t, err)
	st.Check(!strings.Contains(text, `gpuslot_device_rules_total{when="late"}`) && !strings.Contains(text, `gpuslot_device_rules_total{when="missing"}`), "no job was late")
	st.waitsForTheAgent(ctx, t)
}

// opensByUserManager runs a job that lets the service manager of its account open nodes, outside of
// all cgroups of HTCondor's. Root opens them there, and so does the account after --release.
func (st *Stage) opensByUserManager(ctx context.Context, t *testing.T, nodes []string, own api.StatusGPU) {
	t.Helper()
	uid, err := st.linger(ctx, "opens.service", "[Service]\nType=oneshot\nExecStart=sh -c 'opens "+
		strings.Join(nodes, " ")+" >${XDG_RUNTIME_DIR}/opened; cat /proc/self/cgroup >${XDG_RUNTIME_DIR}/cgroup'\n")
	must(t, err)
	opens := func(uid string) string {
		text, err := st.ReadFile(ctx, "/run/user/"+uid+"/opened")
		must(t, err)
		cgroup, err := st.ReadFile(ctx, "/run/user/"+uid+"/cgroup")
		must(t, err)
		st.Contains(cgroup, "0::/user.slice/user-"+uid+".slice/user@"+uid+".service/", "the cgroup of a service of "+uid)
		return text
	}
	const starts = "XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user start opens.service"
	_, err = st.complete(ctx, job{Program: program{"manager.sh", "#!/bin/sh\n" + starts + "\n"},
		Lines: vram(2048, fmt.Sprintf("require_gpus = MIGProfile == %q", profileOf(own)))})
	must(t, err)
	want := func(said string) string { return strings.Join(nodes, " "+said+"\n") + " " + said + "\n" }
	text := opens(uid)
	st.Check(text == want("Operation not permitted"), "a service of the user's own manager opens:\n%s", text)
	_, err = st.Run(ctx, "sh", "-ec", starts)
	must(t, err)
	text = opens("0")
	st.Check(text == want("No such device or address"), "a service of root's own manager opens:\n%s", text)
}

// auditLibrary is audit.c of testdata for a node with some GPUs.
func auditLibrary(ctx context.Context, t *testing.T, gpus int) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "audit.so")
	build := exec.CommandContext(ctx, "gcc", "-shared", "-fPIC", "-O", fmt.Sprintf("-DLAST=%d", minorOf(gpus, 0)-1),
		fmt.Sprintf(`-DREQUEST="{\"v\":%d,\"op\":\"start\"}\n"`, api.Version), "-o", file, "testdata/audit.c")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	library, err := os.ReadFile(file)
	must(t, err)
	return string(library)
}

// waitsForTheAgent: where isolation is promised no job starts without the agent. One that
// was matched before START knew goes back with the reason; later ones do not match.
func (st *Stage) waitsForTheAgent(ctx context.Context, t *testing.T) {
	t.Helper()
	const knowsNothing = "/etc/condor/config.d/99-starts.config"
	must(t, st.WriteFile(ctx, knowsNothing, node.File{Data: "GPUSLOT_STARTS = true\n"}))
	st.waitStarts(ctx, t, "START to know nothing of the agent", func(start, _ string) bool {
		return !strings.Contains(start, "GPUSlotStarts")
	})
	_, err := st.Run(ctx, "systemctl", "stop", "gpuslotd.socket", "gpuslotd.service")
	must(t, err)
	ran := job{Program: program{"ran.sh", "#!/bin/sh\necho ran\n"}}
	early, err := st.submit(ctx, ran)
	must(t, err)
	_, err = st.waitLog(ctx, early, "gpuslot does not start the job")
	must(t, err)

	_, err = st.Run(ctx, "rm", knowsNothing)
	must(t, err)
	st.waitStarts(ctx, t, "START to know that the agent is dead", func(start, starts string) bool {
		return strings.Contains(start, "GPUSlotStarts") && starts == "false"
	})
	late, err := st.submit(ctx, ran)
	must(t, err)
	stays, err := st.staysIdle(ctx, late, 5*time.Second)
	must(t, err)
	st.Check(stays, "a job without a GPU does not match a node with MIG devices while gpuslotd is dead")
	out, err := st.Run(ctx, "condor_status", "-constraint", "GPUSlotSupervised =?= true", "-limit", "1",
		"-af", "GPUSlotStartsReason")
	must(t, err)
	st.Contains(out.Stdout, "gpuslotd does not listen", "the slot's reason")

	_, err = st.Run(ctx, "systemctl", "start", "gpuslotd.socket", "gpuslotd.service")
	must(t, err)
	for _, cluster := range []int{early, late} {
		must(t, st.waitJobs(ctx, cluster, completed))
		text, err := st.printed(ctx, user, cluster, 0)
		must(t, err)
		st.Check(text == "ran\n", "a job that did not start without the agent ran when it was back: %q", text)
	}
}

// waitStarts lets HTCondor read its configuration and waits until the slot without GPUs
// has a START and a GPUSlotStarts.
func (st *Stage) waitStarts(ctx context.Context, t *testing.T, what string, has func(start, starts string) bool) {
	t.Helper()
	_, err := st.Run(ctx, "condor_reconfig")
	must(t, err)
	ctx, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	must(t, st.Wait(ctx, what, func() bool {
		out, err := st.Run(ctx, "condor_status", "-direct", "",
			"-constraint", `GPUSlotSupervised =?= true && SlotType == "Partitionable"`, "-af:r", "GPUSlotStarts", "Start")
		starts, start, _ := strings.Cut(strings.TrimSpace(out.Stdout), " ")
		return err == nil && has(start, starts)
	}))
}

func profileOf(g api.StatusGPU) string {
	_, profile, _ := strings.Cut(g.Name, " MIG ")
	return profile
}

// instanceOf is the GPU instance of a MIG device.
func (st *Stage) instanceOf(ctx context.Context, t *testing.T, device string) int {
	t.Helper()
	out, err := st.Run(ctx, "gpuslot", "inventory", "--json")
	must(t, err)
	var inv gpu.Inventory
	must(t, json.Unmarshal([]byte(out.Stdout), &inv))
	for _, g := range inv.GPUs {
		for _, d := range g.MIGDevices {
			if string(d.UUID) == device {
				return d.GPUInstance
			}
		}
	}
	t.Fatalf("the inventory has no %s", device)
	return 0
}
