package conductor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/kvatlas/kvatlas"
	"github.com/kvatlas/kvatlas/blockhash"
	"github.com/kvatlas/kvatlas/radix"
)

// Options configure a handler. Atlas and Model are required.
type Options struct {
	Atlas *kvatlas.Atlas
	// Model and Tenant are whose workers the Atlas has; Tenant is [DefaultTenant] if
	// empty.
	Model, Tenant string
	// MaxBody bounds the body of a request in bytes; default 16 MiB.
	MaxBody int64
}

type handler struct {
	o    Options
	pool sync.Pool // of *asked
}

// asked is the memory of one request.
type asked struct {
	query Query
	match kvatlas.Match
}

// NewHandler makes the handler of POST /query. Mount it there; it is safe for any
// number of requests at once. The error names the option at fault.
func NewHandler(o Options) (http.Handler, error) {
	switch {
	case o.Atlas == nil || o.Model == "":
		return nil, errors.New("conductor: a handler needs an Atlas and a Model")
	case o.MaxBody < 0:
		return nil, fmt.Errorf("conductor: MaxBody is %d, want 0 or more", o.MaxBody)
	}
	o.Tenant, o.MaxBody = cmp.Or(o.Tenant, DefaultTenant), cmp.Or(o.MaxBody, 16<<20)
	return &handler{o: o, pool: sync.Pool{New: func() any { return &asked{} }}}, nil
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		reply(w, http.StatusMethodNotAllowed, &Error{Message: "want POST"})
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.o.MaxBody))
	if err != nil {
		status := http.StatusBadRequest
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			status = http.StatusRequestEntityTooLarge
		}
		reply(w, status, &Error{Message: err.Error()})
		return
	}
	a := h.pool.Get().(*asked)
	defer h.pool.Put(a)
	if e := parse(string(body), &a.query); e != nil {
		reply(w, e.Status, e)
		return
	}
	answer, err := h.answer(a)
	if err != nil {
		reply(w, http.StatusBadRequest, &Error{Message: err.Error(), Reason: "invalid_value"})
		return
	}
	reply(w, http.StatusOK, answer)
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // whoever asked may be gone
}

// answer matches the query's prompt.
func (h *handler) answer(a *asked) (Answer, error) {
	q := &a.query
	instances := map[string]Instance{}
	answer := Answer{q.Tenant: instances}
	if q.Model != h.o.Model || q.Tenant != h.o.Tenant {
		return answer, nil
	}
	req := kvatlas.Request{Prompt: blockhash.Prompt{Tokens: q.TokenIDs, CacheSalt: q.CacheSalt}}
	if q.LoRAName != "" || q.LoRAID != nil {
		req.Prompt.LoRA = &blockhash.LoRA{Name: q.LoRAName}
		if q.LoRAID != nil {
			req.Prompt.LoRA.ID = *q.LoRAID
		}
	}
	m := &a.match
	if err := h.o.Atlas.Match(&req, m); err != nil {
		return nil, err
	}
	for i := range m.Workers {
		x := &m.Workers[i]
		w, registered := h.o.Atlas.Worker(x.Name)
		name := cmp.Or(w.Replica, w.Name)
		if !registered || x.Unknown != "" || x.Mismatch || q.Instance != "" && q.Instance != name {
			continue
		}
		unit := m.BlockSize(i)
		if unit == 0 || q.BlockSize != cmp.Or(w.BlockSize, unit) {
			continue
		}
		instance, ok := instances[name]
		if !ok {
			instance = Instance{Media: map[string]int{"GPU": 0, "CPU": 0, "DISK": 0}, DP: map[int32]int{}}
		}
		media := map[string]int{}
		for medium, blocks := range x.Blocks {
			if blocks > 0 {
				media[mediumName(m.Medium(i, radix.Medium(medium)))] = int(blocks) * unit
			}
		}
		instance.merge(w.Rank, x.Combined*unit, media)
		instances[name] = instance
	}
	return answer, nil
}

func mediumName(name string) string {
	if name == "STORAGE" {
		return "DISK"
	}
	return name
}
