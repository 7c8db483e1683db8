package classad

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAccessors(t *testing.T) {
	ad, err := Parse(strings.Join([]string{
		`# a comment`,
		`Name = "slot1@node"`,
		`  VRAM=4000`,
		`LoadAvg	=	0.5`,
		`Gone = undefined`,
		`Requirements = (TARGET.GPUs >= RequestGPUs) && (Arch == "X86_64")`,
		`AssignedGPUs = "GPU-a, GPU-b,,GPU-a"`,
		`Empty = ""`,
		`Path = "C:\dir\"`,
		`Said = "a \"b\" c"`,
		`'odd name' = 1`,
		`Hex = 0x10`,
		`Big = 1E3`,
		`NotANumber = real("NaN")`,
		``,
	}, "\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	type got struct {
		Value any
		OK    bool
	}
	of := func(v any, ok bool) got { return got{v, ok} }
	str := func(name string) got { s, ok := ad.String(name); return of(s, ok) }
	num := func(name string) got { n, ok := ad.Int(name); return of(n, ok) }
	real := func(name string) got { f, ok := ad.Float(name); return of(f, ok) }
	list := func(name string) got { l, ok := ad.StringList(name); return of(l, ok) }
	for name, c := range map[string]struct{ got, want got }{
		"string":              {str("name"), of("slot1@node", true)},
		"trailing backslash":  {str("Path"), of(`C:\dir\`, true)},
		"quotes":              {str("Said"), of(`a "b" c`, true)},
		"empty string":        {str("Empty"), of("", true)},
		"absent string":       {str("Nope"), of("", false)},
		"undefined string":    {str("Gone"), of("", false)},
		"an expression":       {str("Requirements"), of("", false)},
		"a number":            {str("VRAM"), of("", false)},
		"int":                 {num("vram"), of(int64(4000), true)},
		"real is no int":      {num("LoadAvg"), of(int64(0), false)},
		"string is no int":    {num("Name"), of(int64(0), false)},
		"real":                {real("LoadAvg"), of(0.5, true)},
		"int is a real":       {real("VRAM"), of(4000.0, true)},
		"exponent":            {real("Big"), of(1000.0, true)},
		"hex is none of ours": {real("Hex"), of(0.0, false)},
		"NaN":                 {real("NotANumber"), of(0.0, false)},
		"absent real":         {real("Nope"), of(0.0, false)},
		"list":                {list("AssignedGPUs"), of([]string{"GPU-a", "GPU-b", "GPU-a"}, true)},
		"odd name":            {num("'odd name'"), of(int64(1), true)},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if l, ok := ad.StringList("Empty"); len(l) != 0 || !ok {
		t.Errorf("an empty string is the list %q, %v", l, ok)
	}
	if ad.Has("Gone") || ad.Has("Nope") || !ad.Has("Requirements") {
		t.Error("Has takes undefined or absent for a value, or an expression for none")
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no name":        {"= 3", "does not start with"},
		"no equals sign": {"Name 3", "has no ="},
		"no value":       {"Name =  ", "has no value"},
		"a comparison":   {"Name == 3", "has no value"},
		"half a string":  {`Environment = "A=1`, "has no end on its line"},
		// The value's end is a quote that the text escapes: it goes on.
		"an open string":          {`Environment = "A=\" `, "has no end on its line"},
		"a name twice":            {"Owner = \"a\"\nowner = \"b\"", "line 2: owner is there twice"},
		"a value out of its line": {"Environment = \"A='x\nOwner = \"root\"\ny'\"", "line 1"},
	} {
		_, err := Parse(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q in it", name, err, c.want)
		}
	}
}

func TestSet(t *testing.T) {
	var ad Ad
	ad.SetString("Message", "two\nlines \"quoted\"\x00")
	ad.SetInt("Code", 71)
	ad.SetBool("Accept", false)
	ad.SetUndefined("Tenant")
	ad.SetExpr("code", "72\n\n")
	want := "Message = \"two lines \\\"quoted\\\" \"\nCode = 72\nAccept = false\nTenant = undefined\n"
	if diff := cmp.Diff(want, ad.Print()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What Parse accepts, Print prints so that Parse reads the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"A = 1\nB = \"x \\\"y\\\" z\"\n", "A = \"C:\\\"\n", "Requirements = (A =?= B) && (C == \"d\")\n",
		"'a b' = { 1, 2 }\n# c\n\nX = [ y = 1; ]", "A = \"\\\\\"\"", "A=\"\"\r\n", "a.b = -1.5E3", "A = \"x\" \v\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ad, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(ad.Print())
		if err != nil {
			t.Fatalf("%q is printed as %q, which is not accepted: %v", text, ad.Print(), err)
		}
		if again.Print() != ad.Print() || again.Len() != ad.Len() {
			t.Fatalf("%q: printed %q, then %q", text, ad.Print(), again.Print())
		}
	})
}

// TestQuoteWithinALine: what follows a text stays outside of it.
func TestQuoteWithinALine(t *testing.T) {
	for s, want := range map[string]string{`a\`: `"a\ "`, `a\b`: `"a\b"`, `a"`: `"a\""`, "\\\n": `"\ "`} {
		if got := Quote(s); got != want {
			t.Errorf("%q is %s, want %s", s, got, want)
		}
	}
}

// Any text can be carried; only line breaks and NUL become blanks, and no text
// makes a second attribute.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", `a"b`, `ends in \`, `\"`, "line\nOwner = \"root\"", "\x00\xff", `C:\x`, "tab\t'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var ad Ad
		ad.SetString("S", s)
		ad.SetInt("End", 1)
		again, err := Parse(ad.Print())
		if err != nil || again.Len() != 2 {
			t.Fatalf("%q is printed as %q: %v", s, ad.Print(), err)
		}
		got, ok := again.String("S")
		want := strings.NewReplacer("\n", " ", "\r", " ", "\x00", " ").Replace(s)
		if !ok || got != want {
			t.Fatalf("%q comes back as %q", s, got)
		}
		// Within a line no text reaches beyond its own quotes.
		if n, ok := literalLen(Quote(s) + ` && "x"`); !ok || n != len(Quote(s)) {
			t.Fatalf("%q is %s within a line", s, Quote(s))
		}
	})
}
