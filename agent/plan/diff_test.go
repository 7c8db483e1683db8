package plan_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/gpuslot/gpuslot/agent/plan"
	"github.com/gpuslot/gpuslot/gpu"
)

// TestDiffSeesEachField: a plan that differs in one field alone is another plan,
// but for its warnings.
func TestDiffSeesEachField(t *testing.T) {
	whole := func() plan.Plan {
		p := sharedNode()
		p.GPUs = p.GPUs[:1]
		p.Absent = []gpu.UUID{uuid(7)}
		p.MIG = []plan.MIGGPU{{UUID: uuid(8), Layouts: []string{"1g.5gb*7"}, Placed: []string{"1g.5gb@0"}, Costs: []plan.LayoutCost{{}}}}
		return p
	}
	tried := 0
	try := func(path string, v reflect.Value, p *plan.Plan) {
		tried++
		switch v.Kind() {
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Int, reflect.Int64:
			v.SetInt(v.Int() + 1)
		case reflect.Float64:
			v.SetFloat(v.Float() + 1)
		default:
			t.Fatalf("%s is a %s", path, v.Kind())
		}
		if len(plan.Diff(whole(), *p)) == 0 || len(plan.Diff(*p, whole())) == 0 {
			t.Errorf("a change of %s is not seen", path)
		}
	}
	var walk func(path []int, v reflect.Value, name string)
	at := func(p *plan.Plan, path []int) reflect.Value {
		v := reflect.ValueOf(p).Elem()
		for _, i := range path {
			if v.Kind() == reflect.Slice {
				v = v.Index(i)
			} else {
				v = v.Field(i)
			}
		}
		return v
	}
	walk = func(path []int, v reflect.Value, name string) {
		next := func(i int) []int { return append(append([]int{}, path...), i) }
		switch {
		case strings.HasSuffix(name, ".Warnings"), strings.HasSuffix(name, ".Divided"):
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				walk(next(i), v.Field(i), name+"."+v.Type().Field(i).Name)
			}
		case v.Kind() == reflect.Slice:
			if v.Len() == 0 {
				t.Errorf("%s is empty here", name)
			}
			for i := range v.Len() {
				walk(next(i), v.Index(i), name)
			}
		default:
			p := whole()
			try(name, at(&p, path), &p)
		}
	}
	walk(nil, reflect.ValueOf(whole()), "Plan")
	if tried < 50 {
		t.Errorf("%d fields were tried", tried)
	}
}
