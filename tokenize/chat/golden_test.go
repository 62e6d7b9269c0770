package chat

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The renders in testdata are what transformers gave. Do not change them:
// change the code.

func testClock() time.Time { return time.Date(2026, 11, 29, 14, 3, 5, 0, time.UTC) }

type goldenCase struct {
	Template, Case string
	Output         *string
	Error          string
}

func readCases(t testing.TB) (cases *Dict, tokens map[string]string) {
	t.Helper()
	data, err := os.ReadFile("testdata/cases.json")
	require.NoError(t, err)
	v, err := ParseJSON(data)
	require.NoError(t, err)
	c, _ := v.(*Dict).Get("cases")
	special, _ := v.(*Dict).Get("tokens")
	tokens = map[string]string{}
	for i := range special.(*Dict).Len() {
		k, v := special.(*Dict).At(i)
		tokens[k] = v.(string)
	}
	return c.(*Dict), tokens
}

func caseInput(cases *Dict, name string) *Input {
	v, _ := cases.Get(name)
	c := v.(*Dict)
	in := &Input{}
	m, _ := c.Get("messages")
	in.Messages = m.(*List)
	in.Tools, _ = c.Get("tools")
	in.Documents, _ = c.Get("documents")
	g, _ := c.Get("add_generation_prompt")
	in.AddGenerationPrompt = truth(g)
	g, _ = c.Get("continue_final_message")
	in.ContinueFinalMessage = truth(g)
	if k, ok := c.Get("kwargs"); ok {
		in.Kwargs = k.(*Dict)
	}
	return in
}

func readRenders(t testing.TB, name string) []goldenCase {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	z, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	var out []goldenCase
	sc := bufio.NewScanner(z)
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		var c goldenCase
		require.NoError(t, json.Unmarshal(sc.Bytes(), &c))
		out = append(out, c)
	}
	require.NoError(t, sc.Err())
	return out
}

// refusedTemplates are those of testdata that must be refused, by name.
var refusedTemplates = map[string]string{"deepseek-ai-DeepSeek-V3.2": `filter "from_json"`}

func TestGoldenRenders(t *testing.T) {
	cases, tokens := readCases(t)
	for file, era := range map[string]Era{"5.19.0": Transformers5_19, "5.24.0": Transformers5_24} {
		templates := map[string]*Template{}
		paths, err := filepath.Glob("testdata/templates/*.jinja")
		require.NoError(t, err)
		for _, path := range paths {
			src, err := os.ReadFile(path)
			require.NoError(t, err)
			name := strings.TrimSuffix(filepath.Base(path), ".jinja")
			tpl, err := Parse(string(src), Options{SpecialTokens: tokens, Now: testClock, Era: era})
			if want, ok := refusedTemplates[name]; ok {
				var u *UnsupportedError
				require.ErrorAs(t, err, &u, name)
				require.ErrorContains(t, err, want)
				continue
			}
			require.NoError(t, err, name)
			templates[name] = tpl
		}
		renders, rejected := 0, 0
		for _, c := range readRenders(t, "testdata/renders-"+file+".jsonl.gz") {
			if refusedTemplates[c.Template] != "" {
				continue
			}
			out, err := templates[c.Template].AppendRender([]byte("before"), caseInput(cases, c.Case))
			if c.Output == nil {
				var re *RenderError
				require.ErrorAs(t, err, &re, "%s: %s/%s", file, c.Template, c.Case)
				require.Equal(t, "before", string(out))
				rejected++
				continue
			}
			require.NoError(t, err, "%s: %s/%s", file, c.Template, c.Case)
			require.Equal(t, "before"+*c.Output, string(out), "%s: %s/%s", file, c.Template, c.Case)
			renders++
		}
		require.Equal(t, 805, renders+rejected)
		t.Logf("transformers %s: %d renders equal, %d conversations rejected as there", file, renders, rejected)
	}
}

func TestRendersAreIndependent(t *testing.T) {
	// One template, many goroutines: equal to the serial result.
	cases, tokens := readCases(t)
	src, err := os.ReadFile("testdata/templates/scopes.jinja")
	require.NoError(t, err)
	tpl, err := Parse(string(src), Options{SpecialTokens: tokens, Now: testClock})
	require.NoError(t, err)
	in := caseInput(cases, "tool-talk")
	want, err := tpl.AppendRender(nil, in)
	require.NoError(t, err)
	done := make(chan bool)
	for range 8 {
		go func() {
			ok := true
			for range 50 {
				got, err := tpl.AppendRender(nil, in)
				ok = ok && err == nil && bytes.Equal(got, want)
			}
			done <- ok
		}()
	}
	for range 8 {
		require.True(t, <-done)
	}
}

func TestRefusedByName(t *testing.T) {
	for src, want := range map[string]string{
		"{{ x | fromjson }}":                              `filter "fromjson"`,
		"{{ x | escape }}":                                `filter "escape"`,
		"{{ x is escaped }}":                              `test "escaped"`,
		"{% include 'x' %}":                               `statement "include"`,
		"{% do x.append(1) %}":                            `statement "do"`,
		"{% block a %}{% endblock %}":                     `statement "block"`,
		"{{ x.encode('a') }}":                             `method "encode"`,
		"{{ lipsum() }}":                                  `function "lipsum"`,
		"{% for a in b recursive %}{% endfor %}":          `for ... recursive`,
		"{{ f(*x) }}":                                     `"*"`,
		"{% macro m() %}{{ varargs }}{% endmacro %}":      `"varargs"`,
		"{{ x | map('nope') | list }}":                    `filter "nope"`,
		"{{ x | selectattr('a', 'nope') | list }}":        `test "nope"`,
		"{{ 0x10 }}":                                      `number`,
		`{{ "\N{BULLET}" }}`:                              `escape`,
		"{{ 99999999999999999999 }}":                      `number`,
		"{% autoescape true %}x{% endautoescape %}":       `statement "autoescape"`,
		"{% trans %}x{% endtrans %}":                      `statement "trans"`,
		"{% macro m(caller) %}{{ caller }}{% endmacro %}": `"caller"`,
	} {
		_, err := Parse(src, Options{})
		var u *UnsupportedError
		require.ErrorAs(t, err, &u, src)
		require.ErrorContains(t, err, want)
	}
	for _, src := range []string{"{% if %}", "{{ x", "{% endif %}x{% if a", "{{ 'x }}", "{% set 1 = 2 %}", "{{ a b }}", "{# x", "{% break %}", "{{ ) }}", "{% raw %}", "\xff"} {
		_, err := Parse(src, Options{})
		require.Error(t, err, src)
	}
}

func TestLimits(t *testing.T) {
	in := &Input{Messages: &List{[]Value{&Dict{}}}}
	for _, src := range []string{
		"{% for a in range(1000) %}{% for b in range(1000) %}x{% endfor %}{% endfor %}",
		"{% set ns = namespace(s='xxxxxxxx') %}{% for a in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
		"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"{{ 'x' * 1000000000 }}",
		"{% set ns = namespace(l=[1]) %}{% for a in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
		"{% set ns = namespace(l=[1]) %}{% for a in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l | tojson }}",
		"{% set ns = namespace(l=[1]) %}{% for a in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
	} {
		tpl, err := Parse(src, Options{Limits: Limits{Steps: 100_000, Output: 10_000, Work: 1 << 20}})
		require.NoError(t, err, src)
		_, err = tpl.AppendRender(nil, in)
		require.ErrorIs(t, err, ErrLimit, src)
	}
	_, err := Parse(strings.Repeat("{{ (", 1000), Options{})
	require.Error(t, err)
	_, err = Parse("{{ "+strings.Repeat("(", 10_000)+" }}", Options{})
	require.ErrorIs(t, err, ErrLimit)
	_, err = Parse("{{ "+strings.Repeat("not ", 10_000)+"x }}", Options{})
	require.ErrorIs(t, err, ErrLimit)
}

func TestRaised(t *testing.T) {
	tpl, err := Parse("{{ raise_exception('no ' ~ messages[0].role) }}", Options{})
	require.NoError(t, err)
	m := &Dict{}
	m.Set("role", "x")
	_, err = tpl.AppendRender(nil, &Input{Messages: &List{[]Value{m}}})
	re, ok := errors.AsType[*RenderError](err)
	require.True(t, ok)
	require.True(t, re.Raised)
	require.Equal(t, "no x", re.Reason)
}

func FuzzTemplate(f *testing.F) {
	paths, _ := filepath.Glob("testdata/templates/*.jinja")
	for _, p := range paths {
		src, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(src), "hi\n")
	}
	f.Add("{{ messages[0].content[::-1] }}", "Grüße")
	f.Fuzz(func(t *testing.T, src, content string) {
		tpl, err := Parse(src, Options{Now: testClock, Limits: Limits{Steps: 20_000, Output: 1 << 16, Work: 1 << 18}})
		if err != nil {
			return
		}
		tpl.ContentFormat()
		m := &Dict{}
		m.Set("role", "user")
		m.Set("content", strings.ToValidUTF8(content, ""))
		in := &Input{Messages: &List{[]Value{m, m}}, AddGenerationPrompt: true}
		a, errA := tpl.AppendRender(nil, in)
		b, errB := tpl.AppendRender(nil, in)
		if !bytes.Equal(a, b) || (errA == nil) != (errB == nil) {
			t.Fatalf("two renders differ: %q %v, %q %v", a, errA, b, errB)
		}
	})
}

func FuzzParseJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,"\u00e9\ud83d\ude80",null,true,{}],"a":2}`, `[`, `"\ud800"`, `01`, `1e999`, `12345678901234567890`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ParseJSON(data)
		if err == nil && !json.Valid(data) {
			t.Fatalf("accepted what is not JSON: %q is %v", data, v)
		}
	})
}
