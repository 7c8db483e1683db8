package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpuslot/gpuslot/agent/api"
	"github.com/gpuslot/gpuslot/agent/config"
	"github.com/gpuslot/gpuslot/agent/history"
)

// veil takes the names of users, groups and jobs out of what a report says: each
// name becomes another that is the same throughout the report.
type veil struct {
	// lifted leaves all as it is.
	lifted   bool
	names    map[string]string
	counts   map[string]int
	ordinary map[string]bool // words of gpuslot's own; users choose the names of groups
}

func newVeil(lifted bool) *veil {
	return &veil{lifted: lifted, names: map[string]string{}, counts: map[string]int{}, ordinary: map[string]bool{}}
}

// The kinds of names.
const (
	kindUser  = "user"
	kindGroup = "group"
	kindJob   = "job"
)

// notNames are words that stand where names do, and tell nothing.
var notNames = map[string]bool{"": true, "-": true, "root": true, "nobody": true, "none": true, "condor": true,
	"operator": true, "agent": true, "node": true, "unknown": true}

// hide is the name that stands for one.
func (v *veil) hide(kind, name string) string {
	if notNames[name] || kind == kindGroup && v.ordinary[name] {
		return name
	}
	if v.names[name] == "" {
		v.counts[kind]++
		v.names[name] = kind + "-" + strconv.Itoa(v.counts[kind])
	}
	return v.names[name]
}

// learn finds the names that the node knows: of running jobs, of ended ones, of
// the machine's own accounts.
func (v *veil) learn(paths config.Paths, s api.Status) {
	if v.lifted {
		return
	}
	for _, w := range word.FindAllString(fmt.Sprint(config.Keys()), -1) {
		v.ordinary[w] = true
	}
	for _, g := range s.GPUs {
		for _, j := range g.Jobs {
			v.hide(kindUser, j.Account)
			v.hide(kindJob, j.ID)
		}
	}
	for _, startd := range s.Startds {
		v.learnJobs(startd.Jobs)
	}
	for _, change := range s.Changes {
		v.learnJobs(change.Jobs)
	}
	records, _ := history.Records(paths, time.Time{}) // what cannot be read is in no file of the report either
	for _, r := range records {
		v.hide(kindUser, r.Owner)
		v.hide(kindJob, r.Job)
		v.hide(kindGroup, r.Group)
		v.hide(kindGroup, r.VO)
	}
	events, _ := history.Events(paths)
	for _, e := range events {
		v.hide(kindJob, e.Job)
	}
	accounts, _ := os.ReadFile("/etc/passwd")
	for line := range strings.Lines(string(accounts)) {
		fields := append(strings.Split(line, ":"), "", "")
		if uid, err := strconv.Atoi(fields[2]); err == nil && uid >= firstUser {
			v.hide(kindUser, fields[0])
		}
	}
}

// firstUser is the least uid of a person's account (login.defs, UID_MIN).
const firstUser = 1000

func (v *veil) learnJobs(jobs []api.ChangeJob) {
	for _, j := range jobs {
		v.hide(kindUser, j.Owner)
		v.hide(kindJob, j.ID)
	}
}

// file is a file of the report as it may be given away.
func (v *veil) file(name string, text []byte) ([]byte, error) {
	switch path.Ext(name) {
	case ".json":
		return v.json(text, "  ")
	case ".jsonl":
		var b bytes.Buffer
		for line := range bytes.Lines(text) {
			one, err := v.json(line, "")
			if err != nil {
				return nil, err
			}
			b.Write(one)
		}
		return b.Bytes(), nil
	}
	return []byte(v.text(string(withoutSecrets(text)))), nil
}

func (v *veil) json(text []byte, indent string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("it is no JSON, so names cannot be taken out of it: %w", err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", indent)
	e.SetEscapeHTML(false)
	err := e.Encode(v.value("", value))
	return b.Bytes(), err
}

// kindsOfKeys says what the text of a JSON key is a name of.
var kindsOfKeys = map[string]string{"job": kindJob, "id": kindJob, "account": kindUser, "user": kindUser,
	"tenant": kindUser}

func (v *veil) value(key string, value any) any {
	switch x := value.(type) {
	case map[string]any:
		for name, inner := range x {
			if name == "uid" && !v.lifted && fmt.Sprint(inner) != "0" {
				delete(x, name)
				continue
			}
			x[name] = v.value(name, inner)
		}
	case []any:
		for i, inner := range x {
			x[i] = v.value(key, inner)
		}
	case string:
		if kind := kindsOfKeys[key]; kind != "" && !v.lifted {
			return v.hide(kind, x)
		}
		return v.text(string(withoutSecrets([]byte(x))))
	}
	return value
}

var (
	// said are the places in sentences and log lines where a name stands.
	said = regexp.MustCompile(`\b((?i:owner|account|user|tenant)(?:=|: ?)"?|job of |account )([A-Za-z_][\w.-]*[\w-])`)
	// saidJob is where a job's id stands, saidUID an account's number.
	saidJob = regexp.MustCompile(`\b((?:[Jj]ob)(?:=| )"?)(\d+\.\d+)\b`)
	saidUID = regexp.MustCompile(`\b((?i:user|uid)[ =:]+"?)([1-9]\d*)\b`)
	// word is what may be a name that is known.
	word = regexp.MustCompile(`\w+(?:[.-]\w+)*`)
	part = regexp.MustCompile(`\w+`)
)

// text takes names out of lines.
func (v *veil) text(s string) string {
	if v.lifted {
		return s
	}
	s = said.ReplaceAllStringFunc(s, func(m string) string {
		p := said.FindStringSubmatch(m)
		return p[1] + v.hide(kindUser, p[2])
	})
	s = saidJob.ReplaceAllStringFunc(s, func(m string) string {
		p := saidJob.FindStringSubmatch(m)
		return p[1] + v.hide(kindJob, p[2])
	})
	s = saidUID.ReplaceAllString(s, "${1}(left out)")
	return word.ReplaceAllStringFunc(s, func(w string) string {
		if other := v.names[w]; other != "" {
			return other
		}
		return part.ReplaceAllStringFunc(w, func(w string) string {
			if other := v.names[w]; other != "" {
				return other
			}
			return w
		})
	})
}

var (
	// secret is a setting whose name promises a secret, to the end of its line.
	secret = regexp.MustCompile(
		`(?im)((?:pass(?:word|wd|phrase)?|secret|token|credential|(?:api|access|private)[_-]?key|` +
			`authorization)[\w.-]*"?[ \t]*[=:][ \t]*|_pat"?[ \t]*[=:][ \t]*)[^\s].*$`,
	)
	// environment is a setting of HTCondor that holds variables of jobs; variable is one of them.
	environment = regexp.MustCompile(`(?im)^[\w.]*(?:ENVIRONMENT|_ARGS)[\w.]*[ \t]*=.*$`)
	variable    = regexp.MustCompile(`(\w=)('[^']*'|[^\s;"']+)`)
	// Secrets that are known by their own form (RFC 6750, RFC 7519, RFC 7468, AWS, GitHub).
	bearer = regexp.MustCompile(`(?i)(\bbearer[ \t]+)[\w.~+/=-]{8,}`)
	formed = regexp.MustCompile(
		`\b(?:(?:AKIA|ASIA)[0-9A-Z]{16}|gh[pousr]_\w{20,}|github_pat_\w{20,}|eyJ[\w-]{8,}\.[\w-]+\.[\w-]*)`,
	)
	pem      = regexp.MustCompile(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\z)`)
	userInfo = regexp.MustCompile(`(://)[^/@\s"]+@`)
)

// withoutSecrets keeps the lines, so that errors still name the right ones; of a
// private key in PEM it keeps the first and the last.
func withoutSecrets(text []byte) []byte {
	text = environment.ReplaceAllFunc(text, func(line []byte) []byte {
		name, value, _ := bytes.Cut(line, []byte("="))
		return slices.Concat(name, []byte("="), variable.ReplaceAll(value, []byte("${1}(left out)")))
	})
	text = pem.ReplaceAll(text, []byte("${1}\n(left out)\n${2}"))
	text = secret.ReplaceAll(text, []byte(`${1}"(left out)"`))
	text = bearer.ReplaceAll(text, []byte("${1}(left out)"))
	text = formed.ReplaceAll(text, []byte("(left out)"))
	return userInfo.ReplaceAll(text, []byte("${1}(left out)@"))
}
