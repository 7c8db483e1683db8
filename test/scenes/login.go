package scenes

import (
	"context"
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
	cluster, err := st.submit(ctx, job{Seconds: 60, Lines: vram(4000)})
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
	st.Check(out.Code == 4, "outside any job gpuslot here ends with 4: %s", oneLine(out.Stderr))
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
