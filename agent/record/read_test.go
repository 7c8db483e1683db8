package record

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// TestUncompressed: text is read as it is, what looks compressed is unpacked, and what cannot
// be read is an error.
func TestUncompressed(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte("records\n")); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"": "", "r": "r", "records\n": "records\n", packed.String(): "records\n"} {
		r, err := Uncompressed(bytes.NewReader([]byte(text)))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got, err := io.ReadAll(r); string(got) != want || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := Uncompressed(bytes.NewReader([]byte("\x1f\x8brubbish"))); err == nil {
		t.Error("rubbish is unpacked")
	}
	broken := errors.New("broken")
	if _, err := Uncompressed(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
