package scenes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
)

// linger starts the service managers of root and of the user, as systemd-logind and PAM do for an
// account that lingers, with a service that each of them can start.
func (st *Stage) linger(ctx context.Context, service, text string) (uid string, err error) {
	for name, text := range map[string]string{
		"/etc/systemd/system/user-runtime-dir@.service.d/node.conf": "[Service]\nExecStart=\n" +
			"ExecStart=install -d -m 700 -o %i /run/user/%i\nExecStop=\n",
		"/etc/systemd/system/user@.service.d/node.conf": "[Service]\nEnvironment=XDG_RUNTIME_DIR=/run/user/%i\n",
		"/etc/systemd/user/" + service:                  text,
	} {
		if err := st.WriteFile(ctx, name, node.File{Data: text}); err != nil {
			return "", err
		}
	}
	out, err := st.Run(ctx, "id", "-u", user)
	if err != nil {
		return "", err
	}
	uid = strings.TrimSpace(out.Stdout)
	_, err = st.Run(ctx, "sh", "-ec", "systemctl daemon-reload; systemctl start user@0 user@"+uid)
	return uid, err
}

// outsideJobs: a job lets the service manager of its account start a client of its GPU, which is in
// no cgroup of HTCondor's. It cannot open the GPU's device node, which root's own can. Nor can a program of
// that account in the cgroup of HTCondor's daemons, which HTCondor's own can. The simulated
// client opens a node that is none of the driver's, as a client that had it open before, and is ended. Where it does
// not have the node open, another process may use the GPU under its PID: it runs on, and the GPU takes no jobs.
func outsideJobs(ctx context.Context, st *Stage) (err error) {
	g := st.Inventory.GPUs[1]
	beside, err := st.neighbour(ctx, g.UUID, "outside")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, beside.release()) }()
	if _, err := st.waitClients(ctx, g.Index, 1, 1000); err != nil {
		return err
	}
	const node = "/dev/driver-node"
	opened := fmt.Sprintf("/dev/nvidia%d", g.Index) // the device number is that of /dev/full
	_, err = st.Run(ctx, "sh", "-ec",
		fmt.Sprintf("mknod -m 666 %s c 195 %d; mknod -m 666 %s c 1 7", node, g.Index, opened))
	defer func() {
		_, errRemove := st.Run(context.WithoutCancel(ctx), "rm", "-f", node, opened)
		err = errors.Join(err, errRemove)
	}()
	if err != nil {
		return err
	}
	uid, err := st.linger(ctx, "client.service", fmt.Sprintf("[Service]\nType=oneshot\n"+
		"Environment=CUDA_VISIBLE_DEVICES=%s CUDA_MPS_PIPE_DIRECTORY=/run/gpuslot/mps/%s\n"+
		"ExecStart=sh -c 'LC_ALL=C head -c1 %s >${XDG_RUNTIME_DIR}/node 2>&1; [ $(id -u) = 0 ] || "+
		"simjob alloc 3000 load 20 600s >${XDG_RUNTIME_DIR}/client 2>&1'\n", g.UUID, g.UUID, node))
	if err != nil {
		return err
	}
	const starts = "XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user start client.service\n"
	// It ends when the client has ended.
	outside := job{Program: program{"outside.sh", "#!/bin/sh\n" + starts + "exit 0\n"}, Lines: vram(4000, on(g.UUID))}
	if _, err := st.complete(ctx, outside); err != nil {
		return err
	}
	if _, err := st.Run(ctx, "sh", "-ec", starts); err != nil {
		return err
	}
	const refused = "Operation not permitted"
	for who, closed := range map[string]bool{uid: true, "0": false} {
		text, err := st.ReadFile(ctx, "/run/user/"+who+"/node")
		if err != nil {
			return err
		}
		st.Check(strings.Contains(text, refused) == closed, "account %s opens a shared GPU outside of jobs: %s", who, oneLine(text))
	}
	for who, closed := range map[string]bool{user: true, "condor": false, "root": false} {
		out, err := st.Run(ctx, "sh", "-ec", fmt.Sprintf("in=$(sed -n s/^0:://p /proc/$(pgrep -xo condor_startd)/cgroup)\n"+
			"echo $$ >/sys/fs/cgroup$in/cgroup.procs\nLC_ALL=C setpriv --reuid=%s --clear-groups head -c1 %s 2>&1 || true\n", who, node))
		if err != nil {
			return err
		}
		st.Check(strings.Contains(out.Stdout, refused) == closed,
			"%s's program in the cgroup of HTCondor's daemons opens a shared GPU: %s", who, oneLine(out.Stdout))
	}
	// gpuslotd closes nodes for graphics to jobs by a rule on that service.
	const of = "sed -n 's/^0::\\(.*[.]service\\/\\).*/\\1/p' /proc/$(pgrep -xo %s)/cgroup\n"
	out, err := st.Run(ctx, "sh", "-ec", fmt.Sprintf(of+of, "condor_startd", "simjob"))
	if err != nil {
		return err
	}
	services := strings.Fields(out.Stdout)
	st.Check(len(services) == 2 && services[0] == services[1], "HTCondor's daemons and jobs run below one service: %q", services)
	text, err := st.ReadFile(ctx, "/run/user/"+uid+"/client")
	if err != nil {
		return err
	}
	st.Check(strings.Contains(text, "alloc 3000 MiB: ok") && strings.Contains(text, "CUDA_ERROR_MPS_CLIENT_TERMINATED"),
		"a client in a service of the user's own manager is ended: %s", oneLine(text))
	log, err := st.Journal(ctx, "gpuslotd.service")
	if err != nil {
		return err
	}
	st.Contains(log, "users' own processes, outside of jobs, are ended as MPS clients", "the log")
	return st.listedOnly(ctx, g, opened, beside)
}

// listedOnly has the client run again without the GPU's node open. When it is stopped, the MPS server takes others
// along: no job is beside it then.
func (st *Stage) listedOnly(ctx context.Context, g gpu.GPU, node string, beside neighbour) error {
	const manager = "XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user "
	if _, err := st.Run(ctx, "chmod", "600", node); err != nil {
		return err
	}
	if _, err := st.RunAs(ctx, user, "sh", "-ec", manager+"start --no-block client.service"); err != nil {
		return err
	}
	reason, err := st.waitClosed(ctx, g.UUID)
	if err != nil {
		return err
	}
	st.Contains(reason, "is not seen to have the GPU's device node open", "the GPU takes no jobs")
	if err := beside.leave(ctx, "the job beside it runs on"); err != nil {
		return err
	}
	out, err := st.RunAs(ctx, user, "sh", "-ec", manager+"is-active client.service || true; "+manager+
		"stop client.service; cat /run/user/$(id -u)/client")
	if err != nil {
		return err
	}
	st.Check(strings.HasPrefix(out.Stdout, "activating") && !strings.Contains(out.Stdout, "TERMINATED"),
		"a client that does not have the node open is not ended: %s", oneLine(out.Stdout))
	return st.waitSlot(ctx, g.UUID, true)
}
