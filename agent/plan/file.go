package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gpuslot/gpuslot/gpu"
)

// maxPlanBytes is far above any real plan: 256 GPUs take about 150 kB.
const maxPlanBytes = 4 << 20

// Encode prints the plan as indented JSON with a final newline, byte-equal for
// equal plans.
func (p Plan) Encode() ([]byte, error) {
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	return append(b, '\n'), nil
}

// Read reads a plan file. A missing one matches fs.ErrNotExist.
func Read(path string) (Plan, error) {
	f, err := os.Open(path)
	if err != nil {
		return Plan{}, fmt.Errorf("read plan: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxPlanBytes+1))
	if err != nil {
		return Plan{}, fmt.Errorf("read plan: %w", err)
	}
	p, err := Decode(b)
	if err != nil {
		return Plan{}, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// Decode reads what Encode printed, of this schema only.
func Decode(b []byte) (Plan, error) {
	if len(b) > maxPlanBytes {
		return Plan{}, fmt.Errorf("plan is larger than %d bytes", maxPlanBytes)
	}
	if err := checkSchema(b); err != nil {
		return Plan{}, err
	}
	var p Plan
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return Plan{}, fmt.Errorf("plan: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Plan{}, fmt.Errorf("plan: text after the closing brace at byte %d", d.InputOffset())
	}
	return p, p.check()
}

// check finds GPUs that Build cannot have planned.
func (p Plan) check() error {
	seen := map[gpu.UUID]bool{}
	for i, g := range p.GPUs {
		switch {
		case g.UUID == "" || g.PCI == "" || g.Capability.Major < 1 || g.Shares < 1 || g.Pool < 1:
			return fmt.Errorf("plan: gpus[%d] is not complete; restart the agent to have it written again", i)
		case seen[g.UUID]:
			return fmt.Errorf("plan: gpus[%d] has the UUID of another one, %s", i, g.UUID)
		}
		seen[g.UUID] = true
	}
	return nil
}

// checkSchema comes before the fields: those of another schema would only
// give misleading errors.
func checkSchema(b []byte) error {
	var head struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return fmt.Errorf("not a plan file: %w", err)
	}
	if head.Schema == Schema {
		return nil
	}
	family, own := leadingSchema(Schema)
	if name, version := leadingSchema(head.Schema); name == family && version > own {
		return fmt.Errorf("made by a newer gpuslot: its schema is %q, this one reads %q; use the gpuslot that belongs to "+
			"the running agent", head.Schema, Schema)
	}
	return fmt.Errorf("not a plan file: its schema is %.40q, not %q", head.Schema, Schema)
}

func leadingSchema(s string) (family string, version int) {
	family, v, _ := strings.Cut(s, "/")
	return family, number(v)
}
