package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func number(n int64) *int64 { return &n }

func TestReadRequest(t *testing.T) {
	want := Request{Version: 1, Op: OpPrepare, Job: &Job{
		ID: "40.0", Owner: "alice", AssignedGPUs: []string{"GPU-a"},
		ProvisionedVRAM: number(4096), RequestGPUs: number(1), RequestVRAM: number(4096),
	}}
	line := `{"v":1,"op":"prepare","job":{"id":"40.0","owner":"alice","assigned_gpus":["GPU-a"],` +
		`"provisioned_vram_mib":4096,"request_gpus":1,"request_vram_mib":4096}}` + "\n"
	for name, r := range map[string]io.Reader{
		"at once":             strings.NewReader(line),
		"byte by byte":        iotest.OneByteReader(strings.NewReader(line)),
		"with the error":      iotest.DataErrReader(strings.NewReader(line)),
		"what follows is not": strings.NewReader(line + "rubbish"),
	} {
		got, err := ReadRequest(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestReadRequestRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "ends before its line does",
		`{"v":1,"op":"monitor"}`:         "ends before its line does",
		"\n":                             "not a JSON object",
		"GET / HTTP/1.1\r\n":             "not a JSON object",
		"[1]\n":                          "not a JSON object",
		"{\"v\":\"1\"}\n":                "not a JSON object",
		"{\"op\":\"monitor\"}\n":         "protocol version 0, gpuslotd speaks 1",
		"{\"v\":2,\"new\":1}\n":          "protocol version 2, gpuslotd speaks 1",
		"{\"v\":1}\n":                    `unknown op ""`,
		"{\"v\":1,\"op\":\"stop\"}\n":    `unknown op "stop"`,
		"{\"v\":1,\"op\":\"prepare\"}\n": "prepare has no job",
		"{\"v\":1,\"op\":\"restart\"}\n": "restart names no GPU",
		"{\"v\":1,\"op\":\"close\"}\n":   "close names no GPU",
		"{\"v\":1,\"op\":\"open\"}\n":    "open names no GPU",
		"{\"v\":1,\"op\":\"status\",\"hook\":{\"ad\":\"\"}}\n":               "status has no place for a job",
		"{\"v\":1,\"op\":\"end\",\"job\":{}}\n":                              "end has no place for a job",
		"{\"v\":1,\"op\":\"monitor\",\"uid\":0}\n":                           `request: json: unknown field "uid"`, // gpuslot-start looks for this
		"{\"v\":1,\"op\":\"monitor\"} {}\n":                                  "not a JSON object",
		"{\"v\":1,\"op\":\"prepare\",\"job\":{\"request_vram_mib\":1.5}}\n":  "cannot unmarshal number 1.5",
		"{\"v\":1,\"op\":\"prepare\",\"job\":{\"request_vram_mib\":1e99}}\n": "cannot unmarshal number 1e99",
		strings.Repeat("[", MaxRequest-1) + "\n":                             "not a JSON object",
		strings.Repeat("x", MaxRequest+1):                                    "longer than 262144 bytes",
		"{\"v\":1,\"op\":\"" + strings.Repeat("x", MaxRequest) + "\"}\n":     "longer than 262144 bytes",
		"{\"v\":1,\"op\":\"" + strings.Repeat("x", MaxRequest-200) + "\"}\n": "unknown op",
	} {
		_, err := ReadRequest(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: error %v, want %q in it", text, err, want)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%.60q: an error of %d bytes", text, len(err.Error()))
		}
	}
	if _, err := ReadRequest(strings.NewReader(strings.Repeat("x", MaxRequest+1))); !errors.Is(err, ErrTooLong) {
		t.Errorf("error %v is not ErrTooLong", err)
	}
	if _, err := ReadRequest(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("{}\n")))); !errors.Is(err, ErrSilent) || !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("error %v is not ErrSilent and the reader's", err)
	}
}

// A caller that sends without an end costs no more than the longest request.
func TestReadRequestIsBounded(t *testing.T) {
	sent := 0
	endless := readerFunc(func(b []byte) (int, error) {
		sent += len(b)
		return len(b), nil
	})
	if _, err := ReadRequest(endless); !errors.Is(err, ErrTooLong) {
		t.Errorf("error %v", err)
	}
	if sent > MaxRequest+1 {
		t.Errorf("read %d bytes", sent)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func TestWriteReply(t *testing.T) {
	var b bytes.Buffer
	if err := WriteReply(&b, Reply{Refusal: Refuse(CodeClosed, "two\nlines")}); err != nil {
		t.Fatal(err)
	}
	const want = `{"v":1,"refusal":{"requeue":true,"code":371,"reason":"two\nlines"}}` + "\n"
	if b.String() != want {
		t.Errorf("got  %swant %s", &b, want)
	}
	if err := WriteReply(iotest.TruncateWriter(failing{}, 0), Reply{}); err != nil {
		t.Errorf("a discarded reply: %v", err)
	}
	if err := WriteReply(failing{}, Reply{}); err == nil {
		t.Error("a failed write is no error")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("gone") }

// HTCondor reads the code, the agent's log reads Requeue: they must agree.
func TestRefuse(t *testing.T) {
	for code, requeue := range map[int]bool{
		CodeNoRequest: false, CodeTooLarge: false, CodeSeveralGPUs: false, CodeBadGPUs: false, CodeBadJob: false,
		CodeClosed: true, CodeOtherTenant: true, CodeNoAgent: true, CodeNotPlanned: true,
	} {
		if r := Refuse(code, "why"); r.Requeue != requeue || r.Code != code || r.Reason != "why" {
			t.Errorf("%d: %+v", code, *r)
		}
	}
}

// Unknown is absent: no zero time and no zero number is sent for it.
func TestUnknownIsNotSent(t *testing.T) {
	b, err := json.Marshal(Request{Version: 1, Op: OpPrepare, Job: &Job{ID: "1.0"}})
	if err != nil || string(b) != `{"v":1,"op":"prepare","job":{"id":"1.0"}}` {
		t.Errorf("%s, %v", b, err)
	}
	b, err = json.Marshal(Acceptance{UUID: "GPU-a", Accept: true, Time: time.Unix(0, 0).UTC()})
	if err != nil || string(b) != `{"uuid":"GPU-a","accept":true,"time":"1970-01-01T00:00:00Z"}` {
		t.Errorf("%s, %v", b, err)
	}
}

// A request that is accepted can be sent again and means the same.
func FuzzReadRequest(f *testing.F) {
	for _, s := range []string{
		`{"v":1,"op":"monitor"}`, `{"v":1,"op":"prepare","job":{"assigned_gpus":["a"],"request_vram_mib":-1}}`,
		`{"V":1,"OP":"status"}`, `{"v":1,"op":"status","job":null}`, "{}", "", "\x00", `{"v":1,"op":"prepare","job":{"id":"\u0000\ud800"}}`,
	} {
		f.Add([]byte(s + "\n"))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		req, err := ReadRequest(bytes.NewReader(text))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := writeLine(&b, req); err != nil {
			t.Fatal(err)
		}
		if bytes.Count(b.Bytes(), []byte("\n")) != 1 {
			t.Fatalf("%q is sent as more than one line: %q", text, b.Bytes())
		}
		again, err := ReadRequest(&b)
		if err != nil {
			t.Fatalf("%q is not accepted again: %v", text, err)
		}
		if diff := cmp.Diff(req, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%q (-first +again):\n%s", text, diff)
		}
	})
}

func ExampleReadRequest() {
	req, err := ReadRequest(strings.NewReader(`{"v":1,"op":"monitor"}` + "\n"))
	fmt.Println(req.Op, err)
	// Output: monitor <nil>
}

// TestReadReply: the short way of the ops that every job waits for reads what
// the long one does.
func TestReadReply(t *testing.T) {
	for op, replies := range map[Op][]Reply{
		OpPrepare: {
			{Version: 1, Grant: &Grant{Environment: map[string]string{"A": "1"}, Defaults: map[string]string{"B": "2"}, EnforcedBy: "daemon"}},
			{Version: 1, Refusal: &Refusal{Requeue: true, Code: 301, Reason: "closed"}},
			{Version: 2, Error: "no"},
		},
		OpStart:  {{Version: 1, Started: &Started{Supervise: true, Reserved: true}}, {Version: 1, Refusal: &Refusal{Requeue: true, Code: 371, Reason: "closed"}}},
		OpEnd:    {{Version: 1, Ended: &Ended{Clients: 2, Remaining: 1, Wait: "used 2 MiB of 1 MiB"}}, {Version: 1, Error: "no"}},
		OpStatus: {{Version: 1, Status: &Status{Host: "wn1"}}},
	} {
		for _, want := range replies {
			text, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readReply(op, text)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", op, err, diff)
			}
		}
		if _, err := readReply(op, []byte(`[1]`)); err == nil {
			t.Errorf("%s: a list is a reply", op)
		}
	}
}

// TestReplyLineIsShort: what a page would have to escape stays one byte each.
func TestReplyLineIsShort(t *testing.T) {
	if line, err := ReplyLine(Reply{Error: "<&>"}); err != nil || !bytes.Contains(line, []byte("<&>")) {
		t.Errorf("%s, %v", line, err)
	}
}

// TestWriteLineFails: what is no JSON is an error, and nothing of it is written.
func TestWriteLineFails(t *testing.T) {
	var to bytes.Buffer
	if err := writeLine(&to, math.NaN()); err == nil || to.Len() > 0 {
		t.Errorf("%q, %v", &to, err)
	}
}
