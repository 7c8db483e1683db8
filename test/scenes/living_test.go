package scenes

import (
	"context"
	_ "embed"
	"os"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// siteCondor is what a site had before gpuslot came: an environment for all jobs, and binds for
// containers. The rest is what docs/sites.md shows for stock GPU detection, a hook and a wrapper.
//
//go:embed testdata/site.config
var siteCondor string

const (
	siteHook = "#!/bin/sh\ncat >/dev/null\necho 'SiteHookRan = true'\n"
	// siteWrapper is the job wrapper that the site had.
	siteWrapper = "#!/bin/sh\nexport SITE_WRAPPER=ran\nexec \"$@\"\n"
	// siteImage is a directory as apptainer takes one; its programs are the node's, bound by the site.
	siteImage = `mkdir -p /opt/job /srv/image/usr /srv/image/dev /srv/image/proc /srv/image/sys /srv/image/tmp /srv/image/var/tmp /srv/image/home \
  /srv/image/etc /srv/image/run /srv/image/opt /srv/image/.singularity.d/actions
cd /srv/image && ln -s usr/bin bin && ln -s usr/lib lib && ln -s usr/lib64 lib64 && cp /etc/passwd /etc/group etc
printf '#!/bin/sh\nexit 0\n' >.singularity.d/actions/test && chmod 755 .singularity.d/actions/test`
)

// TestLivingWithOthers: gpuslot comes to a site with its own GPU detection, hook,
// wrapper, environment and containers, and with pilots, on one node.
func TestLivingWithOthers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	inv := inventory(t, mixedNode)
	inv.GPUs = inv.GPUs[:1]
	st := stageOn(t, startSite(t, site.Options{
		Leg: site.Sim, Inventory: &inv, Condor: siteCondor + recipe(t, "use feature:GPUs", "") + recipe(t, "A hook of your own", ""),
		Config: recipe(t, "A job wrapper of your own", "")}), inv)
	pilot, err := os.ReadFile("../../etc/condor/gpuslot-pilot.conf")
	must(t, err)
	for name, text := range map[string]string{"hook": siteHook, "wrapper": siteWrapper, "chain": recipe(t, "A hook of your own", "sh")} {
		must(t, st.WriteFile(ctx, "/opt/site/"+name, node.File{Data: text, Mode: 0o755}))
	}
	must(t, st.WriteFile(ctx, "/home/"+user+"/gpuslot-pilot.conf", node.File{Data: string(pilot), Owner: user}))
	_, err = st.Run(ctx, "sh", "-ec", siteImage)
	must(t, err)
	must(t, st.WaitAccept(ctx, 1))
	_, noApptainer := st.Run(ctx, "sh", "-c", "command -v apptainer")
	for _, scene := range []struct {
		name      string
		play      func(context.Context, *Stage) error
		container bool
	}{
		{"SiteHookAndWrapper", siteHookAndWrapper, false},
		{"ContainerJob", containerJob, true},
		{"PayloadContainer", payloadContainer, true},
		{"Pilot", pilotJob, false},
		{"PuppetPurge", puppetPurge, false}, // it takes the site's files away
	} {
		t.Run(scene.name, func(t *testing.T) {
			if scene.container && noApptainer != nil {
				t.Skip("no apptainer in the node's image: it is in Debian sid only")
			}
			st := stageOn(t, st.Site, inv)
			must(t, scene.play(t.Context(), st))
			done(t, st)
		})
	}
}

// recipe is what a section of docs/sites.md shows: its indented lines, or its block in a language.
func recipe(t *testing.T, title, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/sites.md")
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## "+title+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if language != "" {
		_, section, _ = strings.Cut(section, "\n```"+language+"\n")
		section, _, _ = strings.Cut(section, "```\n")
		return section
	}
	var lines strings.Builder
	for line := range strings.Lines(section) {
		if shown, ok := strings.CutPrefix(line, "    "); ok {
			lines.WriteString(shown)
		}
	}
	if lines.Len() == 0 {
		t.Fatalf("docs/sites.md has nothing for %q", title)
	}
	return lines.String()
}

// ran is the output of a job that ended.
func (st *Stage) ran(ctx context.Context, j job) (string, error) {
	cluster, err := st.complete(ctx, j)
	if err != nil {
		return "", err
	}
	return st.printed(ctx, user, cluster, 0)
}

// script is a program of testdata.
func script(name string) program {
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		return program{name, "#!/bin/sh\nexit 1\n"} // the scene then says what is missing
	}
	return program{name, string(text)}
}

func siteHookAndWrapper(ctx context.Context, st *Stage) error {
	text, err := st.ran(ctx, job{Program: program{"all.sh", "#!/bin/sh\nenv\n"}, Lines: vram(4000)})
	if err != nil {
		return err
	}
	for _, want := range []string{"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M", "SITE_WRAPPER=ran", "SITE_SAYS=hello",
		"APPTAINER_BIND=/opt/site,/run/gpuslot/mps/" + string(st.Inventory.GPUs[0].UUID)} {
		st.Contains(text, want, "with the site's own hook and wrapper")
	}
	out, err := st.Run(ctx, "condor_status", "-af", "TotalGPUs")
	if err != nil {
		return err
	}
	st.Contains(out.Stdout, "7", "use feature:GPUs counts nothing of its own: TotalGPUs")
	return nil
}

func containerJob(ctx context.Context, st *Stage) error {
	text, err := st.ran(ctx, job{Program: script("container.sh"), Lines: []string{"universe = container", "container_image = /srv/image", "transfer_container = false",
		"request_gpus = 1", "request_vram = 4000", `environment = "MINE=1 CUDA_MPS_PIPE_DIRECTORY=/tmp/mine"`}})
	if err != nil {
		return err
	}
	pipes := "/run/gpuslot/mps/" + string(st.Inventory.GPUs[0].UUID)
	for _, want := range []string{"ENV CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M", "ENV CUDA_MPS_PIPE_DIRECTORY=" + pipes, "ENV MINE=1",
		"CONTROL there", "SITE bound", "SMALL 0", "LARGE 1", "CUDA_ERROR_OUT_OF_MEMORY", "HERE 0", "  4096  "} {
		st.Contains(text, want, "in an apptainer job")
	}
	st.Say("  its /dev/shm is its own: %v", strings.Contains(text, "SHM 1"))
	return nil
}

func payloadContainer(ctx context.Context, st *Stage) error {
	for bind, want := range map[string]string{"": "SITE bound", `environment = "APPTAINER_BIND=/opt/job"`: "JOB bound", `environment = "SINGULARITY_BIND=/opt/job"`: "JOB bound"} {
		text, err := st.ran(ctx, job{Program: script("payload.sh"), Lines: vram(4000, bind)})
		if err != nil {
			return err
		}
		st.Contains(text, want, "in a container that a job starts, with "+bind)
		st.Contains(text, "CONTROL there", "its pipe directory")
		st.Contains(text, "LARGE 1", "its limit")
		st.Contains(text, "out of memory\nCLEAN 1", "its limit in a clean environment")
		st.Contains(text, "UNBOUND 1", "without the bind there is no GPU, because the MPS server holds it")
	}
	return nil
}

func pilotJob(ctx context.Context, st *Stage) error {
	text, err := st.ran(ctx, job{Program: script("pilot.sh"), Lines: vram(4000, "transfer_input_files = gpuslot-pilot.conf")})
	if err != nil {
		return err
	}
	u := string(st.Inventory.GPUs[0].UUID)
	for _, want := range []string{"OFFERS 1 4096 " + u, "PAYLOAD CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M", "PAYLOAD CUDA_MPS_PIPE_DIRECTORY=/run/gpuslot/mps/" + u,
		"SMALL 0", "LARGE 1", "HERE " + u, "LEFT 9000 1"} {
		st.Contains(text, want, "a pilot's payload")
	}
	return nil
}

// puppetPurge does what HEP-Puppet/htcondor does: /etc/condor/config.d is emptied
// of all that is not in its catalogue, then condor_reconfig.
func puppetPurge(ctx context.Context, st *Stage) error {
	for _, args := range [][]string{
		{"sh", "-ec", "find /etc/condor/config.d -type f ! -name 10-node.config -delete; ls /etc/condor/config.d"},
		{"condor_reconfig"},
	} {
		if _, err := st.Run(ctx, args...); err != nil {
			return err
		}
	}
	text, err := st.ran(ctx, job{Program: program{"all.sh", "#!/bin/sh\nenv\n"}, Lines: vram(4096)})
	if err != nil {
		return err
	}
	st.Contains(text, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4096M", "after the purge a job has its limit")
	out, _ := st.Run(ctx, "gpuslot", "doctor")
	st.Check(!strings.Contains(out.Stdout, "error  START") && !strings.Contains(out.Stdout, "error  hook"), "doctor finds guards and hook in place: %s", oneLine(lineWith(out.Stdout, "START")))
	return nil
}
