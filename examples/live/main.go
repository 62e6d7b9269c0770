// Command live follows a running vLLM server and checks predictions against it:
// it subscribes to the server's events, sends prompts with shared prefixes, and
// compares the cached tokens predicted for each with those that the server
// reports.
//
//	go run ./examples/live -url http://127.0.0.1:8000 -events tcp://127.0.0.1:5557 \
//	    -replay tcp://127.0.0.1:5558 [-release 0.32.0 -block 32 [-seed 0]] [-n 40]
//
// Without -release and -block what the server is, is found from its events: the first
// prompt then has no known match. Kill and restart the server while it runs, also as
// another release: the restart is found, what was known is forgotten, and
// predictions go on.
//
// The server must run with --enable-prefix-caching, --enable-prompt-tokens-details
// and a --kv-events-config whose publisher is zmq. The exit status is 1 when a
// prediction was wrong.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/kvevents"
)

var (
	release  = flag.String("release", "", "the server's release; empty is found from its events")
	block    = flag.Int("block", 0, "block size in tokens; 0 is found from its events")
	seed     = flag.String("seed", "", "PYTHONHASHSEED of the server; empty means unset, or found from its events")
	url      = flag.String("url", "http://127.0.0.1:8000", "the server's HTTP address")
	model    = flag.String("model", "tiny", "model to ask for")
	events   = flag.String("events", "tcp://127.0.0.1:5557", "event endpoint")
	replay   = flag.String("replay", "", "replay endpoint; empty if there is none")
	requests = flag.Int("n", 40, "how many prompts to send")
	settle   = flag.Duration("settle", 500*time.Millisecond, "how long to wait after a request for its events")
	patience = flag.Duration("patience", 10*time.Minute, "how long to wait for a server that is away, restarting for instance")
	vocab    = flag.Int("vocab", 2000, "token ids are below this")
)

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "live:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	atlas, err := kvatlas.New(kvatlas.Options{MemoBytes: 16 << 20, Logger: logger})
	if err != nil {
		return err
	}
	w := kvatlas.Worker{Name: "server", Release: *release, BlockSize: *block, Auto: *release == "" || *block == 0}
	if *seed != "" {
		w.Seed = blockhash.SeedText(*seed)
	}
	if err := atlas.AddWorker(w); err != nil {
		return err
	}
	sub, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Handler: atlas.Handler(), Logger: logger})
	if err != nil {
		return err
	}
	defer sub.Close()
	if err := sub.Add(kvevents.Target{Worker: w.Name, Endpoint: *events, ReplayEndpoint: *replay}); err != nil {
		return err
	}
	time.Sleep(2 * *settle)

	rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	var history [][]uint32
	var match kvatlas.Match
	exact, unknown := 0, 0
	for i := range *requests {
		prompt := next(rnd, history)
		predicted, cached := 0, 0
		reason := ""
		for away := time.Duration(0); ; away += time.Second {
			if err := atlas.Match(&kvatlas.Request{Prompt: blockhash.Prompt{Tokens: prompt}}, &match); err != nil {
				return err
			}
			predicted, reason = match.Workers[0].Usable, match.Workers[0].Unknown
			var err error
			if cached, err = complete(ctx, prompt); err == nil {
				break
			}
			if away >= *patience {
				return err
			}
			fmt.Printf("prompt %d: the server is away (%v)\n", i, err)
			time.Sleep(time.Second)
		}
		verdict := "DIFFERENT"
		switch {
		case reason != "":
			verdict = "not predicted: " + reason
			predicted = -1
			unknown++
		case predicted == cached:
			verdict = "equal"
			exact++
		}
		fmt.Printf("prompt %d: %4d tokens, predicted %4d, reported %4d: %s\n", i, len(prompt), predicted, cached, verdict)
		if err := atlas.Reported(w.Name, predicted, cached); err != nil {
			return err
		}
		history = append(history, prompt)
		time.Sleep(*settle)
	}
	for _, st := range sub.AppendStatus(nil) {
		fmt.Printf("stream: %s, %d batches applied, %d gaps, %d replays, %d restarts, %d batches lost\n",
			st.State, st.Stats.Applied, st.Stats.Gaps, st.Stats.Replays, st.Stats.Restarts, st.Stats.Lost)
	}
	profile, err := atlas.Profile(w.Name)
	if err != nil {
		return err
	}
	fmt.Printf("profile: %s, %s, %s, blocks of %d tokens, matched by %s\n",
		profile.Releases, profile.Algorithm, profile.Seed, profile.BlockSize, profile.Mode)
	fmt.Printf("%d of %d predictions equal what the server reported, %d prompts had none\n", exact, *requests-unknown, unknown)
	if wrong := *requests - unknown - exact; wrong > 0 {
		return fmt.Errorf("%d predictions were wrong", wrong)
	}
	return nil
}

// next makes a prompt: new, a continuation, a branch or a repetition of an old one.
func next(rnd *rand.Rand, history [][]uint32) []uint32 {
	var p []uint32
	if len(history) > 0 && rnd.IntN(4) > 0 {
		old := history[rnd.IntN(len(history))]
		p = append(p, old[:1+rnd.IntN(len(old))]...)
		if rnd.IntN(4) == 0 {
			return append([]uint32(nil), old...)
		}
	}
	for range 1 + rnd.IntN(200) {
		p = append(p, uint32(5+rnd.IntN(*vocab-5)))
	}
	return p
}

// complete sends a prompt and returns the cached tokens that the server reports.
func complete(ctx context.Context, prompt []uint32) (int, error) {
	body, err := json.Marshal(map[string]any{"model": *model, "prompt": prompt, "max_tokens": 2, "temperature": 0})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, *url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", resp.Status, text)
	}
	var answer struct {
		Usage struct {
			Details *struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return 0, err
	}
	if answer.Usage.Details == nil {
		return 0, nil // releases up to 0.20 leave it out when nothing was cached
	}
	return answer.Usage.Details.Cached, nil
}
