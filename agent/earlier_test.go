package agent

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
)

// ask sends one line and returns the line that comes back.
func (s *served) ask(line string) string {
	s.t.Helper()
	c, err := net.Dial("unix", s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := c.Write([]byte(line + "\n")); err != nil {
		s.t.Fatal(err)
	}
	reply, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSuffix(reply, "\n")
}

// TestEarlierPrograms: after an update the jobs that run still have their supervisor from before, and a
// starter may run the hook from before. The lines are those that 0.1.0's gpuslot-condor sends.
func TestEarlierPrograms(t *testing.T) {
	s := serveTestAgent(t, 1)
	s.in("slot1_1", true)
	line := fmt.Sprintf(`{"v":1,"op":"prepare","job":{"id":"1.0","owner":"alice","assigned_gpus":[%q],"provisioned_vram_mib":4096,`+
		`"request_gpus":1,"request_vram_mib":4096}}`, uuid(0))
	if got := s.ask(line); !strings.HasPrefix(got, `{"v":1,"grant":{"environment":{"CUDA_`) || !strings.Contains(got, `"wall":`) {
		t.Errorf("the hook hears %s", got)
	}
	if all := s.jobs.Running(); len(all) != 1 || all[0].GPU != uuid(0) {
		t.Errorf("jobs = %+v", all)
	}
	if got := s.ask(line); !strings.HasPrefix(got, `{"v":1,"refusal":{"requeue":true,"code":374,"reason":"`) {
		t.Errorf("a second hook of the starter hears %s", got)
	}
	s.in("slot1_1", false)
	if got := s.ask(`{"v":1,"op":"start"}`); got != `{"v":1,"started":{"supervise":true}}` {
		t.Errorf("the supervisor hears of the start %s", got)
	}
	if got := s.ask(`{"v":1,"op":"end"}`); !strings.HasPrefix(got, `{"v":1,"ended":{"clients":0`) {
		t.Errorf("the supervisor hears of the end %s", got)
	}
	if got := s.ask(`{"v":1,"op":"later","more":{}}`); !strings.HasPrefix(got, `{"v":1,"error":"request: json: unknown field`) {
		t.Errorf("a later program hears %s", got)
	}
}

// TestStartedAsRead: the supervisor in C compares the reply to a start with texts.
func TestStartedAsRead(t *testing.T) {
	source, err := os.ReadFile("../cmd/gpuslot-start/supervise.c")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range regexp.MustCompile(`\{ "(\{\\"v\\":1,\\"started\\".*)", \{ [01], [01] \} \}`).FindAllSubmatch(source, -1) {
		known[strings.ReplaceAll(string(m[1]), `\"`, `"`)] = true
	}
	for _, started := range []api.Started{{}, {Supervise: true}, {Supervise: true, Reserved: true}} {
		var line strings.Builder
		if err := api.WriteReply(&line, api.Reply{Started: &started}); err != nil {
			t.Fatal(err)
		}
		if text := strings.TrimSuffix(line.String(), "}\n"); !known[text] {
			t.Errorf("it does not know %s, of %v", text, known)
		}
	}
}
