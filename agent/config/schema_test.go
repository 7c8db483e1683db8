package config

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

const schemaFile = "../../etc/gpuslot.schema.json"

// object is a JSON Schema, draft 7: what editors with taplo understand.
type object = map[string]any

// TestSchemaFile holds etc/gpuslot.schema.json to the keys of the code.
func TestSchemaFile(t *testing.T) {
	text, err := json.MarshalIndent(fileSchema(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, schemaFile, string(text)+"\n")
}

// TestSchemaAccepts: what the code accepts no editor marks as wrong, and the
// schema is not one that accepts everything.
func TestSchemaAccepts(t *testing.T) {
	values := []string{`true`, `-1`, `0`, `1`, `7`, `55`, `64`, `99`, `512`, `1.5`, `50.5`, `""`, `"x"`, `"10%"`, `"7.5 %"`, `"90s"`, `"1h30m"`, `"/x/y"`, `"auto"`, `"*"`,
		`"common:alice"`, `"127.0.0.1:1"`, `"http://127.0.0.1:9400/metrics"`, `[]`, `[85]`, `["1g.5gb*7"]`, `"1g.5gb*7"`, `1979-05-27`}
	for _, k := range Keys() {
		header := "[" + k.Table + "]"
		if k.Table == "gpu" {
			header = `[gpu."` + uuidA + `"]`
		}
		refused, own := 0, keySchema(k)
		for _, v := range append(values, quotedWords(k.Type)...) {
			text := fmt.Sprintf("%s\n%s = %s\n", header, k.Name, v)
			var decoded map[string]any
			if _, err := toml.Decode("v = "+v, &decoded); err != nil {
				t.Fatal(err)
			}
			_, err := Parse("f.toml", []byte(text))
			fits := fitsSchema(own, decoded["v"])
			if err == nil && !fits {
				t.Errorf("the schema refuses what the code accepts: %s.%s = %s", k.Table, k.Name, v)
			}
			if !fits {
				refused++
			}
		}
		if refused < 8 {
			t.Errorf("the schema of %s.%s refuses %d of %d values only", k.Table, k.Name, refused, len(values))
		}
	}
}

// TestSchemaOfReference: each table of the reference file is one of the schema.
func TestSchemaOfReference(t *testing.T) {
	text, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	tables := fileSchema()["properties"].(object)
	for _, m := range regexp.MustCompile(`(?m)^\[([a-z_]+)\]`).FindAllStringSubmatch(string(text), -1) {
		if tables[m[1]] == nil {
			t.Errorf("no table %s", m[1])
		}
	}
	if len(tables) != len(Tables()) {
		t.Errorf("%d tables, want %d", len(tables), len(Tables()))
	}
}

func fileSchema() object {
	tables := object{}
	for _, t := range Tables() {
		keys := object{}
		for name, k := range keysOf(t) {
			keys[name] = keySchema(k)
		}
		table := object{"type": "object", "additionalProperties": false, "properties": keys}
		if t.Named {
			table = object{"type": "object", "additionalProperties": table}
		}
		table["description"] = strings.ReplaceAll(t.Meaning, "`", "")
		tables[t.Name] = table
	}
	return object{"$schema": "http://json-schema.org/draft-07/schema#", "title": "gpuslot.toml", "type": "object", "additionalProperties": false, "properties": tables}
}

// keySchema reads what the operator reads: a key's Type.
func keySchema(k Key) object {
	s := object{"description": strings.ReplaceAll(k.Meaning, "`", "") + " Value: " + k.Type + "."}
	var v map[string]any
	if _, err := toml.Decode("v = "+k.Default, &v); err == nil {
		s["default"] = v["v"]
	}
	if any := alternativesOf(k.Type); len(any) == 1 {
		for name, v := range any[0] {
			s[name] = v
		}
	} else {
		s["anyOf"] = any
	}
	return s
}

var (
	interval   = regexp.MustCompile(`([0-9.]+) to ([0-9.]+)`)
	quotedWord = regexp.MustCompile(`"[^"]*"`)
)

// quotedWords are the words that a key may have as its value, as TOML.
func quotedWords(kind string) []string {
	kind, _, _ = strings.Cut(kind, " such as ")
	return quotedWord.FindAllString(strings.ReplaceAll(kind, "<user>", "alice"), -1)
}

func alternativesOf(kind string) []object {
	var any []object
	add := func(if_ bool, s object) {
		if if_ {
			any = append(any, s)
		}
	}
	var words []string
	for _, w := range quotedWords(kind) {
		if w, _ = strconv.Unquote(w); strings.HasPrefix(w, "common:") {
			add(true, object{"type": "string", "pattern": "^common:."})
		} else {
			words = append(words, w)
		}
	}
	add(len(words) > 0, object{"type": "string", "enum": words})
	add(kind == "true or false", object{"type": "boolean"})
	add(strings.HasPrefix(kind, "0, or "), object{"type": "number", "enum": []float64{0}})
	if m := interval.FindStringSubmatch(kind); m != nil {
		least, _ := strconv.ParseFloat(m[1], 64)
		most, _ := strconv.ParseFloat(m[2], 64)
		add(true, object{"type": "number", "minimum": least, "maximum": most})
	}
	add(strings.HasPrefix(kind, "a number"), object{"type": "integer", "minimum": 0.0})
	add(strings.Contains(kind, "a percentage"), object{"type": "string", "pattern": `^[0-9.]+ *%$`})
	add(strings.HasPrefix(kind, "a time"), object{"type": "string", "pattern": `^([0-9.]+(ns|us|µs|ms|s|m|h))+$`})
	add(strings.Contains(kind, "exit codes"), object{"type": "array", "items": object{"type": "integer"}})
	layout := strings.HasPrefix(kind, "a layout")
	add(layout || strings.Contains(kind, "path") || strings.Contains(kind, "host") || strings.Contains(kind, "address"), object{"type": "string"})
	add(layout, object{"type": "array", "items": object{"type": "string"}})
	return any
}

// fitsSchema knows what keySchema uses of JSON Schema.
func fitsSchema(s object, v any) bool {
	if any, ok := s["anyOf"].([]object); ok {
		return slices.ContainsFunc(any, func(s object) bool { return fitsSchema(s, v) })
	}
	switch v := v.(type) {
	case bool:
		return s["type"] == "boolean"
	case int64:
		return s["type"] == "integer" && inBounds(s, float64(v)) || s["type"] == "number" && inBounds(s, float64(v))
	case float64:
		return s["type"] == "number" && inBounds(s, v)
	case string:
		words, listed := s["enum"].([]string)
		pattern, _ := s["pattern"].(string)
		return s["type"] == "string" && (!listed || slices.Contains(words, v)) && regexp.MustCompile(pattern).MatchString(v)
	case []any:
		return s["type"] == "array" && !slices.ContainsFunc(v, func(e any) bool { return !fitsSchema(s["items"].(object), e) })
	}
	return false
}

func inBounds(s object, v float64) bool {
	if only, ok := s["enum"].([]float64); ok {
		return slices.Contains(only, v)
	}
	least, hasLeast := s["minimum"].(float64)
	most, hasMost := s["maximum"].(float64)
	return (!hasLeast || v >= least) && (!hasMost || v <= most)
}
