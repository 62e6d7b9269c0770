package request

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"

	"github.com/kvatlas/kvatlas/internal/golden"
	"github.com/kvatlas/kvatlas/tokenize"
	"github.com/kvatlas/kvatlas/tokenize/chat"
	"github.com/stretchr/testify/require"
)

// scoreCases are the bodies of testdata/score.json, and what is beside them.
type scoreCases struct {
	PostProcessor json.RawMessage `json:"post_processor"`
	Templates     map[string]string
	Bodies        []sample
}

func loadScores(t *testing.T) (c scoreCases, models map[string]*Model) {
	t.Helper()
	data, err := os.ReadFile("testdata/score.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &c))
	var config map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(golden.Read(t, "vllm/server/tokenizer/tokenizer.json"), &config))
	config["post_processor"] = c.PostProcessor
	data, err = json.Marshal(config)
	require.NoError(t, err)
	tok, err := tokenize.Load(data, tokenize.Options{})
	require.NoError(t, err)
	models = map[string]*Model{"apart": {Scoring: ScoringApart}, "joined": {Scoring: ScoringJoined}, "pair": {Scoring: ScoringPair}}
	for name, source := range c.Templates {
		tpl, err := chat.Parse(source, chat.Options{})
		require.NoError(t, err)
		models[name] = &Model{Scoring: ScoringPair, ScoreTemplate: tpl}
	}
	for _, m := range models {
		m.Encoder = tok
	}
	return c, models
}

func TestScoresAsVLLM(t *testing.T) {
	c, models := loadScores(t)
	for _, version := range []string{"0.29.0", "0.32.0", "0.33.0"} {
		equal, left, rejected := 0, 0, 0
		for _, line := range lines(t, "testdata/score-"+version+".jsonl") {
			var want struct {
				Body    int
				Scoring string
				Prompts [][]uint32
				Error   string
			}
			require.NoError(t, json.Unmarshal([]byte(line), &want))
			m := *models[want.Scoring]
			m.Engine, _ = VLLMRelease(version)
			s := c.Bodies[want.Body]
			where := version + " " + want.Scoring + " " + s.Body
			r, err := Parse(s.Path, http.Header{}, []byte(s.Body), Options{})
			var res *Result
			if err == nil {
				res, err = m.Tokens(t.Context(), r)
			}
			switch {
			case err == nil:
				require.Empty(t, want.Error, where)
				require.Len(t, res.Prompts, len(want.Prompts), where)
				for i, w := range want.Prompts {
					require.Equal(t, w, res.Prompts[i].Tokens, where)
				}
				equal++
			case reasonOf(t, err) == ReasonField:
				left++
			default:
				require.NotEmpty(t, want.Error, "%s: %v", where, err)
				rejected++
			}
		}
		t.Logf("vLLM %s: equal %d, left to the engine %d, rejected by both %d", version, equal, left, rejected)
		require.Greater(t, equal, 120)
	}
}

func TestScoresThatCannot(t *testing.T) {
	_, models := loadScores(t)
	r := parse(t, "/score", `{"text_1": "a", "text_2": ["b", "c"]}`)
	require.Equal(t, &Comparison{Queries: []string{"a"}, Documents: []string{"b", "c"}}, r.Comparison)
	gate := func() bool { return false }
	for _, c := range []struct {
		m    Model
		want Reason
	}{
		{Model{Scoring: ScoringPair}, ReasonEngine},
		{Model{Engine: VLLM0_32}, ReasonField},
		{Model{Engine: VLLM0_32, Scoring: ScoringPair}, ReasonEncoder},
		{Model{Engine: VLLM0_32, Scoring: ScoringPair, Encoder: encoderFunc(nil)}, ReasonEncoder},
		{Model{Engine: VLLM0_32, Scoring: ScoringApart, Encoder: models["pair"].Encoder, InProcess: gate}, ReasonGate},
		{Model{Engine: VLLM0_32, Scoring: ScoringPair, Encoder: models["pair"].Encoder, InProcess: gate}, ReasonGate},
	} {
		_, err := c.m.Tokens(t.Context(), r)
		require.Equal(t, c.want, reasonOf(t, err))
	}
}
