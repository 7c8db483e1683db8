package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestParse: each verb has its own flags, and what is wrong is said on stderr.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		verb, args string
		good       bool
	}{
		{"monitor", "-follow -startd gpu5a1e0c11 -starts file", true}, {"usage", "-follow -startd gpu5a1e0c11", true}, {"usage", "-starts", false},
		{"here", "-json", true}, {"monitor", "-json", false}, {"prepare", "-follow", false}, {"prepare", "-starts", false},
		{"prepare", "-socket /x -timeout 3s", true}, {"prepare", "-timeout 3", false},
	} {
		var said bytes.Buffer
		o, err := program{stderr: &said}.parse(c.verb, strings.Fields(c.args), time.Minute)
		if (err == nil) != c.good || (said.Len() == 0) != c.good {
			t.Errorf("%s %s: %v, %q", c.verb, c.args, err, said.String())
		}
		if c.good && (strings.Contains(c.args, "-timeout") != (o.timeout == 3*time.Second) || strings.Contains(c.args, "-json") != o.json ||
			strings.Contains(c.args, "-follow") != o.follow || strings.Contains(c.args, "-starts") != o.starts ||
			strings.Contains(c.args, "-startd ") != (o.startd == "gpu5a1e0c11") || strings.Contains(c.args, "/x") != (o.socket == "/x") ||
			strings.Contains(c.args, "file") != (len(o.args) == 1)) {
			t.Errorf("%s %s: %+v", c.verb, c.args, o)
		}
	}
}
