package scenes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gpuslot/gpuslot/test/node"
)

// lookAround is what a login types: what it may use, as the job would see it.
const lookAround = "env | grep -E '^(CUDA_|GPUSLOT_|NVIDIA_|APPTAINER_)' | sed 's/^/ENV /'; gpuslot here; echo code $?\n"

func interactive(ctx context.Context, st *Stage) error {
	const file = "request_cpus = 1\nrequest_memory = 50\nrequest_disk = 10M\nrequest_gpus = 1\nrequest_vram = 3000\nqueue\n"
	if err := st.WriteFile(ctx, "/home/"+user+"/interactive.sub", node.File{Data: file, Owner: user}); err != nil {
		return err
	}
	out, err := st.Exec(ctx, node.Cmd{User: user, Args: []string{"timeout", "60", "condor_submit", "-i", "interactive.sub"},
		Stdin: strings.NewReader(lookAround + "exit\n")})
	if err != nil {
		return err
	}
	st.login("condor_submit -i", out.Stdout, "3072")
	return nil
}

func sshToJob(ctx context.Context, st *Stage) error {
	cluster, err := st.submit(ctx, job{Seconds: 3600, Lines: vram(4000)})
	if err != nil {
		return err
	}
	if _, err := st.waitLog(ctx, cluster, "Job executing on host"); err != nil {
		return err
	}
	out, err := st.RunAs(ctx, user, "timeout", "60", "condor_ssh_to_job", "-auto-retry", fmt.Sprint(cluster), strings.TrimSpace(lookAround))
	if err != nil {
		return err
	}
	st.login("condor_ssh_to_job", out.Stdout, "4096")
	out, _ = st.RunAs(ctx, user, "gpuslot", "here")
	st.Check(out.Code == 6, "outside any job gpuslot here ends with 6: %s", oneLine(out.Stderr))
	return st.remove(ctx, cluster)
}

// login checks what a shell beside a job sees.
func (st *Stage) login(how, text, budget string) {
	env := map[string]string{}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "ENV "); ok {
			name, value, _ := strings.Cut(rest, "=")
			env[name] = value
		}
	}
	pipes := "/run/gpuslot/mps/" + env["GPUSLOT_GPU"]
	st.Check(env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0="+budget+"M" && env["GPUSLOT_VRAM_MIB"] == budget,
		"%s: its limit is %s", how, env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"])
	st.Check(env["CUDA_MPS_PIPE_DIRECTORY"] == pipes && env["CUDA_VISIBLE_DEVICES"] == env["GPUSLOT_GPU"],
		"%s: its pipe directory is %s", how, env["CUDA_MPS_PIPE_DIRECTORY"])
	st.Check(env["APPTAINER_BIND"] == pipes, "%s: containers started there get it: %s", how, env["APPTAINER_BIND"])
	st.Contains(text, env["GPUSLOT_GPU"]+"  ", how+": gpuslot here")
	st.Contains(text, "code 0", how+": its exit code")
}

// dropped is a login whose connection ends with its whole process group, as when
// a laptop is closed: what it started on the GPU would go on without it.
const dropped = `set -m
condor_ssh_to_job -auto-retry %d 'trap "" HUP; bash -c "exec simjob alloc 500 until eof < <(sleep 600)"' &
cat %s
kill -KILL -- -$!
`

// loginsLeave: the clients of a login leave with it, those of the job go on.
func loginsLeave(ctx context.Context, st *Stage) (err error) {
	g := st.Inventory.GPUs[0]
	job, err := st.neighbour(ctx, g.UUID, "job")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, job.release()) }()
	n, err := st.waitClients(ctx, g.Index, 1, 1000)
	if err != nil {
		return err
	}
	own := n.on(g.Index, kindClient)[0].PID
	if _, err = st.RunAs(ctx, user, "timeout", "60", "condor_ssh_to_job", "-auto-retry", fmt.Sprint(job.cluster), "simjob alloc 500"); err != nil {
		return err
	}
	if err := st.checkLeft(ctx, g.Index, own, "a logout"); err != nil {
		return err
	}
	hold, release, err := st.hold(ctx, "login")
	if err != nil {
		return err
	}
	connection := make(chan error, 1)
	go func() {
		_, err := st.Exec(ctx, node.Cmd{User: user, Args: []string{"timeout", "120", "bash", "-c", fmt.Sprintf(dropped, job.cluster, hold)}})
		connection <- err
	}()
	_, err = st.waitClients(ctx, g.Index, 2, 500)
	if err = errors.Join(err, release(), <-connection); err != nil {
		return err
	}
	if err := st.checkLeft(ctx, g.Index, own, "a dropped connection"); err != nil {
		return err
	}
	return job.leave(ctx, "the job that was logged in to")
}

// checkLeft waits until a login has ended, its supervisor with it, and checks that
// the job's client is there and no other.
func (st *Stage) checkLeft(ctx context.Context, index, own int, what string) error {
	if err := st.Wait(ctx, "the login's supervisor to end", func() bool {
		out, err := st.Run(ctx, "pgrep", "-xc", "supervise")
		return err == nil && strings.TrimSpace(out.Stdout) == "1"
	}); err != nil {
		return err
	}
	var left []simProcess
	_, err := st.waitSim(ctx, "the job's own MPS client alone", func(n simNode) bool {
		left = n.on(index, kindClient)
		return len(left) == 1 && left[0].PID == own
	})
	st.Check(err == nil, "after %s the job's own MPS client %d is there, and it alone: %v", what, own, left)
	return err
}
