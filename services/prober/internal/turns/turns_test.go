// SPDX-License-Identifier: Apache-2.0

package turns_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sextant-node/sextant/services/prober/internal/turns"
)

func TestShareOfAPod(t *testing.T) {
	turn := turns.New[int](turns.Limits{Share: 3, Extra: 10})
	for i := range 5 {
		turn.Add("greedy", i)
	}
	if got := turn.Next(); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("began %v", got)
	}
	turn.Done("greedy", 1)
	if got := turn.Next(); !slices.Equal(got, []int{3}) {
		t.Errorf("began %v when one had ended", got)
	}
}

func TestFirstOfAPodWaitsForNoOther(t *testing.T) {
	turn := turns.New[string](turns.Limits{Share: 8, Extra: 4})
	for i := range 8 {
		turn.Add("greedy", fmt.Sprint(i))
	}
	if got := turn.Next(); len(got) != 5 {
		t.Errorf("%d began, want one and what is extra", len(got))
	}
	turn.Add("a", "a")
	turn.Add("b", "b")
	if got := turn.Next(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("began %v", got)
	}
}

// TestExtraGoesRound: pods that want more than one at a time have it in turn.
func TestExtraGoesRound(t *testing.T) {
	turn := turns.New[string](turns.Limits{Share: 8, Extra: 2})
	for _, uid := range []string{"a", "b", "c"} {
		for i := range 4 {
			turn.Add(uid, fmt.Sprint(uid, i))
		}
	}
	if got := turn.Next(); !slices.Equal(got, []string{"a0", "b0", "c0", "a1", "b1"}) {
		t.Errorf("began %v", got)
	}
	turn.Done("a", "a1")
	if got := turn.Next(); !slices.Equal(got, []string{"c1"}) {
		t.Errorf("began %v: the third pod's turn", got)
	}
}

func TestKeep(t *testing.T) {
	turn := turns.New[int](turns.Limits{Share: 2, Extra: 1})
	for i := range 6 {
		turn.Add("p", i)
	}
	turn.Next() // 0 and 1
	odd := func(i int) bool { return i%2 == 1 }
	if got := turn.Keep("p", odd); !slices.Equal(got, []int{0}) {
		t.Errorf("of no use and running: %v", got)
	}
	if got := turn.Next(); got != nil {
		t.Errorf("began %v in the place of one that runs still", got)
	}
	turn.Done("p", 0)
	if got := turn.Next(); !slices.Equal(got, []int{3}) {
		t.Errorf("began %v", got)
	}
	turn.Keep("p", func(int) bool { return false })
	turn.Done("p", 1)
	turn.Done("p", 3)
	if got := turn.Next(); got != nil {
		t.Errorf("began %v", got)
	}
}

// FuzzTurns: whatever comes and goes, each pod that has something to run runs something,
// none more than its share, all together no more than the limits, in order, and nothing
// is lost.
func FuzzTurns(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint8(4))
	f.Add(uint64(2), uint8(1), uint8(0))
	f.Fuzz(func(t *testing.T, seed uint64, share, extra uint8) {
		limits := turns.Limits{Share: int(share%9) + 1, Extra: int(extra % 20)}
		r := rand.New(rand.NewPCG(seed, 0))
		turn := turns.New[string](limits)
		waiting, running := map[string][]string{}, map[string][]string{}
		n := 0
		for range 500 {
			uid := string(rune('a' + r.IntN(6)))
			switch r.IntN(5) {
			case 0, 1:
				n++
				probe := fmt.Sprint(uid, n)
				turn.Add(uid, probe)
				waiting[uid] = append(waiting[uid], probe)
			case 2, 3:
				if runs := running[uid]; len(runs) > 0 {
					i := r.IntN(len(runs))
					turn.Done(uid, runs[i])
					running[uid] = slices.Delete(runs, i, i+1)
				}
			case 4:
				useful := func(probe string) bool { return probe[len(probe)-1]%2 == 0 }
				got, want := turn.Keep(uid, useful), slices.DeleteFunc(slices.Clone(running[uid]), useful)
				if !slices.Equal(got, want) && len(got)+len(want) > 0 {
					t.Fatalf("of no use and running: %v, want %v", got, want)
				}
				waiting[uid] = slices.DeleteFunc(waiting[uid], func(probe string) bool { return !useful(probe) })
			}
			for _, probe := range turn.Next() {
				pod := probe[:1]
				if len(waiting[pod]) == 0 || waiting[pod][0] != probe {
					t.Fatalf("%s began, and %v wait", probe, waiting[pod])
				}
				waiting[pod] = waiting[pod][1:]
				running[pod] = append(running[pod], probe)
			}
			besides := 0
			for _, runs := range running {
				besides += max(len(runs)-1, 0)
			}
			if besides > limits.Extra {
				t.Fatalf("%d run besides the first of each pod, limit %d", besides, limits.Extra)
			}
			for pod, queue := range waiting {
				switch runs := len(running[pod]); {
				case runs > limits.Share:
					t.Fatalf("%d of one pod run", runs)
				case len(queue) > 0 && (runs == 0 || runs < limits.Share && besides < limits.Extra):
					t.Fatalf("%v wait, %d run, %d extra", queue, runs, besides)
				}
			}
		}
	})
}
