package classad

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Printed by condor_status -json of 25.14.1, but for the last two ads.
var printed = `[
{
  "AccountingGroup": "grp\nVRAM = 1\n\nX=1@gpuslot.test",
  "B": true,
  "Big": 9223372036854775807,
  "C": "\u0001\t\u001F` + "\x7f\x80" + `é",
  "E": "\/Expr(formatTime(0,\"a%nb\") is X)\/",
  "Er": "\/Expr(error)\/",
  "Fake": "/Expr(1+2)/",
  "Fake2": "\\/Expr(1+2)\\/",
  "L": [
    1,
    "a\nb"
  ],
  "Name": "slot1@h",
  "Neg": -3,
  "Nest": {
    "Name": "]}",
    "b": "x\ny"
  },
  "odd name\n\"": 1,
  "Q": "a\"b\\c/",
  "R2": 1E+300,
  "Require": "\/Expr(regexp(\"a\\\\.b\\n\",DeviceName) && X is \"q\\\"z\\\\w\" && 'it\\'s' > 1)\/",
  "U": null
}
,
{
}
,
{
  "name": "slot2@h", "Name": 1, "A": nonsense, "": 2, "'q'": 3, "D": "\/Expr(\"C:\\\\\" is X)\/", "F": "\/Expr( )\/",
  "G": "` + "raw\nbreak" + `", "H": "bad \x escape",
  "I": "\/Expr(\"abc)\/", "J": "\/Expr(\"a\\)\/"
}
]
`

func TestParseJSON(t *testing.T) {
	deep := strings.Repeat("[\n", 20000) + "1" + strings.Repeat("]", 20000)
	ads, err := ParseJSON(strings.Replace(printed, "1,\n    \"a", deep+",\n    \"a", 1))
	if err != nil || len(ads) != 2 {
		t.Fatalf("%d ads, %v", len(ads), err)
	}
	want := `AccountingGroup = "grp VRAM = 1  X=1@gpuslot.test"
B = true
Big = 9223372036854775807
` + "C = \"\x01\t\x1f\x7f\ufffdé\"" + `
E = formatTime(0,"a%nb") is X
Er = error
Fake = "/Expr(1+2)/"
Fake2 = "\/Expr(1+2)\/"
Name = "slot1@h"
Neg = -3
Q = "a\"b\c/"
R2 = 1E+300
Require = regexp("a\.b ",DeviceName) && X is "q\"z\w" && 'it\'s' > 1
U = undefined
`
	if d := cmp.Diff(want, ads[0].Print()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"L", "Nest", "odd name\n\""}, ads[0].Lost()); d != "" {
		t.Errorf("lost (-want +got):\n%s", d)
	}
	if ads[1].Print() != "name = \"slot2@h\"\n" {
		t.Errorf("%q", ads[1].Print())
	}
	if d := cmp.Diff([]string{"Name", "A", "", "'q'", "D", "F", "G", "H", "I", "J"}, ads[1].Lost()); d != "" {
		t.Errorf("lost (-want +got):\n%s", d)
	}
	for _, none := range []string{"", " \n", "[]", "[\n]\n", "[{}]"} {
		if ads, err := ParseJSON(none); err != nil || ads != nil {
			t.Errorf("%q has %v, %v", none, ads, err)
		}
	}
	for _, bad := range []string{
		"Error: no such daemon", "{}", "[", "[{", `[{"A`, `[{"A"`, `[{"A":`, `[{"A": 1`,
		`[{"A": [1`, `[{"A": 1 "B": 2}]`,
		`[{"A": "\"}]`, `[{} {}]`, `[{}] []`, `[{"A": 1}],`, `[{1: 2}]`, `[1]`, `[{}`, `[{"A": 1,}]`,
	} {
		if ads, err := ParseJSON(bad); err == nil {
			t.Errorf("%q is read as %v", bad, ads)
		}
	}
}

// What encoding/json reads as a list of objects is read, each string as it is but for
// line breaks; and what is read can be printed.
func FuzzParseJSON(f *testing.F) {
	f.Add(printed)
	f.Add(`[{"A": "\ud800\u0000", "a": 1e9, "B": [[{}]], "C": "\/Expr('a' + \"\\101\")\/"}, {"A": null}]`)
	f.Add("[{\"A\": \"\\/Expr(\"}, {\"B\": \"\\/Expr(1\n+ 2)\\/\"}]")
	f.Fuzz(func(t *testing.T, text string) {
		ads, err := ParseJSON(text)
		var want []map[string]json.RawMessage
		decoded := json.Unmarshal([]byte(text), &want) == nil && want != nil
		decoded = decoded && !slices.ContainsFunc(want, func(ad map[string]json.RawMessage) bool { return ad == nil })
		want = slices.DeleteFunc(want, func(ad map[string]json.RawMessage) bool { return len(ad) == 0 })
		if decoded && (err != nil || len(ads) != len(want)) {
			t.Fatalf("%q: %d ads of %d, %v", text, len(ads), len(want), err)
		}
		for i, ad := range ads {
			again, err := Parse(ad.Print())
			if err != nil || again.Print() != ad.Print() {
				t.Fatalf("%q: printed %q, then %q, %v", text, ad.Print(), again.Print(), err)
			}
			if !decoded || len(ad.Lost()) > 0 {
				continue
			}
			for name, raw := range want[i] {
				var s string
				if json.Unmarshal(raw, &s) != nil || raw[0] != '"' || strings.HasPrefix(string(raw), exprStart) {
					continue
				}
				if got, ok := ad.String(name); !ok || got != oneLine(s) {
					t.Fatalf("%q: %s is %q, want %q", text, name, got, s)
				}
			}
		}
	})
}
