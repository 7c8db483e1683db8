package cuda

import (
	"bytes"
	"testing"
)

// FuzzLine: whatever a client says, the report only grows, and a client that
// has tried everything has.
func FuzzLine(f *testing.F) {
	f.Add([]byte(`{"begin":"cuInit"}` + "\n" + `{"did":{"step":"cuInit","code":0,"result":"CUDA_SUCCESS","ms":3}}` + "\n" + `{"tried":true}`))
	f.Add([]byte(`{"cuda":12040}` + "\n" + `{"devices":1,"free":1048576,"total":34089205760}` + "\nrubbish\n{}"))
	f.Fuzz(func(t *testing.T, said []byte) {
		var c Client
		for text := range bytes.Lines(said) {
			before := c.report
			tried := c.note(text)
			now := c.report
			if tried != now.Tried || before.Tried && !now.Tried || len(now.Steps) < len(before.Steps) || len(now.Steps) > len(before.Steps)+1 {
				t.Fatalf("%q made %+v of %+v", text, now, before)
			}
			if before.CUDA != nil && now.CUDA == nil || before.Devices != nil && now.Devices == nil || before.Free != nil && now.Free == nil {
				t.Fatalf("%q took something from %+v: %+v", text, before, now)
			}
			if now.In != "" && len(now.Steps) > len(before.Steps) {
				t.Fatalf("%q ended a step that goes on: %+v", text, now)
			}
		}
	})
}

func TestArguments(t *testing.T) {
	below, above, err := parse(arguments(Order{Below: 1024, Above: 4097}))
	if err != nil || below != 1024 || above != 4097 {
		t.Errorf("%s, %s, %v", below, above, err)
	}
	if below, above, err := parse([]string{"1", "1"}); err != nil || below != 1 || above != 1 {
		t.Errorf("the least: %s, %s, %v", below, above, err)
	}
	for _, bad := range [][]string{nil, {"1"}, {"1", "2", "3"}, {"0", "1"}, {"1", "-1"}, {"1", "9999999999"}, {"1G", "2G"}} {
		if _, _, err := parse(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// FuzzParse: arguments that are taken are those of an order.
func FuzzParse(f *testing.F) {
	f.Add("1024", "4096")
	f.Add("-1", "+7")
	f.Add("2147483648", "0x10")
	f.Fuzz(func(t *testing.T, one, two string) {
		below, above, err := parse([]string{one, two})
		if err != nil {
			return
		}
		againBelow, againAbove, err := parse(arguments(Order{Below: below, Above: above}))
		if err != nil || below < 1 || above < 1 || againBelow != below || againAbove != above {
			t.Errorf("%q %q: %d and %d, then %d and %d, %v", one, two, below, above, againBelow, againAbove, err)
		}
	})
}
