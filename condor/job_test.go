package condor

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuslot/gpuslot/condor/classad"
)

func number64(n int64) *int64 { return &n }

// The ad was recorded from the standard input of a hook under HTCondor 25.14.1;
// the wanted values are those of its submit file.
func TestReadRecordedJob(t *testing.T) {
	f, err := os.Open("testdata/job-25.14.1.ad")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	job, err := ReadJob(f)
	if err != nil {
		t.Fatal(err)
	}
	if job.ID != "40.0" || job.Owner != "alice" || *job.RequestGPUs != 1 || *job.RequestVRAM != 4096 || *job.ProvisionedVRAM != 4096 {
		t.Errorf("job %q of %q", job.ID, job.Owner)
	}
	if job.Program != "env" || job.Schedd != "node.test" || job.Batch != "" || *job.RequestCPUs != 1 || *job.RequestMemory != 50 {
		t.Errorf("for its record: %+v", job)
	}
	env, err := job.Environment()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"S": "a b", "D": `q"q`, "X": "it's", "B": `C:\dir\n`, "E": `end\`, "T": "a\tb", "U": "é", "EMPTY": "", "L": `last\`,
		"CUDA_VISIBLE_DEVICES": "7", "CUDA_MPS_PIPE_DIRECTORY": "/x",
	}
	if diff := cmp.Diff(want, variables(env)); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestReadJobRequests(t *testing.T) {
	for name, c := range map[string]struct {
		ad                      string
		gpus, vram, provisioned *int64
	}{
		"plain":                  {"RequestGPUs = 1\nRequestvram = 4096\nVramProvisioned = 4096", number64(1), number64(4096), number64(4096)},
		"nothing":                {"Owner = \"a\"", nil, nil, nil},
		"undefined":              {"RequestVRAM = undefined\nVramProvisioned = 0", nil, nil, number64(0)},
		"a fraction rounds up":   {"RequestVRAM = 4000.5", nil, number64(4001), nil},
		"an expression":          {"RequestGPUs = 1 + 0\nGpusProvisioned = 1\nRequestVRAM = 1000 * 2\nVramProvisioned = 2000", number64(1), number64(2000), number64(2000)},
		"an expression, no more": {"RequestVRAM = 1000 * 2", nil, nil, nil},
		"absurd":                 {"RequestVRAM = 1E300", nil, nil, nil},
	} {
		job, err := ReadJob(strings.NewReader(c.ad))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := []*int64{job.RequestGPUs, job.RequestVRAM, job.ProvisionedVRAM}
		if diff := cmp.Diff([]*int64{c.gpus, c.vram, c.provisioned}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What may be a docker universe job to the starter is one; everything else is a job below its starter.
func TestReadJobDocker(t *testing.T) {
	for ad, want := range map[string]bool{"WantDocker = true": true, "wantdocker = TRUE": true, "WantDocker = false": false, "WantDocker = 1": true, "WantDocker = TARGET.X =?= undefined": true, "WantDocker = undefined": false, "Owner = \"a\"": false} {
		if job, err := ReadJob(strings.NewReader(ad)); err != nil || job.Docker != want {
			t.Errorf("%s: %v, %v", ad, job.Docker, err)
		}
	}
}

// TestReadJobNames: a text that is there says so; a program that runs outside the job's cgroup is named unless its
// attribute is undefined.
func TestReadJobNames(t *testing.T) {
	ad := "JobBatchName = \"nightly\"\nPreCmd = undefined\nPostCmd = \"after.sh\"\nToolDaemonCmd = ifThenElse(x, 1, 2)"
	job, err := ReadJob(strings.NewReader(ad))
	if err != nil || job.Batch != "nightly" {
		t.Errorf("batch %q, %v", job.Batch, err)
	}
	if diff := cmp.Diff([]string{"PostCmd", "ToolDaemonCmd"}, job.Outside); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadJobRefuses(t *testing.T) {
	for name, c := range map[string]struct{ ad, want string }{
		"empty":        {"\n\n", "is empty"},
		"not an ad":    {"hello\n", "line 1"},
		"broken out":   {"Environment = \"A=x\nOwner = \"root\"\n\"", "line 1"},
		"two owners":   {"Owner = \"a\"\nOwner = \"b\"", "twice"},
		"binary":       {"\x7fELF\x00", "line 1"},
		"far too long": {"A = \"" + strings.Repeat("x", MaxJobAd) + "\"", "larger than"},
	} {
		if _, err := ReadJob(strings.NewReader(c.ad)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, c.want)
		}
	}
	if _, err := ReadJob(iotest.ErrReader(errors.New("gone"))); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a reader's error is %v", err)
	}
}

func TestJobEnvironmentSources(t *testing.T) {
	for name, c := range map[string]struct{ ad, want, err string }{
		"none":            {"Owner = \"a\"", "", ""},
		"second syntax":   {"Environment = \"A=1 'B=x y'\"", "A=1 'B=x y'", ""},
		"first syntax":    {"Env = \"A=1;B=x y\"", "A=1 'B=x y'", ""},
		"its delimiter":   {"Env = \"A=1|B=2\"\nEnvDelim = \"|\"", "A=1 B=2", ""},
		"both":            {"Env = \"A=1\"\nEnvironment = \"B=2\"", "B=2", ""},
		"an expression":   {"Environment = strcat(\"A=1\", \" B=2\")", "", "is a ClassAd expression"},
		"an expression 1": {"Env = strcat(\"A=1\")", "", "is a ClassAd expression"},
		"unbalanced":      {"Environment = \"A='\"", "", "single quote"},
	} {
		job, err := ReadJob(strings.NewReader(c.ad))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		env, err := job.Environment()
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %q", name, err, c.err)
		}
		if err == nil && env.String() != c.want {
			t.Errorf("%s: %s, want %s", name, env, c.want)
		}
	}
}

func TestHookReply(t *testing.T) {
	env, err := ParseEnvironment(`A='x y' B=q"q L=C:\`)
	if err != nil {
		t.Fatal(err)
	}
	for want, r := range map[string]HookReply{
		"Environment = \"'A=x y' B=q\\\"q L=C:\\\"\n": {Environment: env},
		"Environment = \"\"\n":                        {},
		"HookStatusCode = 71\nHookStatusMessage = \"add the line request_vram = 4096\"\n": {
			Code: 71, Message: "add the line\n\trequest_vram = 4096\n", Environment: env},
		"HookStatusCode = 373\nHookStatusMessage = \"\"\n": {Code: 373},
	} {
		if diff := cmp.Diff(want, string(r.Print())); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	long := HookReply{Code: 371, Message: strings.Repeat("é", 4000)}.Print()
	if len(long) > 2*maxMessage {
		t.Errorf("a message of 8000 bytes gives a reply of %d", len(long))
	}
}

// TestSentence: what is not printable and blanks in a row are one blank.
func TestSentence(t *testing.T) {
	for text, want := range map[string]string{
		"": "", " \n": "", "a": "a", " a  b\t\nc ": "a b c", "a\xffb": "a b", "a\ufffdb": "a b", "a\x1b[7mb": "a [7mb", "a\u2028b": "a b",
		strings.Repeat("x", maxMessage):             strings.Repeat("x", maxMessage),
		strings.Repeat("x", maxMessage+1):           strings.Repeat("x", maxMessage+1),
		strings.Repeat("x", maxMessage+1) + "\ny\n": strings.Repeat("x", maxMessage+1) + "…",
	} {
		if got := Sentence(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// Whatever the job's ad says, the reply is one attribute, it hands on nothing
// that is reserved, and HTCondor reads the environment that we mean.
func FuzzReadJob(f *testing.F) {
	recorded, err := os.ReadFile("testdata/job-25.14.1.ad")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(recorded))
	for _, s := range []string{
		"Environment = \"A='x y' CUDA_MPS_PIPE_DIRECTORY=/x\"\nOwner = \"a\"", "Env = \"A=1;CUDA_VISIBLE_DEVICES=1\"",
		"Environment = \"L=C:\\\"", "RequestVRAM = 4000.5\nClusterId = 1\nProcId = 2", "Environment = \"A='\x0b'\"",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		job, err := ReadJob(strings.NewReader(text))
		if err != nil {
			return
		}
		env, err := job.Environment()
		if err != nil {
			return
		}
		given := env.With(map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-1"}, nil)
		reply, err := classad.Parse(string(HookReply{Environment: given}.Print()))
		if err != nil || reply.Len() != 1 {
			t.Fatalf("%q gives the reply %q: %v", text, reply.Print(), err)
		}
		v2, _ := reply.String("Environment")
		again, err := ParseEnvironment(v2)
		if err != nil {
			t.Fatalf("%q gives the environment %q: %v", text, v2, err)
		}
		if diff := cmp.Diff(variables(given), variables(again)); diff != "" {
			t.Fatalf("%q (-meant +read):\n%s", text, diff)
		}
		for name, value := range variables(again) {
			if Reserved(name) && value != "GPU-1" {
				t.Fatalf("%q: %s=%s is handed on", text, name, value)
			}
		}
	})
}
