package recording

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Session is a recorded session of a live server: requests with what the
// server reported, and the messages its event publisher sent.
type Session struct {
	// Meta is the first line of a truth file; files of bare frames have none.
	Meta *SessionMeta
	Ops  []SessionOp
}

// SessionMeta says how the server was started.
type SessionMeta struct {
	Engine    string  `json:"engine"` // "vllm 0.32.0"
	Session   string  `json:"session"`
	BlockSize int     `json:"block_size"`
	HashAlgo  string  `json:"hash_algo"`
	Seed      *string `json:"pythonhashseed"`
	// IntHashes is false when hashes travel as byte strings; nil means true.
	IntHashes *bool `json:"int_hashes"`
	// ReportMode is "full" when requests asked for full reports.
	ReportMode string `json:"report_mode"`
}

// Name splits Engine into the engine's name and its release.
func (m *SessionMeta) Name() (engine, version string) {
	engine, version, _ = strings.Cut(m.Engine, " ")
	return engine, version
}

// SessionOp is one line of a session. Op names it; the other fields are set
// as that kind of line has them.
type SessionOp struct {
	Op   string
	Line int

	// Request: op "request".
	Request *ServerRequest

	// Op "event" and "replay_reply...": frames as they came, the payload last.
	// Truth files keep the payload alone, with Seq and Topic beside it.
	Frames  [][]byte
	Payload []byte
	Seq     int64
	Topic   string
	// PortOffset is the data-parallel rank whose port the message came from.
	PortOffset int

	// Replies are the messages of op "replay", which SGLang's recordings keep in
	// one line.
	Replies [][][]byte

	// Op "replay_request": Start, and the frames sent. Socket is DEALER or REQ.
	Socket, Label string
	Start         json.RawMessage

	// Op "publisher": its pages and the batches that its replay keeps.
	PageSize, BufferSteps int

	// Op "replay_done".
	Messages      int
	EndMarkerSeen bool

	// Server counts the processes of a restart recording, from 1.
	Server int
}

// ServerRequest is a request and what the server said of it.
type ServerRequest struct {
	Kind         string  `json:"kind"`
	Model        string  `json:"model"`
	LoRAName     *string `json:"lora_name"`
	LoRAPath     *string `json:"lora_path"`
	Tokens       []int64 `json:"prompt_token_ids"`
	CacheSalt    *string `json:"cache_salt"`
	CachedTokens *int    `json:"cached_tokens"`
	PromptTokens int     `json:"prompt_tokens"`
	Note         string  `json:"note"`
	// Rank is the data-parallel rank the request was sent to, if HasRank: where the
	// recorder noted one, in a field, a header or the note.
	Rank    int  `json:"-"`
	HasRank bool `json:"-"`
}

// findRank looks for a rank in what may name one.
func (r *ServerRequest) findRank(line []byte) error {
	var fields map[string]json.RawMessage
	if err := decode(line, &fields); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !naming.MatchString(name) {
			continue
		}
		if m := rankInText.FindStringSubmatch(name + ": " + string(fields[name])); m != nil {
			r.Rank, _ = strconv.Atoi(m[1]) // few digits
			r.HasRank = true
		}
	}
	return nil
}

var (
	naming     = regexp.MustCompile(`(?i)rank|header|^note$`)
	rankInText = regexp.MustCompile(`(?i)(?:^|[^a-z])rank\W{0,5}(\d{1,4})\b`)
)

// Cached is the number of tokens that the server took from its cache. Releases
// up to 0.20 leave the field out where it is 0.
func (r *ServerRequest) Cached() int {
	if r.CachedTokens == nil {
		return 0
	}
	return *r.CachedTokens
}

// maxRank bounds the data-parallel ranks of a session.
const maxRank = 1023

// sessionOps are the lines of sessions, replay and restart recordings.
var sessionOps = map[string]bool{
	"meta": true, "request": true, "event": true, "reset_prefix_cache": true, "lora_repointed": true,
	"server_killed_and_restarted": true, "replay_request": true, "replay_reply": true, "replay_done": true,
	"replay_reply_after_second_send": true,
	// SGLang's
	"publisher": true, "describe_local_source": true, "live": true, "replay": true,
}

type sessionLine struct {
	Op         string          `json:"op"`
	Frames     []string        `json:"frames"`
	Replies    [][]string      `json:"replies"`
	Header     json.RawMessage `json:"header"` // true in a first line; a note of a request
	Payload    string          `json:"payload_b64"`
	Seq        *int64          `json:"seq"`
	Topic      string          `json:"topic"`
	PortOffset int             `json:"port_offset"`
	PageSize   int             `json:"page_size"`
	Buffer     int             `json:"buffer_steps"`
	Socket     string          `json:"socket"`
	Label      string          `json:"label"`
	Start      json.RawMessage `json:"start"`
	Messages   json.RawMessage `json:"messages"` // of replay_done a number, of a chat request a list
	EndMarker  bool            `json:"end_marker_seen"`
	Server     int             `json:"server"`
}

// ReadSession reads a session, whether truth file, replay or restart
// recording.
func ReadSession(r io.Reader) (*Session, error) {
	s := &Session{}
	var order publishers
	err := Lines(r, func(n int, line []byte) error {
		var l sessionLine
		if err := decode(line, &l); err != nil {
			return err
		}
		if string(l.Header) == "true" && n == 1 {
			return nil
		}
		if l.Op == "" {
			return errors.New(`want "op" on every line`)
		}
		if !sessionOps[l.Op] {
			return fmt.Errorf("op %q is not of this format: its effect on the rest is not known", l.Op)
		}
		if l.Op == "meta" {
			if s.Meta != nil || len(s.Ops) > 0 {
				return errors.New("a meta line that is not the first: one session a file")
			}
			s.Meta = &SessionMeta{}
			return decode(line, s.Meta)
		}
		if l.PortOffset < 0 || l.PortOffset > maxRank {
			return fmt.Errorf("port_offset %d, want 0 to %d", l.PortOffset, maxRank)
		}
		op := SessionOp{
			Op: l.Op, Line: n, Topic: l.Topic, PortOffset: l.PortOffset, Socket: l.Socket, Label: l.Label,
			Start: l.Start, EndMarkerSeen: l.EndMarker, Server: l.Server, PageSize: l.PageSize, BufferSteps: l.Buffer,
		}
		var err error
		switch l.Op {
		case "request":
			op.Request = &ServerRequest{}
			if err = decode(line, op.Request); err == nil {
				err = op.Request.findRank(line)
			}
		case "replay_done":
			err = decode(l.Messages, &op.Messages)
		}
		if err != nil {
			return err
		}
		if op.Frames, op.Payload, err = frames(l); err != nil {
			return err
		}
		for _, reply := range l.Replies {
			frames, _, err := frames(sessionLine{Frames: reply})
			if err != nil {
				return err
			}
			op.Replies = append(op.Replies, frames)
		}
		if op.Seq, err = order.next(&l, &op, s.Meta != nil); err != nil {
			return err
		}
		s.Ops = append(s.Ops, op)
		return nil
	})
	if err == nil && len(s.Ops) == 0 {
		err = errors.New("empty file: want one operation a line")
	}
	if err != nil {
		return nil, fmt.Errorf("recording: session: %w", err)
	}
	return s, nil
}

// frames decodes the frames of a line, or the lone payload of a truth file.
func frames(l sessionLine) (all [][]byte, payload []byte, err error) {
	for _, text := range l.Frames {
		frame, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, nil, fmt.Errorf("frame: %w", err)
		}
		all = append(all, frame)
	}
	if l.Payload != "" {
		if payload, err = base64.StdEncoding.DecodeString(l.Payload); err != nil {
			return nil, nil, fmt.Errorf("payload: %w", err)
		}
		return all, payload, nil
	}
	if len(all) > 0 && l.Op != "replay_request" {
		payload = all[len(all)-1]
	}
	return all, payload, nil
}
