package radix

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

// Medium is a tier of storage that a block can be held on. The three known ones
// are constants, others are registered by name with [Index.Medium]. The zero
// value is GPU.
type Medium uint8

// The known media. Engines leave the medium out for the device.
const (
	GPU     Medium = iota // the engine's own pool
	CPU                   // host memory of an offload connector
	Storage               // files or objects, "STORAGE" on the wire
)

// MaxMedia is the number of media an index tells apart. Names beyond it share
// the last one, whose removals count against that shared medium: engines'
// messages are not trusted to keep the vocabulary small.
const MaxMedia = 32

// maxMediumName is how much of a name counts, in bytes.
const maxMediumName = 64

const overflowMedium = Medium(MaxMedia - 1)

var knownMedia = [...]string{GPU: "GPU", CPU: "CPU", Storage: "STORAGE"}

// Default weights of a block by medium, relative to one on the device.
const (
	DefaultGPUWeight     = 1.0
	DefaultCPUWeight     = 0.8
	DefaultStorageWeight = 0.5
	DefaultUnknownWeight = 0.3
)

// media is the registry of one index; its caller locks.
type media struct {
	names   []string
	weights [MaxMedia]float64
	byName  map[string]Medium // upper case
	given   map[string]float64
	unknown float64
}

func (m *media) init(weights map[string]float64, unknown float64) error {
	m.byName = make(map[string]Medium)
	m.given = make(map[string]float64, len(weights))
	for name, w := range weights {
		if math.IsNaN(w) || w < 0 || w > 1 {
			return fmt.Errorf("%w: weight %v of medium %q is not within 0..1", ErrOptions, w, name)
		}
		as := cmp.Or(strings.ToUpper(name), knownMedia[GPU])
		if _, ok := m.given[as]; ok {
			return fmt.Errorf("%w: medium %.64q has two weights (names are equal in any case, and \"\" is the device)", ErrOptions, as)
		}
		m.given[as] = w
	}
	m.unknown = unknown
	for i, name := range knownMedia {
		m.add(name, [...]float64{DefaultGPUWeight, DefaultCPUWeight, DefaultStorageWeight}[i])
	}
	return nil
}

func (m *media) add(name string, weight float64) Medium {
	if w, ok := m.given[name]; ok {
		weight = w
	}
	id := Medium(len(m.names))
	if id == overflowMedium {
		name = "OTHER"
	}
	m.names = append(m.names, name)
	m.weights[id] = weight
	m.byName[name] = id
	return id
}

// lookup finds a medium without registering it and without allocating for the
// names that engines send.
func (m *media) lookup(name string) (Medium, bool) {
	switch {
	case name == "" || strings.EqualFold(name, "GPU"):
		return GPU, true
	case strings.EqualFold(name, "CPU"):
		return CPU, true
	case strings.EqualFold(name, "STORAGE"):
		return Storage, true
	}
	if id, ok := m.byName[name]; ok {
		return id, true
	}
	id, ok := m.byName[strings.ToUpper(name)]
	return id, ok
}

// register finds or adds a medium.
func (m *media) register(name string) Medium {
	name = name[:min(len(name), maxMediumName)]
	if id, ok := m.lookup(name); ok {
		return id
	}
	if len(m.names) == MaxMedia {
		return overflowMedium
	}
	return m.add(strings.ToUpper(strings.Clone(name)), m.unknown)
}
