package blockhash

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNothingPanics calls every method of nil and of zero values with nil and
// zero arguments. What has an error to return returns one.
func TestNothingPanics(t *testing.T) {
	made := mustNew(t, Options{Scheme: mustScheme(t, "0.31.0"), BlockSize: 4, Seed: SeedText("0")})
	content, err := NewContent(ContentOptions{Scheme: made.Scheme(), BlockSize: 4})
	require.NoError(t, err)
	refuses := 0
	for _, receiver := range []any{
		(*Hasher)(nil), &Hasher{}, made, (*Content)(nil), &Content{}, content, (*Chain)(nil), &Chain{},
		(*ContentChain)(nil), &ContentChain{}, (*Prompt)(nil), &Prompt{}, (*Explanation)(nil), &Explanation{},
		(*PromptError)(nil), &PromptError{}, Scheme{}, Seed{}, Algorithm(0), Algorithm(255),
	} {
		v := reflect.ValueOf(receiver)
		for i := range v.NumMethod() {
			name := fmt.Sprintf("%T.%s of %v", receiver, v.Type().Method(i).Name, receiver)
			m := v.Method(i)
			var args []reflect.Value
			for a := range m.Type().NumIn() {
				args = append(args, reflect.Zero(m.Type().In(a)))
			}
			var out []reflect.Value
			require.NotPanics(t, func() { out = m.Call(args) }, name)
			if n := len(out); n > 0 && m.Type().Out(n-1) == reflect.TypeFor[error]() && m.Type().NumIn() > 0 {
				// Without prompts there is nothing to refuse, but the Hasher.
				if receiver == any(made) && v.Type().Method(i).Name == "AppendKeysEach" {
					continue
				}
				require.False(t, out[n-1].IsNil(), name)
				refuses++
			}
		}
	}
	require.Greater(t, refuses, 20)
	_, err = New(Options{})
	require.ErrorIs(t, err, ErrScheme)
	_, err = NewContent(ContentOptions{})
	require.ErrorIs(t, err, ErrScheme)
	_, ok := Differ(Options{}, Options{})
	require.False(t, ok)
	require.Zero(t, KeyOf(nil))
	require.Empty(t, Disassemble(nil, 0))
	require.ErrorIs(t, made.Start(nil, &Prompt{}), ErrOptions)
	require.ErrorIs(t, made.Resume(nil, &Prompt{}, 3, nil), ErrOptions)
	require.ErrorIs(t, (*Hasher)(nil).Start(&Chain{}, &Prompt{}), ErrOptions)
	require.ErrorIs(t, content.Start(nil, &Prompt{}), ErrOptions)
	_, err = made.AppendKeysEach(nil, []*Prompt{nil})
	require.ErrorIs(t, err, ErrPrompt)
}

// TestAdaptersThatNoEngineHas: vLLM's LoRARequest has ids from 1 and a path, its
// servers a name. What a release does not hash need not be known.
func TestAdaptersThatNoEngineHas(t *testing.T) {
	for _, c := range []struct {
		release, name string
		lora          LoRA
		ok            bool
	}{
		{"0.11.0", "an id", LoRA{ID: 1}, true},
		{"0.11.0", "id 0", LoRA{Name: "a", Path: "p"}, false},
		{"0.11.0", "a negative id", LoRA{Name: "a", ID: -1}, false},
		{"0.11.2", "a name", LoRA{Name: "a"}, true},
		{"0.30.0", "no name", LoRA{ID: 1, Path: "p"}, false},
		{"0.31.0", "name and path", LoRA{Name: "a", Path: "p"}, true},
		{"0.31.0", "no path", LoRA{Name: "a", ID: 1}, false},
		{"0.33.0", "no name", LoRA{Path: "p"}, false},
	} {
		h := mustNew(t, Options{Scheme: mustScheme(t, c.release), BlockSize: 4, Seed: SeedText("0")})
		_, err := h.AppendKeys(nil, &Prompt{Tokens: seq(1, 4), LoRA: &c.lora})
		if c.ok {
			require.NoError(t, err, "%s: %s", c.release, c.name)
			continue
		}
		require.ErrorIs(t, err, ErrPrompt, "%s: %s", c.release, c.name)
		require.Contains(t, err.Error(), "LoRA")
	}
}
