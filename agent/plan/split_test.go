package plan

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestProportional(t *testing.T) {
	for _, c := range []struct {
		total   int64
		weights []int64
		want    []int64
	}{
		{72, []int64{1, 1, 1, 1, 1, 1, 1, 1}, []int64{9, 9, 9, 9, 9, 9, 9, 9}},
		{10, []int64{1, 1, 1}, []int64{4, 3, 3}},              // ties go to the first
		{10, []int64{16, 32, 80}, []int64{1, 3, 6}},           // 1.25, 2.5, 6.25: the half is the largest remainder
		{3, []int64{1, 1, 1000}, []int64{1, 1, 1}},            // nobody gets nothing
		{61, []int64{15, 31, 40, 40}, []int64{7, 15, 20, 19}}, // 7.26, 15.007, 19.36, 19.36
	} {
		if got := proportional(c.total, c.weights); !slices.Equal(got, c.want) {
			t.Errorf("proportional(%d, %v) = %v, want %v", c.total, c.weights, got, c.want)
		}
	}
}

func TestProportionalIsExactAndFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Int64Range(1, 4<<20), 1, 256).Draw(t, "weights")
		total := rapid.Int64Range(int64(len(weights)), 1<<30).Draw(t, "total")
		parts := proportional(total, weights)
		var sum, sumWeights int64
		for i := range parts {
			sum += parts[i]
			sumWeights += weights[i]
		}
		if sum != total {
			t.Fatalf("%v sum to %d, want %d", parts, sum, total)
		}
		lifted := slices.Min(weights)*total/sumWeights < 1
		for i, p := range parts {
			quota := total * weights[i] / sumWeights
			if p < 1 || !lifted && (p < quota || p > quota+1) {
				t.Fatalf("part %d is %d, its quota %d of %v", i, p, quota, parts)
			}
		}
	})
}
