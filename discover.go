package kvatlas

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kvatlas/kvatlas/kvevents/parity"
	"github.com/kvatlas/kvatlas/radix"
)

// VLLMWorker describes an automatic worker ([Worker.Auto]) by what its vLLM answers to
// GET /version. That fixes the release: ask again when the engine is upgraded. A
// version whose era cannot be told, such as that of a build from source, is left to
// be found from the events.
//
// Where its events come from is told by kvevents.VLLMTarget.
func VLLMWorker(name string, version []byte) (Worker, error) {
	var answer struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(version, &answer); err != nil || answer.Version == "" {
		return Worker{}, fmt.Errorf("kvatlas: answer of /version of worker %s: want {\"version\": \"0.32.0\"}, got %q (%w)", quoted(name), clip(version), orInvalid(err))
	}
	return Worker{Name: name, Auto: true, Engine: "vllm", Release: known("vllm", answer.Version)}, nil
}

// SGLangWorker describes an automatic worker by what its SGLang answers to GET
// /server_info (/get_server_info in older releases): release, size of pages, format of
// events. See [VLLMWorker]; its events' source is told by kvevents.SGLangTarget. From
// source (sglang/srt/entrypoints/http_server.py, server_args.py); not recorded.
func SGLangWorker(name string, info []byte) (Worker, error) {
	var answer struct {
		Version  string `json:"version"`
		PageSize int    `json:"page_size"`
		DCP      int    `json:"dcp_size"`
		Config   string `json:"kv_events_config"` // JSON as the operator gave it
		Events   *struct {
			BlockSize int `json:"block_size"`
		} `json:"kv_events"` // from 0.5.13
	}
	if err := json.Unmarshal(info, &answer); err != nil || answer.Version == "" {
		return Worker{}, fmt.Errorf("kvatlas: answer of /server_info of worker %s: want an object with a version, got %q (%w)", quoted(name), clip(info), orInvalid(err))
	}
	w := Worker{Name: name, Auto: true, Engine: sglang, Release: known(sglang, answer.Version), BlockSize: answer.PageSize * max(answer.DCP, 1)}
	if answer.Events != nil && answer.Events.BlockSize > 0 {
		w.BlockSize = answer.Events.BlockSize
	}
	if w.BlockSize < 0 || answer.PageSize > 1<<20 || answer.DCP > 1<<10 {
		return Worker{}, fmt.Errorf("%w: worker %s says that it has pages of %d tokens", ErrBlockSize, quoted(name), answer.PageSize)
	}
	if answer.Config != "" {
		var config struct {
			Format string `json:"format"`
		}
		if err := json.Unmarshal([]byte(answer.Config), &config); err != nil {
			return Worker{}, fmt.Errorf("kvatlas: kv_events_config of worker %s: %w", quoted(name), err)
		}
		w.DynamoEvents = config.Format == "dynamo"
	}
	return w, nil
}

// known returns a release whose era is known, else "". A build from source (0.30.1.dev20+g...)
// lies between two releases, and so perhaps between two eras.
func known(engine, release string) string {
	if strings.Contains(release, ".dev") {
		return ""
	}
	_, err := parity.EraOf(engine, release)
	if _, err2 := radix.NewProfile(radix.ProfileOptions{Release: release}); err != nil || err2 != nil {
		return ""
	}
	return release
}

func orInvalid(err error) error {
	if err != nil {
		return err
	}
	return constError("no version in it")
}

// clip is the beginning of an answer, for errors.
func clip(b []byte) []byte { return b[:min(len(b), 80)] }
