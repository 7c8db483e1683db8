package condor

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strings"

	"github.com/gpuslot/gpuslot/condor/classad"
	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// MaxJobAd bounds a job ad in bytes; real ones take some kB, and an imported
// environment (getenv) up to some 100 kB.
const MaxJobAd = 8 << 20

// Job is what a job ad says that matters for its GPU.
type Job struct {
	// ID is "cluster.proc"; empty if the ad has no numbers.
	ID    string
	Owner string
	// RequestGPUs, RequestVRAM (MiB) and ProvisionedVRAM (the slot's, MiB);
	// nil if the ad does not have them. A request that is an expression is
	// taken as provisioned, since the startd has evaluated it.
	RequestGPUs, RequestVRAM, ProvisionedVRAM *int64
	// Group and VO are AcctGroup, the accounting group, and x509UserProxyVOName,
	// the virtual organisation; empty if the job has none.
	Group, VO string
	// OddTenant says why Group or VO is not the job's name for it: too long, or not
	// printable; empty if they are.
	OddTenant string
	// Program is the last part of Cmd, Batch JobBatchName, Schedd the first part of
	// GlobalJobId; empty if the ad has none. RequestCPUs and RequestMemory (MiB) are
	// as the other requests.
	Program, Batch, Schedd     string
	RequestCPUs, RequestMemory *int64
	// RequestThreads is RequestGPUThreads as the ad has it: a percentage of the
	// multiprocessors, or what a user wrote instead; empty if the job has none.
	RequestThreads string
	// Docker is WantDocker: the job is of the docker universe, and its processes are
	// below docker's daemon, not below the starter.
	Docker bool
	// Outside are the attributes by which HTCondor would run programs of the job
	// outside its cgroup.
	Outside []string

	ad classad.Ad
}

// ReadJob reads the ad that a hook finds on its standard input, or the file
// .job.ad.
func ReadJob(r io.Reader) (Job, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxJobAd+1))
	if err != nil {
		return Job{}, fmt.Errorf("read the job ad: %w", err)
	}
	if len(text) > MaxJobAd {
		return Job{}, fmt.Errorf("the job ad is larger than %d bytes", MaxJobAd)
	}
	ad, err := classad.Parse(string(text))
	if err != nil {
		return Job{}, fmt.Errorf("the job ad: %w", err)
	}
	if ad.Len() == 0 {
		return Job{}, errors.New("the job ad is empty")
	}
	return newJob(ad), nil
}

func newJob(ad classad.Ad) Job {
	j := Job{ad: ad}
	cluster, okCluster := ad.Int("ClusterId")
	proc, okProc := ad.Int("ProcId")
	if okCluster && okProc {
		j.ID = fmt.Sprintf("%d.%d", cluster, proc)
	}
	j.Owner, _ = ad.String("Owner")
	group, _ := ad.String(tenantAttributes[TenantGroup])
	vo, _ := ad.String(tenantAttributes[TenantVO])
	j.Group, j.VO, j.OddTenant = foreign.Word(group), foreign.Word(vo), oddTenant(ad)
	if threads, ok := ad.Expr("RequestGPUThreads"); ok && !strings.EqualFold(threads, "undefined") {
		j.RequestThreads = foreign.Clip(threads)
	}
	j.ProvisionedVRAM = number(ad, "VramProvisioned")
	j.RequestVRAM = request(ad, "RequestVRAM", j.ProvisionedVRAM)
	j.RequestGPUs = request(ad, "RequestGPUs", number(ad, "GpusProvisioned"))
	j.RequestCPUs = request(ad, "RequestCpus", number(ad, "CpusProvisioned"))
	j.RequestMemory = request(ad, "RequestMemory", number(ad, "MemoryProvisioned"))
	j.Program, j.Batch, j.Schedd = named(ad)
	j.Docker = inDocker(ad)
	j.Outside = outside(ad)
	return j
}

// named is what an ad says of the job's program, its batch and its schedd.
func named(ad classad.Ad) (program, batch, schedd string) {
	if cmd, _ := ad.String("Cmd"); cmd != "" {
		program = foreign.Clip(path.Base(cmd))
	}
	batch, _ = ad.String("JobBatchName")
	global, _ := ad.String("GlobalJobId")
	schedd, _, _ = strings.Cut(global, "#")
	return program, foreign.Clip(batch), foreign.Clip(schedd)
}

// inDocker: submitting to the docker universe sets the attribute to true. The starter evaluates it, so an expression
// may be true there.
func inDocker(ad classad.Ad) bool {
	want, given := ad.Expr("WantDocker")
	return given && !strings.EqualFold(want, "false") && !strings.EqualFold(want, "undefined")
}

// request is a literal request, or what was provisioned for an expression.
func request(ad classad.Ad, name string, provisioned *int64) *int64 {
	if !ad.Has(name) {
		return nil
	}
	if n := number(ad, name); n != nil {
		return n
	}
	return provisioned
}

// number is an integer, or a real rounded up as HTCondor rounds requests.
func number(ad classad.Ad, name string) *int64 {
	n, ok := ad.Int(name)
	if !ok {
		f, real := ad.Float(name)
		if !real || math.Abs(f) > 1<<53 {
			return nil
		}
		n = int64(math.Ceil(f))
	}
	return &n
}

// Environment is the job's environment: Environment, or Env of old clients. An
// expression cannot be cleaned of what is Reserved, so it is an error.
func (j Job) Environment() (Environment, error) {
	if v2, ok := j.ad.String("Environment"); ok {
		return ParseEnvironment(v2)
	}
	if j.ad.Has("Environment") {
		return Environment{}, errors.New("the job's environment is a ClassAd expression, which gpuslot cannot read; " +
			"write it in the submit file as environment = \"NAME=value …\"")
	}
	v1, ok := j.ad.String("Env")
	if !ok && j.ad.Has("Env") {
		return Environment{}, errors.New("the job's Env is a ClassAd expression, which gpuslot cannot read; " +
			"write it in the submit file as environment = \"NAME=value …\"")
	}
	delimiter, _ := j.ad.String("EnvDelim")
	return ParseEnvironmentV1(v1, delimiter)
}
