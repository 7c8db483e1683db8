package scenes

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/gpu"
	"github.com/gpuslot/gpuslot/test/node"
	"github.com/gpuslot/gpuslot/test/site"
)

// stockConfig is an execution point as sites have it: HTCondor finds the GPUs
// itself, one job has one of them.
const stockConfig = `NUM_CPUS = 8
MEMORY = 16000
use feature : GPUs
`

const observeConfig = "[sharing]\nmode = \"observe\"\n"

// observedScript runs a GPU job whose use of the GPU is known, and prints what could
// tell that somebody else is there: the names of its variables.
var observedScript = program{"observed.sh", `#!/bin/sh
code=$1; shift
env | sed 's/=.*//; s/^_CONDOR_ANCESTOR_.*/_CONDOR_ANCESTOR/' | sort
cat /run/hold-observed 2>/dev/null # all jobs run when the slots are looked at
[ $# -eq 0 ] || simjob "$@" || exit 99
echo "ends" >&2
exit $code
`}

// observedJob is one of the jobs, with the truth about it.
type observedJob struct {
	code int
	// words of simjob; none is a job without a GPU.
	words string
	// alloc is the largest sum of its allocations, early that of its first second.
	alloc, early gpu.MiB
	// gpuSeconds of full load, and the seconds of the job in which there is a load.
	gpuSeconds, busy float64
}

var observedJobs = []observedJob{
	{code: 0, words: "alloc 2048 load 50 3s sleep 5s", alloc: 2048, early: 2048, gpuSeconds: 1.5, busy: 3},
	{code: 3, words: "alloc 1024 sleep 3s alloc 3072 load 25 4s", alloc: 4096, early: 1024, gpuSeconds: 1, busy: 4},
	{code: 0},
}

// A node as sites have it is observed: HTCondor's configuration, its slots and the
// jobs' results are what they are without gpuslot, byte for byte, and the records
// say what the jobs used.
func TestObserve(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := bootStock(t)
	plain, err := st.runStock(ctx)
	must(t, err)
	_, err = st.Run(ctx, "sh", "-ec", "mv /root/50-gpuslot.conf /usr/share/condor/config.d/; touch /root/mark; systemctl start gpuslotd.socket gpuslotd.service; systemctl restart condor")
	must(t, err)
	must(t, st.StartCondor(ctx))
	observed, err := st.runStock(ctx)
	must(t, err)
	for _, same := range []struct {
		what            string
		plain, observed []string
	}{
		{"settings of HTCondor's configuration", plain.config, observed.config}, {"of its files", plain.files, observed.files},
		{"attributes of the slots' ads", plain.slots, observed.slots}, {"jobs with their exit codes and output", plain.results, observed.results},
	} {
		d := cmp.Diff(same.plain, same.observed)
		st.Check(d == "", "%d %s are those without gpuslot%s", len(same.plain), same.what, d)
	}
	st.Check(len(plain.config) > 500 && len(plain.slots) > 200 && strings.Contains(strings.Join(plain.slots, "\n"), "GPUs_GPU_c07d51e9"), "what was compared is there")
	must(t, st.checkObserved(ctx, observed)) // waits for the records
	must(t, st.checkUntouched(ctx))
	done(t, st)
}

// bootStock boots a node with two H100, on which gpuslot is installed and does not
// run, with HTCondor as the site has it.
func bootStock(t *testing.T) *Stage {
	t.Helper()
	inv := inventory(t, mixedNode)
	first := inv.GPUs[2]
	second := first
	first.Index = 0
	second.UUID, second.PCI, second.Index = "GPU-77aa51e9-26ab-4f38-91e4-70b3fd5a2010", "0000:5f:00.0", 1
	inv.GPUs = []gpu.GPU{first, second}
	s, err := site.Boot(t.Context(), site.Options{Leg: site.Sim, Inventory: &inv, Config: observeConfig, Condor: stockConfig, NoControlDaemon: true, Progress: t.Output()})
	must(t, err)
	stopAtEnd(t, s)
	// NVIDIA's packages bring this name, too, by which condor_gpu_discovery knows the library.
	_, err = s.Run(t.Context(), "sh", "-ec", "mv /usr/share/condor/config.d/50-gpuslot.conf /root/; ln -s libcuda.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so")
	must(t, err)
	must(t, s.StartCondor(t.Context()))
	return stageOn(t, s, inv)
}

// stock is what a run of the jobs leaves, but for what changes with time.
type stock struct {
	config, files, slots, results []string
	clusters                      []int
	took                          []time.Duration
}

// runStock runs the jobs at once and looks at HTCondor while they run and after.
func (st *Stage) runStock(ctx context.Context) (stock, error) {
	var s stock
	// The jobs wait until the slots were looked at: on a busy machine the first one
	// would have ended when the last one starts.
	_, release, err := st.hold(ctx, "observed")
	if err != nil {
		return s, err
	}
	defer func() { _ = release() }() // also when it fails
	for _, j := range observedJobs {
		lines := []string{"request_memory = 256", "accounting_group = atlas.prod"}
		if j.words != "" {
			lines = append(lines, "request_gpus = 1")
		}
		cluster, err := st.submit(ctx, job{Program: observedScript, Arguments: fmt.Sprintf("%d %s", j.code, j.words), Lines: lines})
		if err != nil {
			return s, err
		}
		s.clusters = append(s.clusters, cluster)
		if err := st.waitJobs(ctx, cluster, running, completed); err != nil { // so that the slots are the same in each run
			return s, err
		}
	}
	slots, err := st.Run(ctx, "condor_status", "-direct", "", "-long")
	if err != nil {
		return s, err
	}
	s.slots = without(slots.Stdout, changing)
	if err := release(); err != nil {
		return s, err
	}
	dump, err := st.Run(ctx, "condor_config_val", "-dump")
	if err != nil {
		return s, err
	}
	s.config = without(dump.Stdout, comment)
	files, err := st.Run(ctx, "sh", "-ec", "cd /; find etc/condor usr/share/condor -type f ! -name 50-gpuslot.conf | sort | xargs sha256sum")
	if err != nil {
		return s, err
	}
	s.files = strings.Split(files.Stdout, "\n")
	for i, cluster := range s.clusters {
		result, took, err := st.resultOf(ctx, i, cluster)
		if err != nil {
			return s, err
		}
		s.results, s.took = append(s.results, result), append(s.took, took)
	}
	return s, nil
}

func (st *Stage) resultOf(ctx context.Context, i, cluster int) (result string, took time.Duration, err error) {
	if err := st.waitJobs(ctx, cluster, completed); err != nil {
		return "", 0, err
	}
	rows, err := st.JobAttrs(ctx, cluster, "ExitCode", "NumJobStarts", "RequestGPUs", "CompletionDate", "JobCurrentStartDate")
	if err != nil {
		return "", 0, err
	}
	out, err := st.RunAs(ctx, user, "sh", "-ec", fmt.Sprintf("cat job.%d.0.out; echo; cat job.%d.0.err", cluster, cluster))
	end, errEnd := strconv.Atoi(rows[0][3])
	begin, errBegin := strconv.Atoi(rows[0][4])
	if err == nil && (errEnd != nil || errBegin != nil) {
		err = fmt.Errorf("job %d has no times: %v", cluster, rows)
	}
	return fmt.Sprintf("job %d: %v\n%s", i, rows[0][:3], out.Stdout), time.Duration(end-begin) * time.Second, err
}

// What of HTCondor's words is no setting, or differs from one startd's life or one
// look to the next.
var (
	comment  = regexp.MustCompile(`^(#|$|P?PID = )`)
	changing = regexp.MustCompile(`^($|AddressV1|.*Date|.*Time[A-Z]?|Time.*|Clock.*|.*(Idle|LoadAvg|Disk|Usage|VirtualMemory|DutyCycle|Badput|Completion)|MonitorSelf.*|LastHeardFrom|LastUpdate|My(Address|CurrentTime)|StartdIpAddr|PublicClaimId|StarterPid|(Recent|Job|Claim|Activation).*s|.*Job(Id|Start)|ImageSize|Std(out|err)Mtime|ExecutableSize|ScratchDirFileCount|EnteredCurrent.*|ChildEnteredCurrentState|ChildRetirementTimeRemaining|RetirementTimeRemaining|NumPids|TotalTime.*|Total.*RunTime|CpuBusy.*|DaemonStartTime|StartOfJobUptime.*|UpdateSequenceNumber|.*Updates.*|NumDynamicSlotsTime|DetectedMemory|LastPeriodicCheckpoint) = `)
)

// without are the lines that do not match, in order of the alphabet: the order of an
// ad's attributes says nothing.
func without(text string, these *regexp.Regexp) []string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); !these.MatchString(line) && line != "" {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

// checkUntouched looks for anything that gpuslot set up, and asks its verbs.
func (st *Stage) checkUntouched(ctx context.Context) error {
	changed, err := st.Run(ctx, "sh", "-ec", "find /etc /usr /var/lib /opt /home -newer /root/mark -type f ! -path '/var/lib/gpuslot/*' ! -path '/var/lib/condor/*' ! -path '/home/alice/*'; find /run/gpuslot /var/lib/gpuslot -type f")
	if err != nil {
		return err
	}
	wrote := strings.Fields(changed.Stdout)
	slices.Sort(wrote)
	st.Check(slices.Equal(wrote, []string{"/run/gpuslot/agent.lock", "/run/gpuslot/plan.json", "/var/lib/gpuslot/history/events.jsonl", "/var/lib/gpuslot/records/jobs.jsonl"}),
		"nothing was written but gpuslot's own: %v", wrote)
	units, err := st.Run(ctx, "sh", "-c", "systemctl list-units --all --plain --no-legend 'gpuslot-mps@*'; nvidia-smi --query-gpu=compute_mode,mig.mode.current --format=csv,noheader 2>/dev/null; true")
	if err != nil {
		return err
	}
	st.Check(!strings.Contains(units.Stdout, "gpuslot-mps@") && !strings.Contains(units.Stdout, "Exclusive"), "no control daemon, no compute mode: %s", oneLine(units.Stdout))
	for _, ask := range []struct{ command, want string }{
		{"gpuslot plan", "gpuslot changes nothing on this node"},
		{"gpuslot condor-config 2>/run/said; test -z \"$(gpuslot condor-config 2>/dev/null)\" && cat /run/said", "nothing is generated for it"},
		{"gpuslot status", "observed: gpuslot changes nothing here"},
		{"gpuslot doctor", "error 0, warning 0"},
		{"gpuslot gpu close 0 --reason x 2>&1 || true", "condor_drain"},
		{`exec 3<>/dev/tcp/127.0.0.1/9847; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; cat <&3`, `mode="observe"`},
	} {
		out, err := st.Run(ctx, "bash", "-c", ask.command)
		if err != nil {
			return err
		}
		st.Contains(out.Stdout, ask.want, ask.command)
	}
	return nil
}

// checkObserved holds the records to the truth, within what the sampling allows.
func (st *Stage) checkObserved(ctx context.Context, run stock) error {
	records := map[string]record.Job{}
	waiting, cancel := context.WithTimeout(ctx, node.Patience)
	defer cancel()
	err := st.Wait(waiting, "the records", func() bool {
		text, _ := st.ReadFile(ctx, "/var/lib/gpuslot/records/jobs.jsonl")
		_, err := record.Read(strings.NewReader(text), func(j record.Job) { records[j.Job] = j })
		return err == nil && len(records) >= 2
	})
	if err != nil {
		return err
	}
	st.Check(len(records) == 2, "two jobs used a GPU, and two have a record: %d", len(records))
	for i, j := range observedJobs {
		if j.words != "" {
			st.checkRecord(j, records[fmt.Sprintf("%d.0", run.clusters[i])], run.took[i].Seconds())
		}
	}
	return nil
}

// Power of a simulated H100 (test/sim/nvml/models.c), in watts, and what a context
// takes besides its allocations, in MiB (test/sim/README.md).
const (
	restWatts, loadWatts = 70, 630
	contextMiB           = 518
)

func (st *Stage) checkRecord(j observedJob, r record.Job, took float64) {
	about := func(what string, got *float64, want, off float64) {
		if got == nil {
			st.Check(false, "%s is not known, the truth is %.1f", what, want)
			return
		}
		st.Check(math.Abs(*got-want) <= off, "%s = %.2f, the truth is %.2f, within %.2f", what, *got, want, off)
	}
	seconds := r.Seconds()
	about(r.Job+": seconds", &seconds, took, 2.5) // HTCondor's dates are whole seconds
	st.Check(r.PeakMiB != nil && *r.PeakMiB == int64(j.alloc+contextMiB), "VRAM peak = %s, the truth is %d", number(r.PeakMiB), j.alloc+contextMiB)
	st.Check(r.Curve != nil && slices.Max(r.Curve.MiB) == int64(j.alloc+contextMiB) && slices.Contains(r.Curve.MiB, int64(j.early+contextMiB)), "VRAM curve = %+v", r.Curve)
	about("SM seconds", r.SM.Estimate, j.gpuSeconds, timeError(j.gpuSeconds))
	// Where a sample finds the job before still there, the bounds are apart.
	st.Check(r.SM.Min != nil && r.SM.Max != nil && *r.SM.Min <= j.gpuSeconds+timeError(j.gpuSeconds) && *r.SM.Max >= j.gpuSeconds-timeError(j.gpuSeconds),
		"the bounds of its SM time hold: %s", r.Method)
	about("joules", r.Joules.Estimate, restWatts*seconds+loadWatts*j.gpuSeconds, 2*restWatts+loadWatts*timeError(j.gpuSeconds))
	// A lower bound: the job's first second is known a sample later, and one that saw work at all counts as work.
	idle := seconds - j.busy
	about("idle seconds", r.IdleSeconds, idle-1.85, 2.15)
	st.Check(r.DRAMSeconds != nil && *r.DRAMSeconds > 0 && *r.DRAMSeconds <= seconds, "seconds of full memory bandwidth are known")
	st.Check(r.Owner == user && r.Group == "atlas.prod" && r.Schedd == "wn1.test" && r.Mode == "observe" && r.Share == 1 && !r.Partial && r.EnforcedBy == "" && r.HoldCode == 0,
		"whose it is, and how it had the GPU: %s, %s, %s, mode %s, share %g, partial %v", r.Owner, r.Group, r.Schedd, r.Mode, r.Share, r.Partial)
	q := r.Requested
	st.Check(q.GPUs != nil && *q.GPUs == 1 && q.CPUs != nil && *q.CPUs == 1 && q.MemoryMiB != nil && *q.MemoryMiB == 256 && q.VRAMMiB == nil, "what it asked for: one GPU, one CPU, 256 MiB, no VRAM")
}

func number(n *int64) string {
	if n == nil {
		return "unknown"
	}
	return strconv.FormatInt(*n, 10)
}
