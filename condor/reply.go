package condor

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gpuslot/gpuslot/condor/classad"
)

// HookReply is what a PREPARE_JOB hook prints. With a Code the job does not
// start: 1-299 hold it, 300 and above requeue it, and Message goes to its
// event log. Without, Environment replaces the job's.
type HookReply struct {
	Environment Environment
	Code        int
	Message     string
}

// maxMessage bounds what one refusal may add to the event log and the job ad.
const maxMessage = 600

// Print is the reply in the syntax of the hook's standard output.
func (r HookReply) Print() []byte {
	var ad classad.Ad
	if r.Code == 0 {
		ad.SetString("Environment", r.Environment.String())
		return []byte(ad.Print())
	}
	ad.SetInt("HookStatusCode", int64(r.Code))
	ad.SetString("HookStatusMessage", Sentence(r.Message))
	return []byte(ad.Print())
}

// Sentence makes any text fit for an event log: one line of printable
// characters, not longer than a few lines of a terminal.
func Sentence(s string) string {
	var b strings.Builder
	blank := false
	for _, r := range s {
		if r <= ' ' || r == utf8.RuneError || !unicode.IsPrint(r) {
			blank = b.Len() > 0
			continue
		}
		if b.Len() > maxMessage {
			return b.String() + "…"
		}
		if blank {
			b.WriteByte(' ')
			blank = false
		}
		b.WriteRune(r)
	}
	return b.String()
}
