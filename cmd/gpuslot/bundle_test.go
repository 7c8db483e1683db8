package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/agent/record"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestSourceDeadline: a source that never answers does not keep a report.
func TestSourceDeadline(t *testing.T) {
	forever := make(chan struct{})
	defer close(forever)
	s := source{name: "wedged", deadline: time.Millisecond, read: func(context.Context) ([]byte, error) {
		<-forever
		return nil, nil
	}}
	if _, _, err := s.ask(t.Context()); err == nil || err.Error() != "no answer within 1ms" {
		t.Errorf("%v", err)
	}
}

// TestSourceIsCut: the end of a long log is kept.
func TestSourceIsCut(t *testing.T) {
	s := source{deadline: time.Minute, read: func(context.Context) ([]byte, error) {
		return append(bytes.Repeat([]byte("x"), mostOfSource), "the end"...), nil
	}}
	text, cut, err := s.ask(t.Context())
	if err != nil || !cut || len(text) != mostOfSource || !bytes.HasSuffix(text, []byte("the end")) {
		t.Errorf("%d bytes, cut %t, %v", len(text), cut, err)
	}
}

func TestVeil(t *testing.T) {
	v := newVeil(false)
	v.hide(kindUser, "alice")
	v.hide(kindUser, "first.last")
	v.hide(kindJob, "12.0")
	for in, want := range map[string]string{
		"home of alice: /home/alice/x":                    "home of user-1: /home/user-1/x",
		"alice@EXAMPLE.ORG, alice's, malice":              "user-1@EXAMPLE.ORG, user-1's, malice",
		"by first.last.":                                  "by user-2.",
		`level=INFO msg="job admitted" job=12.0 slot=s_1`: `level=INFO msg="job admitted" job=job-1 slot=s_1`,
		"driver 550.163.01, systemd 252.12":               "driver 550.163.01, systemd 252.12",
		"NEW CLIENT 77 from user 1001: Server":            "NEW CLIENT 77 from user (left out): Server",
		"Starting new server 5 for user 0":                "Starting new server 5 for user 0",
		"closed by owner=operator":                        "closed by owner=operator",
	} {
		if got := v.text(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	// Who is not known is known by where the name stands.
	if got := v.text(`The job of mallory was admitted, owner=eve job=7.1; account trudy`); strings.Contains(got, "mallory") || strings.Contains(got, "eve") || strings.Contains(got, "7.1") || strings.Contains(got, "trudy") {
		t.Error(got)
	}
	if _, err := v.file("status.json", []byte("{torn alice")); err == nil {
		t.Error("what is no JSON was told")
	}
	lifted := newVeil(true)
	if got, err := lifted.file("x.log", []byte("job of alice\npassword: hunter2\n")); err != nil || string(got) != "job of alice\npassword: \"(left out)\"\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestVeilOfOrdinaryWords: a user who names the group of a job after a word of gpuslot's takes no
// sense out of a report.
func TestVeilOfOrdinaryWords(t *testing.T) {
	paths := config.Paths{State: t.TempDir()}
	for _, group := range []string{"limit", "group_x.limits-of-1"} {
		line, err := json.Marshal(record.Job{Slot: "slot1_1", Job: "7.0", Owner: "alice", Group: group, VO: "GPU", Begin: time.Unix(1, 0), End: time.Unix(2, 0)})
		if err == nil {
			err = history.RecordLog(paths).Append(append(line, '\n'))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	v := newVeil(false)
	v.learn(paths, api.Status{})
	if got := v.text("the limit of GPU 0, alice, group_x.limits-of-1"); got != "the limit of GPU 0, user-1, group-1" {
		t.Error(got)
	}
}

func TestWithoutSecrets(t *testing.T) {
	for in, want := range map[string]string{
		"password = \"x\" # old\nshares = 4": "password = \"(left out)\"\nshares = 4",
		"API_KEY: abc":                       `API_KEY: "(left out)"`,
		"SEC_TOKEN_DIRECTORY = /etc/t":       `SEC_TOKEN_DIRECTORY = "(left out)"`,
		`dcgm = "http://me:pw@localhost/m"`:  `dcgm = "http://(left out)@localhost/m"`,
		"shares = 4":                         "shares = 4",
		"AWS_ACCESS_KEY_ID=abc":              `AWS_ACCESS_KEY_ID="(left out)"`,
		"S3_ACCESS_KEY: abc":                 `S3_ACCESS_KEY: "(left out)"`,
		"x PRIVATE_KEY=abc def":              `x PRIVATE_KEY="(left out)"`,
		"GITHUB_PAT=abc":                     `GITHUB_PAT="(left out)"`,
		"MY_PATH=/a":                         "MY_PATH=/a",
		"curl -H Bearer abcdefgh12":          "curl -H Bearer (left out)",
		"Authorization: Basic YTpi":          `Authorization: "(left out)"`,
		"id AKIAABCDEFGHIJKLMNOP":            "id (left out)",
		"jwt eyJhbGciOiJI.eyJzdWIi.sig-_ x":  "jwt (left out) x",
		"a\n-----BEGIN RSA PRIVATE KEY-----\nMII\nxyz\n-----END RSA PRIVATE KEY-----\nb": "a\n-----BEGIN RSA PRIVATE KEY-----\n(left out)\n-----END RSA PRIVATE KEY-----\nb",
		// Sites put credentials of storage systems into the environment of every job.
		`STARTER_JOB_ENVIRONMENT = "RUCIO_ACCOUNT=me X509='/a b' C=d"`: `STARTER_JOB_ENVIRONMENT = "RUCIO_ACCOUNT=(left out) X509=(left out) C=(left out)"`,
		"GPUSLOT_HOOK_PREPARE_JOB_ARGS = A=b":                          "GPUSLOT_HOOK_PREPARE_JOB_ARGS = A=(left out)",
		"ENVIRONMENT_FOR_AssignedGPUs = GPU_NAME":                      "ENVIRONMENT_FOR_AssignedGPUs = GPU_NAME",
	} {
		if got := string(withoutSecrets([]byte(in))); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

// FuzzReport: a report from elsewhere is refused or leads to one plan, twice the same.
func FuzzReport(f *testing.F) {
	var b bytes.Buffer
	inv, err := gpu.ReadInventory("../../docs/examples/v100s-8.json")
	if err != nil {
		f.Fatal(err)
	}
	text, err := inv.Encode()
	if err != nil {
		f.Fatal(err)
	}
	m := manifest{Schema: bundleSchema, ConfigFile: "f.toml", Files: []had{{Name: bundleInventory, text: text}, {Name: bundleConfig, text: []byte("[sharing]\nshares = 4\n")}}}
	if err := encodeBundle(&b, m); err != nil {
		f.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b.Bytes()))
	if err != nil {
		f.Fatal(err)
	}
	var plain bytes.Buffer
	if _, err := plain.ReadFrom(z); err != nil {
		f.Fatal(err)
	}
	f.Add(plain.Bytes())
	f.Add([]byte("no archive"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = z.Write(text)
		_ = z.Close()
		one, err := decodeBundle(bytes.NewReader(packed.Bytes()))
		two, errAgain := decodeBundle(&packed)
		if (err == nil) != (errAgain == nil) {
			t.Fatalf("%v, then %v", err, errAgain)
		}
		if err != nil {
			return
		}
		p, err := plan.Build(one.config, one.inventory)
		q, errAgain := plan.Build(two.config, two.inventory)
		if err != nil || errAgain != nil {
			return
		}
		a, _ := p.Encode()
		b, _ := q.Encode()
		if !bytes.Equal(a, b) {
			t.Error("two plans of one report")
		}
	})
}

// TestMetricsStayHere: what answers at the agent's port leads root to no other address.
func TestMetricsStayHere(t *testing.T) {
	asked := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer elsewhere.Close()
	port := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusFound))
	defer port.Close()
	n := nodeSources{config: config.Config{Metrics: config.Metrics{Listen: port.Listener.Addr().String()}}}
	if _, err := n.metrics(t.Context()); err == nil || !strings.Contains(err.Error(), "302") || asked > 0 {
		t.Errorf("%v, the other address was asked %d times", err, asked)
	}
}

// TestWhatAnswersGivesNoOrders: what a stranger at the agent's port answers gives an operator's terminal no orders.
func TestWhatAnswersGivesNoOrders(t *testing.T) {
	port := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, err = c.Write([]byte("HTTP/1.0 500 \x1b]0;mine\a" + strings.Repeat("x", 3000) + "\r\n\r\n"))
			err = errors.Join(err, c.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer port.Close()
	n := nodeSources{config: config.Config{Metrics: config.Metrics{Listen: port.Listener.Addr().String()}}}
	_, err := n.metrics(t.Context())
	if err == nil || !strings.Contains(err.Error(), "500") || strings.Contains(err.Error(), "\x1b") || len(err.Error()) > 1000 {
		t.Errorf("%q", err)
	}
	line := source{name: "metrics.prom"}.notHad(errors.New("no \x1b[2J\nline"))
	if strings.ContainsAny(line, "\x1b\n") || !strings.Contains(line, "metrics.prom") || !strings.Contains(line, "no") {
		t.Errorf("%q", line)
	}
}
