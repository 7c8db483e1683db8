package condor

import (
	"fmt"
	"testing"
)

// TestRequireLogic: || and && follow the tables of ClassAds, in which what is undefined
// is neither true nor false (HTCondor's manual, "ClassAd Evaluation Semantics").
func TestRequireLogic(t *testing.T) {
	for _, c := range []struct{ a, b, or, and string }{
		{"true", "true", "true", "true"},
		{"true", "false", "true", "false"},
		{"false", "false", "false", "false"},
		{"true", "undefined", "true", "undefined"},
		{"false", "undefined", "undefined", "false"},
		{"undefined", "undefined", "undefined", "undefined"},
	} {
		for _, sides := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			for op, want := range map[string]string{"||": c.or, "&&": c.and} {
				expr := fmt.Sprintf("(%s %s %s) =?= %s", sides[0], op, sides[1], want)
				is, known := evalRequire(expr, func(string) value { return value{} })
				if !is || !known {
					t.Errorf("%s is %t, known %t", expr, is, known)
				}
			}
		}
	}
}

// TestRequireComparisons: both sides of each bound.
func TestRequireComparisons(t *testing.T) {
	for expr, want := range map[string]bool{
		"1 < 2": true, "2 < 2": false, "2 <= 2": true, "3 <= 2": false,
		"2 > 1": true, "2 > 2": false, "2 >= 2": true, "1 >= 2": false,
		"2 == 2": true, "2 != 2": false, "1 != 2": true,
		`"a" == "A"`: true, `"a" =?= "A"`: false, `"a" < "b"`: true,
	} {
		if is, known := evalRequire(expr, func(string) value { return value{} }); is != want || !known {
			t.Errorf("%s is %t, known %t", expr, is, known)
		}
	}
}
