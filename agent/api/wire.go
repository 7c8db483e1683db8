package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// maxReply bounds a reply in bytes: a status of 16 GPUs with 48 jobs each
// takes about 200 kB.
const maxReply = 4 << 20

// Errors of ReadRequest that a server answers differently from a mere mistake.
var (
	// ErrTooLong: no line end within MaxRequest bytes.
	ErrTooLong = fmt.Errorf("request is longer than %d bytes", MaxRequest)
	// ErrSilent: the caller hung up, or ran out of time, before a whole line.
	ErrSilent = errors.New("request ends before its line does")
)

// ReadRequest reads one request: one line of at most MaxRequest bytes with one
// JSON object, known fields only. The caller sets the connection's deadline.
// It checks the version first, so that a newer program is told of versions
// and not of a field that it may rightly send. Errors are sentences for the
// reply's Error.
func ReadRequest(r io.Reader) (Request, error) {
	line, err := readLine(r, MaxRequest)
	if err != nil {
		return Request{}, err
	}
	var req Request
	wrong := strict(line, &req)
	v := struct {
		Version int `json:"v"`
	}{req.Version}
	if wrong != nil { // a request of most jobs is decoded once
		if err := json.Unmarshal(line, &v); err != nil {
			return Request{}, fmt.Errorf("request is not a JSON object: %w", err)
		}
	}
	switch {
	case v.Version != Version:
		return Request{}, fmt.Errorf("request has protocol version %d, gpuslotd speaks %d; install the same version of both",
			v.Version, Version)
	case wrong != nil:
		return Request{}, fmt.Errorf("request: %w", wrong)
	}
	return req, req.check()
}

var ops = []Op{OpPrepare, OpHook, OpMonitor, OpStatus, OpStart, OpEnd, OpVerify, OpRestart, OpClose, OpOpen, OpNode,
	OpUsage, OpHere}

// check refuses what no operation means.
func (r Request) check() error {
	switch {
	case r.Op == OpPrepare && r.Job == nil:
		return errors.New("request prepare has no job")
	case r.Op == OpHook && r.Hook == nil:
		return errors.New("request hook has no job ad")
	case r.Op != OpPrepare && r.Job != nil, r.Op != OpHook && r.Hook != nil:
		return fmt.Errorf("request %s has no place for a job", foreign.Clip(string(r.Op)))
	case (r.Op == OpRestart || r.Op == OpClose || r.Op == OpOpen) && r.GPU == "":
		return fmt.Errorf("request %s names no GPU", r.Op)
	case !slices.Contains(ops, r.Op):
		return fmt.Errorf("request has the unknown op %q", foreign.Clip(string(r.Op)))
	}
	return nil
}

// WriteReply writes one reply as one line, with the version set. The caller
// sets the connection's deadline.
func WriteReply(w io.Writer, reply Reply) error {
	reply.Version = Version
	return writeLine(w, reply)
}

// ReplyLine is what WriteReply writes.
func ReplyLine(reply Reply) ([]byte, error) {
	reply.Version = Version
	return jsonLine(reply)
}

// readReply decodes the reply to an op. encoding/json prepares itself for all
// types within a type when it first meets it: for a Reply half a millisecond,
// spent on what a hook and a supervisor, which every job waits for, never have.
func readReply(op Op, line []byte) (reply Reply, err error) {
	if op != OpPrepare && op != OpStart && op != OpEnd {
		return reply, json.Unmarshal(line, &reply)
	}
	var few struct {
		Version int      `json:"v"`
		Error   string   `json:"error"`
		Grant   *Grant   `json:"grant"`
		Refusal *Refusal `json:"refusal"`
		Started *Started `json:"started"`
		Ended   *Ended   `json:"ended"`
	}
	err = json.Unmarshal(line, &few)
	return Reply{Version: few.Version, Error: few.Error, Grant: few.Grant, Refusal: few.Refusal, Started: few.Started,
		Ended: few.Ended}, err
}

// readLine returns one line without its end. What follows the line is not
// read beyond the buffer and not looked at: the connection ends with the reply.
func readLine(r io.Reader, most int) ([]byte, error) {
	line := make([]byte, 0, 1024)
	for {
		if len(line) == cap(line) {
			line = slices.Grow(line, max(len(line), 15<<10)) // most jobs' ads need one read more
		}
		n, err := r.Read(line[len(line):min(cap(line), most+1)])
		end := bytes.IndexByte(line[len(line):len(line)+n], '\n')
		if end >= 0 {
			return line[:len(line)+end], nil
		}
		line = line[:len(line)+n]
		switch {
		case len(line) > most:
			return nil, ErrTooLong
		case errors.Is(err, io.EOF):
			return nil, ErrSilent
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrSilent, err)
		}
	}
}

// strict decodes one JSON value with known fields and nothing after it.
func strict(line []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text after the JSON object")
	}
	return nil
}

func writeLine(w io.Writer, v any) error {
	b, err := jsonLine(v)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// jsonLine needs no care for line ends inside: JSON escapes them.
func jsonLine(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // a socket is no page: a "<" stays one byte, and not six
	err := e.Encode(v)
	return b.Bytes(), err
}
