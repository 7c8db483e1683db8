package process

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

var errShortStat = errors.New("process status line is cut short")

// parseStat reads "pid (comm) state ppid pgrp session …" (proc(5)). The name may hold
// spaces and parentheses, so it ends at the last one. Field 20 is the number of threads,
// field 22 the start time.
func parseStat(b []byte) (Stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return Stat{}, errors.New("process status line has no program name")
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	if err != nil || pid < 1 {
		return Stat{}, errShortStat
	}
	s := Stat{ID: ID{PID: pid}}
	field := 2
	for word := range bytes.FieldsSeq(b[end+1:]) {
		var err error
		switch field++; field {
		case 3:
			if s.State = word[0]; len(word) != 1 {
				err = errShortStat
			}
		case 4:
			s.Parent, err = strconv.Atoi(string(word))
		case 5:
			s.Group, err = strconv.Atoi(string(word))
		case 6:
			s.Session, err = strconv.Atoi(string(word))
		case 20:
			s.Threads, err = strconv.Atoi(string(word))
		case 22:
			s.Started, err = strconv.ParseUint(string(word), 10, 64)
		}
		if err != nil || s.Parent < 0 || s.Threads < 0 {
			return Stat{}, errors.New("process status line has an unknown form")
		}
		if field == 22 {
			s.Comm = string(b[open+1 : end])
			return s, nil
		}
	}
	return Stat{}, errShortStat
}

// parseUIDs finds the line "Uid:" of a process's status.
func parseUIDs(b []byte) (UIDs, error) {
	for line := range bytes.Lines(b) {
		rest, ok := bytes.CutPrefix(line, []byte("Uid:"))
		if !ok {
			continue
		}
		f := strings.Fields(string(rest))
		if len(f) != 4 {
			break
		}
		var ids [4]uint32
		for i := range ids {
			n, err := strconv.ParseUint(f[i], 10, 32)
			if err != nil {
				return UIDs{}, errNoIDs
			}
			ids[i] = uint32(n)
		}
		return UIDs{Real: ids[0], Effective: ids[1], Saved: ids[2], FileSystem: ids[3]}, nil
	}
	return UIDs{}, errNoIDs
}

var errNoIDs = errors.New("process status has no line of four accounts")

// unitCharacters are those of systemd.unit(5).
const unitCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:-_.@\\"

// unitOf is the innermost service or scope in a cgroup file; of the several
// lines of cgroup v1 systemd's own counts. A name that systemd gives to no unit is none: a job makes cgroups of
// any name, and this one is printed, also as a part of commands.
func unitOf(cgroup string) string {
	unit := ""
	for line := range strings.Lines(cgroup) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 || parts[1] != "" && parts[1] != "name=systemd" {
			continue
		}
		for dir := range strings.SplitSeq(parts[2], "/") {
			is := strings.HasSuffix(dir, ".service") || strings.HasSuffix(dir, ".scope")
			if is && strings.Trim(dir, unitCharacters) == "" {
				unit = dir
			}
		}
	}
	return unit
}
