// Package together calls the methods of a type that several goroutines share, all at the
// same time. With the race detector it finds a lock that is missing. Start at Methods.
package together

import (
	"reflect"
	"slices"
	"sync"
	"testing"
)

// rounds is how often each goroutine calls its method. The race detector finds two uses
// of a value that no lock orders; the second of them may come late.
const rounds = 40

// Except are names of methods that Methods leaves out.
type Except []string

// Call is called beside the methods, from two goroutines too.
type Call func()

// Methods calls each exported method of v from two goroutines, all of them at once. A
// parameter gets the argument of its type, and a context the test's; an Except among the
// arguments names methods that are left out, a Call is one more. Results are thrown away:
// what the methods do is for other tests.
func Methods(t *testing.T, v any, args ...any) {
	t.Helper()
	var calls []func()
	var without Except
	given := []reflect.Value{reflect.ValueOf(t.Context())}
	for _, a := range args {
		switch a := a.(type) {
		case Except:
			without = append(without, a...)
		case Call:
			calls = append(calls, a)
		default:
			given = append(given, reflect.ValueOf(a))
		}
	}
	of := reflect.ValueOf(v)
	for i := range of.NumMethod() {
		name := of.Type().Method(i).Name
		if slices.Contains(without, name) {
			continue
		}
		in, missing := parameters(of.Method(i).Type(), given)
		if missing != nil {
			t.Errorf("%s takes a %s: give one, or leave the method out", name, missing)
			continue
		}
		calls = append(calls, func() { of.Method(i).Call(in) })
	}
	Calls(append(calls, calls...)...)
}

// parameters are the arguments of a function, and the first type that none is given for.
func parameters(f reflect.Type, given []reflect.Value) (in []reflect.Value, missing reflect.Type) {
	for p := range f.NumIn() {
		want := f.In(p)
		if f.IsVariadic() && p == f.NumIn()-1 {
			want = want.Elem()
		}
		i := slices.IndexFunc(given, func(g reflect.Value) bool { return g.Type() == want })
		if i < 0 {
			i = slices.IndexFunc(given, func(g reflect.Value) bool { return g.Type().AssignableTo(want) })
		}
		if i < 0 {
			return nil, want
		}
		in = append(in, given[i])
	}
	return in, nil
}

// Calls calls each function again and again from a goroutine of its own, all at once.
func Calls(calls ...func()) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for _, call := range calls {
		all.Go(func() {
			<-start
			for range rounds {
				call()
			}
		})
	}
	close(start)
	all.Wait()
}
