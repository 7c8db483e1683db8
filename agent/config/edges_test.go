package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestEdges: the least and the most of each key are read, and what is beyond them is refused.
func TestEdges(t *testing.T) {
	for key, c := range map[string]struct{ good, bad []string }{
		"health.interval":           {[]string{`"1s"`, `"10m"`}, []string{`"999ms"`, `"10m1ns"`, `"0"`, `1`}},
		"health.attach_within":      {[]string{`"1s"`, `"1h"`}, []string{`"999ms"`, `"1h1ns"`}},
		"budgets.grace":             {[]string{`"1s"`, `"1h"`}, []string{`"999ms"`, `"1h1ns"`}},
		"usage.interval":            {[]string{`"100ms"`, `"1m"`}, []string{`"99ms"`, `"1m1ns"`}},
		"elastic.patience":          {[]string{`"0s"`, `"24h"`}, []string{`"-1ns"`, `"24h1ns"`}},
		"elastic.stay":              {[]string{`"1s"`, `"720h"`}, []string{`"999ms"`, `"720h1ns"`}},
		"elastic.offer":             {[]string{`"1s"`, `"24h"`}, []string{`"999ms"`, `"24h1ns"`}},
		"elastic.min_whole":         {[]string{`0`, `256`}, []string{`-1`, `257`, `"1"`}},
		"elastic.max_whole":         {[]string{`1`, `256`, `"all"`}, []string{`0`, `257`, `"some"`}},
		"placement.large_after":     {[]string{`"1s"`, `"168h"`, `"never"`}, []string{`"999ms"`, `"168h1ns"`, `"ever"`}},
		"repartition.dwell":         {[]string{`"0s"`, `"24h"`}, []string{`"-1ns"`, `"24h1ns"`}},
		"repartition.reserve_after": {[]string{`"0s"`, `"720h"`}, []string{`"-1ns"`, `"720h1ns"`}},
		"repartition.reserve_for":   {[]string{`"1s"`, `"720h"`}, []string{`"999ms"`, `"720h1ns"`}},
		"growth.retries":            {[]string{`0`, `10`}, []string{`-1`, `11`, `1.5`}},
		"growth.exit_codes":         {[]string{`[]`, `[1]`, `[255]`, `[1, 255]`}, []string{`[0]`, `[256]`, `1`, `["1"]`}},
		"growth.early_percent":      {[]string{`0`, `50`, `100`}, []string{`-1`, `1`, `49`, `101`}},
		"sharing.shares":            {[]string{`1`, `60`, `"auto"`}, []string{`0`, `61`, `"all"`}},
		"sharing.whole":             {[]string{`0`, `256`}, []string{`-1`, `257`}},
		"sharing.threads":           {[]string{`0.1`, `33.3`, `100`, `"equal"`}, []string{`0`, `0.09`, `0.15`, `100.1`, `-1`, `"some"`}},
		"sharing.threads_max":       {[]string{`0.1`, `33.3`, `100`, `"policy"`}, []string{`0`, `0.09`, `0.15`, `100.1`, `"some"`}},
		"paths.run":                 {[]string{`"/run/gpuslot"`, `"/` + strings.Repeat("r", 41) + `"`}, []string{`""`, `"run"`, `"/"`, `"/run//x"`, `"/a b"`, `"/` + strings.Repeat("r", 42) + `"`}},
		"paths.state":               {[]string{`"/var/lib/gpuslot"`}, []string{`""`, `"state"`, `1`}},
		"paths.libexec":             {[]string{`"/usr/libexec/gpuslot"`, `"/azAZ09._-+@"`}, []string{`""`, `"libexec"`, "\"/`\"", `"/{"`, `"/["`, `"/:"`}},
		"paths.control_daemon":      {[]string{`"nvidia-cuda-mps-control"`, `"/usr/bin/nvidia-cuda-mps-control"`}, []string{`""`, `"bin/x"`, `"./x"`}},
		"htcondor.execute":          {[]string{`"/var/lib/condor/execute"`}, []string{`""`}},
		"htcondor.job_wrapper":      {[]string{`""`, `"/usr/bin/wrap"`}, []string{`"wrap"`}},
		"metrics.web_config":        {[]string{`""`, `"/etc/web.yml"`}, []string{`"web.yml"`}},
		"usage.dcgm_job_mapping":    {[]string{`""`, `"/run/dcgm"`}, []string{`"dcgm"`}},
		"cpu_only.cpus":             {[]string{`0`, `"0%"`, `"99.9%"`}, []string{`-1`, `"100%"`, `"100.5%"`, `"-1%"`, `"x%"`, `"1e1%"`}},
		"htcondor.manage":           {[]string{`true`, `false`}, []string{`"true"`, `1`}},
		"metrics.listen": {[]string{`""`, `"127.0.0.1:1"`, `"127.0.0.1:65535"`, `"[::1]:9847"`, `"wn-1.example.org:9847"`, `":9847"`},
			[]string{`"127.0.0.1:0"`, `"127.0.0.1:65536"`, `"127.0.0.1"`, `"a b:9847"`, `"127.0.0.1:x"`, `9847`, `"a/b:9847"`}},
	} {
		table, name, _ := strings.Cut(key, ".")
		for i, values := range [][]string{c.good, c.bad} {
			for _, v := range values {
				text := fmt.Sprintf("[%s]\n%s = %s\n", table, name, v)
				_, err := Parse("gpuslot.toml", []byte(text))
				if good := i == 0; (err == nil) != good || err != nil && !strings.Contains(err.Error(), ":2: "+key+" = ") {
					t.Errorf("%s = %s: %v, want good %t", key, v, err, good)
				} else if missing := wordsNotIn(fmt.Sprint(err), c.good); !good && v != "0.15" && len(missing) > 0 { // for 0.15 the error names a number
					t.Errorf("%s = %s: the error does not name %s: %v", key, v, missing, err)
				}
			}
		}
	}
}

// wordsNotIn are the values that are words, and which a text does not name.
func wordsNotIn(text string, values []string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool {
		return strings.Trim(v, `"abcdefghijklmnopqrstuvwxyz`) != "" || len(v) < 4 || strings.Contains(text, v)
	})
}

// TestLiterals: what stands for itself makes a glob more specific.
func TestLiterals(t *testing.T) {
	for glob, want := range map[string]int{"": 0, "wn": 2, "wn*": 2, "w?n": 2, "w[12]": 1, `w\*`: 2, `\[a]`: 3, `[\]a]b`: 1, `a\\*`: 2} {
		if got := literals(glob); got != want {
			t.Errorf("%s: %d, want %d", glob, got, want)
		}
	}
}

// TestQuoted: a text ends at its own quotation mark, or with the line.
func TestQuoted(t *testing.T) {
	for text, want := range map[string]int{`""`: 1, `"" # "`: 1, `"a"`: 2, `"\""`: 3, `'\'`: 2, `"'"`: 2, `"abc`: 4, `"`: 1, `"\`: 2} {
		if got := quoted(text); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// TestDistance: insertions, deletions and replacements.
func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "bc", 1}, {"abc", "abcd", 1}, {"abc", "ca", 3},
		{"kitten", "sitting", 3}, {"ab", "ba", 2},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
	for got, want := range map[string]string{
		"sharse": "; did you mean shares?", "SHARES": "; did you mean shares?", "share": "; did you mean shares?", "shrs": "; did you mean shares?",
		"wh": "; write one of shares, whole", "xxres": "; write one of shares, whole", "": "; write one of shares, whole",
	} {
		if text := suggest(got, []string{"whole", "shares"}); text != want {
			t.Errorf("%q: %q, want %q", got, text, want)
		}
	}
	if text := suggest("of", []string{"on"}); text != "; did you mean on?" {
		t.Errorf("of a short word: %q", text)
	}
	if text := suggest("xy", []string{"on"}); text != "; write one of on" {
		t.Errorf("nothing in common with a short word: %q", text)
	}
}

// TestNamesOfTables: an empty name and one that is no glob are refused where they stand.
func TestNamesOfTables(t *testing.T) {
	for header, says := range map[string]string{
		`[model.""]`: "the name is empty", `[model." "]`: "the name is empty", `[model."[a"]`: "the name is no glob", `[model."Tesla*"]`: "",
		`[host."[a"]`: "glob", `[host."wn*"]`: "", "[host.\"wn1\"]\nshares = 2\n[host.\"WN1\"]": "a second table for the same hosts",
	} {
		_, err := Parse("gpuslot.toml", []byte(header+"\nshares = 1\n"))
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", header, err, says)
		}
	}
}
