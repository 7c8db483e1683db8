package advise

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestDocumented: docs/advise.md names every key of the JSON.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/advise.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[reflect.Type]bool{}
	var look func(reflect.Type)
	look = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] || typ.PkgPath() == "time" {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.IsExported() && name != "" && !strings.Contains(string(page), "`"+name) && !strings.Contains(string(page), `"`+name+`"`) {
				t.Errorf("%s of %s is not in docs/advise.md", name, typ)
			}
			if f.IsExported() {
				look(f.Type)
			}
		}
	}
	look(reflect.TypeFor[Advice]())
	if len(seen) < 15 {
		t.Errorf("looked at %d types", len(seen))
	}
}
