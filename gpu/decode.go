package gpu

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gpuslot/gpuslot/gpu/foreign"
)

// maxInventoryBytes is far above any real node: 16 GPUs take about 8 kB.
const maxInventoryBytes = 4 << 20

// recordAgain ends the errors of a file that no person wrote.
const recordAgain = "; record it again with: gpuslot inventory --json"

// DecodeInventory reads a recorded inventory strictly: unknown or repeated
// fields, trailing text, duplicate UUIDs or bus addresses, and impossible
// sizes are errors. An inventory with an empty list of GPUs is valid: such a
// node offers none.
func DecodeInventory(r io.Reader) (Inventory, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxInventoryBytes+1))
	if err != nil {
		return Inventory{}, fmt.Errorf("inventory: %w", err)
	}
	if len(b) > maxInventoryBytes {
		return Inventory{}, fmt.Errorf("inventory is larger than %d bytes; is it the right file?", maxInventoryBytes)
	}
	if err := repeatedField(b); err != nil {
		return Inventory{}, err
	}
	var inv Inventory
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&inv); err != nil {
		return Inventory{}, jsonError(b, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Inventory{}, fmt.Errorf("inventory: line %d: text after the closing brace", lineAt(b, d.InputOffset()))
	}
	if inv.GPUs == nil {
		return Inventory{}, errors.New(`inventory has no list of gpus; a node without any has "gpus": []` + recordAgain)
	}
	if err := inv.Check(); err != nil {
		return Inventory{}, err
	}
	inv.Sort()
	return inv, nil
}

// jsonError tells a file that is cut off or no JSON at all from one whose
// values are wrong.
func jsonError(b []byte, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("inventory ends too early, after %d bytes"+recordAgain, len(b))
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("inventory: line %d: not JSON: %w"+recordAgain, lineAt(b, syntax.Offset), err)
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		field := cmp.Or(wrong.Field, "the whole file")
		return fmt.Errorf("inventory: line %d: %s cannot be a JSON %s", lineAt(b, wrong.Offset), field, wrong.Value)
	}
	return fmt.Errorf("inventory: %w", err)
}

// lineAt counts lines from 1.
func lineAt(b []byte, offset int64) int {
	return 1 + bytes.Count(b[:min(offset, int64(len(b)))], []byte("\n"))
}

// repeatedField finds a field that stands twice in one object: encoding/json
// would silently mix the two. Errors of syntax are left to the decoder.
func repeatedField(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	var open []map[string]bool // the fields seen; nil for an array
	isName := false
	for token, err := d.Token(); err == nil; token, err = d.Token() {
		bracket, isBracket := token.(json.Delim)
		isName = isName && !isBracket
		if isBracket {
			open = nest(open, bracket)
		}
		if isName {
			name := strings.ToLower(fmt.Sprint(token)) // encoding/json matches in any case
			fields := open[len(open)-1]
			if fields[name] {
				return fmt.Errorf("inventory: line %d: the field %q stands twice in one object; keep one",
					lineAt(b, d.InputOffset()), foreign.Clip(name))
			}
			fields[name] = true
		}
		isName = !isName && len(open) > 0 && open[len(open)-1] != nil
	}
	return nil
}

// nest follows a bracket.
func nest(open []map[string]bool, bracket json.Delim) []map[string]bool {
	switch bracket {
	case '{':
		return append(open, map[string]bool{})
	case '[':
		return append(open, nil)
	}
	return open[:len(open)-1]
}

// ReadInventory reads the file that "gpuslot inventory --json" wrote.
func ReadInventory(path string) (Inventory, error) {
	f, err := os.Open(path)
	if err != nil {
		return Inventory{}, fmt.Errorf("read inventory: %w", err)
	}
	defer f.Close()
	inv, err := DecodeInventory(f)
	if err != nil {
		return inv, fmt.Errorf("%s: %w", path, err)
	}
	return inv, nil
}
