package mps

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpuslot/gpuslot/test/driver"
)

func TestLinesSince(t *testing.T) {
	since := time.Date(2026, 2, 6, 9, 34, 36, 380_900_000, time.UTC)
	for name, tt := range map[string]struct {
		text string
		cut  bool
		want []string
	}{
		"nothing":       {"", false, nil},
		"at that time":  {"[2026-02-06 09:34:36.379 Control   1] a\n[2026-02-06 09:34:36.380 Control   1] b\r\n", false, []string{"[2026-02-06 09:34:36.380 Control   1] b"}},
		"no line end":   {"[2026-02-06 09:34:37.000 Other 1] a", false, []string{"[2026-02-06 09:34:37.000 Other 1] a"}},
		"without times": {"early\n[2026-02-06 09:34:37.000 Other 1] a\nlate\n", false, []string{"[2026-02-06 09:34:37.000 Other 1] a", "late"}},
		"cut":           {"[2026-02-06 09:34:37.000 Other 1] a\n[2026-02-06 09:34:37.000 Other 1] b\n", true, []string{"[2026-02-06 09:34:37.000 Other 1] b"}},
		"a clock put back": {"[2026-02-06 09:34:37.000 Other 1] a\n[2026-02-06 09:33:00.000 Other 1] b\n", false,
			[]string{"[2026-02-06 09:34:37.000 Other 1] a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := linesSince(tt.text, tt.cut, since, time.UTC); !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// FuzzLinesSince: what is returned stands in the text, in its order, and a later
// time returns no more.
func FuzzLinesSince(f *testing.F) {
	f.Add("[2026-02-06 09:34:36.380 Control   1] a\nb\n", int64(1770370476), true)
	f.Add("[2026-02-06 09:34:36.380 Control   1] a\r\n[", int64(0), false)
	f.Fuzz(func(t *testing.T, text string, since int64, cut bool) {
		at := time.Unix(since%1e10, 0)
		early := linesSince(text, cut, at, time.UTC)
		rest := text
		for _, line := range early {
			i := strings.Index(rest, line)
			if i < 0 {
				t.Fatalf("%q is not in the rest of %q", line, text)
			}
			rest = rest[i+len(line):]
		}
		if late := linesSince(text, cut, at.Add(time.Hour), time.UTC); len(late) > len(early) {
			t.Fatalf("%d lines of %q from %v on, %d an hour later", len(early), text, at, len(late))
		}
	})
}

// TestLogOfDaemon: what happened after a moment, and nothing before it.
func TestLogOfDaemon(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		s := daemonsOf(r)
		if lines, err := s.Log(t.Context(), uuid0, time.Time{}); err != nil || len(lines) != 0 {
			t.Fatalf("before the first start: %q, %v", lines, err)
		}
		d := started(t, r)
		exchange(t, d, "early")
		find := func(since time.Time, word string) func() bool {
			return func() bool {
				lines, err := s.Log(t.Context(), uuid0, since)
				if err != nil {
					t.Fatal(err)
				}
				return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, word) })
			}
		}
		eventually(t, "the log tells of the early command", find(time.Time{}, "early"))
		time.Sleep(2 * time.Millisecond) // the stamps' unit is one
		middle := time.Now()
		exchange(t, d, "late")
		eventually(t, "the log tells of the late command", find(middle, "late"))
		if find(middle, "early")() {
			t.Error("the early command is told, too")
		}
	})
}

// TestLogTellsWhyNoServerStarts: the real server of each driver, on a machine
// without a GPU.
func TestLogTellsWhyNoServerStarts(t *testing.T) {
	for _, branch := range driver.Branches() {
		t.Run(branch, func(t *testing.T) {
			dir := driver.Dir(t, branch)
			server := publicCopy(t, driver.Server(dir))
			program := writeProgram(t, filepath.Join(tempDir(t), Program),
				"#!/bin/sh\nLD_LIBRARY_PATH="+driver.Libraries(dir)+" exec "+publicCopy(t, driver.Control(dir))+" \"$@\"\n")
			r := runnerWith(t, program)
			r.ServerPath = filepath.Dir(server)
			d := started(t, r)
			if err := d.StartServer(t.Context(), uint32(os.Geteuid())); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			var events []Event
			eventually(t, "the server ends", func() bool {
				lines, err := r.Log(t.Context(), uuid0, time.Time{})
				if err != nil {
					t.Fatal(err)
				}
				events = nil
				for _, l := range lines {
					if e, ok := ParseEvent(l); ok {
						events = append(events, e)
					}
				}
				return slices.ContainsFunc(events, func(e Event) bool { return e.Kind == ServerExited })
			})
			t.Logf("%s: told after %v", branch, time.Since(begin))
			if !slices.ContainsFunc(events, func(e Event) bool { return e.Kind == ServerBroken && e.Reason == "no CUDA-capable device is detected" }) {
				t.Errorf("events %+v", events)
			}
			if all, err := d.Servers(t.Context()); err != nil || len(all) != 0 {
				t.Errorf("servers %+v, %v", all, err)
			}
		})
	}
}

// TestTrimLog: a daemon that runs goes on writing into the emptied file.
func TestTrimLog(t *testing.T) {
	onEachDriver(t, func(t *testing.T, r Processes) {
		d := started(t, r)
		s := daemonsOf(r)
		name := r.logFile(uuid0)
		written := func() bool { st, err := os.Stat(name); return err == nil && st.Size() > 0 }
		eventually(t, "the daemon writes", written)
		if err := s.TrimLog(uuid0); err != nil {
			t.Fatal(err)
		}
		if !written() {
			t.Fatal("a small log was emptied")
		}
		noise := bytes.Repeat([]byte(fmt.Sprintf("%79d\n", 0)), maxLog/80)
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = f.Write(noise)
			_ = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.TrimLog(uuid0); err != nil {
			t.Fatal(err)
		}
		exchange(t, d, "afterwards")
		eventually(t, "the log begins again", func() bool {
			b, err := os.ReadFile(name)
			return err == nil && len(b) < 10_000 && bytes.Contains(b, []byte("afterwards")) && b[0] == '['
		})
		if old, err := os.Stat(name + ".1"); err != nil || old.Size() <= int64(len(noise)) {
			t.Errorf("the copy: %v, %v", old, err)
		}
		if err := os.Remove(name + ".1"); err != nil {
			t.Fatal(err)
		}
		// A copy that cannot be had.
		if err := os.Mkdir(name+".1", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, maxLog+1); err != nil {
			t.Fatal(err)
		}
		if err := s.TrimLog(uuid0); err != nil {
			t.Error(err)
		}
		if st, err := os.Stat(name); err != nil || st.Size() > 10_000 {
			t.Errorf("the log has %v, %v", st, err)
		}
	})
}

// TestTrimLogFails: a log that cannot be looked at is an error, one that is not there is none.
func TestTrimLogFails(t *testing.T) {
	p := Processes{Logs: tempDir(t)}
	if err := p.TrimLog(uuid0); err != nil {
		t.Error(err)
	}
	p.Logs = filepath.Join(p.Logs, "file")
	if err := os.WriteFile(p.Logs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.TrimLog(uuid0); err == nil {
		t.Error("a file is taken for a directory")
	}
}
