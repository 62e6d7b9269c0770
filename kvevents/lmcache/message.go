package lmcache

import (
	"reflect"
	"strconv"
)

// Message is one of the protocol's classes: a pointer to a struct of this
// package that is named like LMCache's class (lmcache/v1/cache_controller/message.py).
// Fields are in the order in which LMCache sends them. An optional field is a
// pointer, nil for None.
type Message interface{ isMessage() }

// message marks the structs that are classes.
type message struct{}

func (message) isMessage() {}

// Class returns the class of a message, such as "LookupMsg".
func Class(m Message) string { return reflect.TypeOf(m).Elem().Name() }

// Key is the hash of a chunk: an integer of up to 64 bits. Unsigned hashes are
// what the digest algorithms give (the first 8 bytes), signed ones Python's. The
// zero value is the key 0. Keys can be compared and be keys of maps.
type Key struct {
	// Bits is the integer, in two's complement where Negative is set.
	Bits     uint64
	Negative bool
}

// String returns the integer in decimal.
func (k Key) String() string {
	if k.Negative {
		return strconv.FormatInt(int64(k.Bits), 10)
	}
	return strconv.FormatUint(k.Bits, 10)
}

// Raw is a value of free type, as msgpack. It is a copy.
type Raw []byte

// Messages that workers push, without a reply.
type (
	// DeRegisterMsg takes a worker off.
	DeRegisterMsg struct {
		message
		InstanceID string `msg:"instance_id"`
		WorkerID   int64  `msg:"worker_id"`
		IP         string `msg:"ip"`
		Port       int64  `msg:"port"`
	}

	// KVOperationMsg is the base of KVAdmitMsg and KVEvictMsg; it is not sent.
	KVOperationMsg struct {
		message
		InstanceID string `msg:"instance_id"`
		WorkerID   int64  `msg:"worker_id"`
		Key        Key    `msg:"key"`
		Location   string `msg:"location"`
		SeqNum     int64  `msg:"seq_num,optional"` // from 0.3.15
	}

	// KVAdmitMsg tells of a chunk that came to a location.
	KVAdmitMsg KVOperationMsg

	// KVEvictMsg tells of a chunk that left a location.
	KVEvictMsg KVOperationMsg

	// KVOpEvent is one operation of a BatchedKVOperationMsg.
	KVOpEvent struct {
		message
		OpType OpType `msg:"op_type"`
		Key    Key    `msg:"key"`
		SeqNum int64  `msg:"seq_num"`
	}

	// BatchedKVOperationMsg replaces KVAdmitMsg and KVEvictMsg from 0.3.15.
	BatchedKVOperationMsg struct {
		message
		InstanceID string      `msg:"instance_id"`
		WorkerID   int64       `msg:"worker_id"`
		Location   string      `msg:"location"`
		Operations []KVOpEvent `msg:"operations"`
	}

	// FullSyncBatchMsg is a part of all that a location holds.
	FullSyncBatchMsg struct {
		message
		InstanceID string `msg:"instance_id"`
		WorkerID   int64  `msg:"worker_id"`
		Location   string `msg:"location"`
		SyncID     string `msg:"sync_id"`
		BatchID    int64  `msg:"batch_id"`
		Keys       []Key  `msg:"keys"`
	}

	// FullSyncEndMsg ends a full sync.
	FullSyncEndMsg struct {
		message
		InstanceID      string `msg:"instance_id"`
		WorkerID        int64  `msg:"worker_id"`
		Location        string `msg:"location"`
		SyncID          string `msg:"sync_id"`
		ActualTotalKeys int64  `msg:"actual_total_keys"`
	}
)

// OpType is what an operation does.
type OpType string

// The operations.
const (
	Admit OpType = "admit"
	Evict OpType = "evict"
)

// Requests of workers and their replies.
type (
	// RegisterMsg enters a worker. To 0.3.9 it is pushed and has no reply.
	RegisterMsg struct {
		message
		InstanceID string `msg:"instance_id"`
		WorkerID   int64  `msg:"worker_id"`
		IP         string `msg:"ip"`
		Port       int64  `msg:"port"`
		// PeerInitURL is where other workers fetch chunks; to 0.3.9 it is called
		// distributed_url.
		PeerInitURL *string `msg:"peer_init_url,was=distributed_url"`
	}

	// RegisterRetMsg answers RegisterMsg, from 0.3.15.
	RegisterRetMsg struct {
		message
		ExtraConfig map[string]string `msg:"extra_config,optional"`
	}

	// HeartbeatMsg says that a worker lives. To 0.3.9 it is pushed.
	HeartbeatMsg RegisterMsg

	// HeartbeatRetMsg answers HeartbeatMsg, from 0.3.15.
	HeartbeatRetMsg struct {
		message
		Commands []HeartbeatCommand `msg:"commands,optional"`
	}

	// HeartbeatCommand is what a worker is asked to do. CommandType is "full_sync" in
	// all releases.
	HeartbeatCommand struct {
		CommandType string  `msg:"command_type"`
		Reason      *string `msg:"reason,optional"`
		Args        Raw     `msg:"args,optional"` // a map; nil for None
	}

	// BatchedP2PLookupMsg asks who else holds chunks.
	BatchedP2PLookupMsg struct {
		message
		Hashes     []Key  `msg:"hashes"`
		InstanceID string `msg:"instance_id"`
		WorkerID   int64  `msg:"worker_id"`
	}

	// BatchedP2PLookupRetMsg answers BatchedP2PLookupMsg.
	BatchedP2PLookupRetMsg struct {
		message
		LayoutInfo []PeerLayout `msg:"layout_info"`
	}

	// PeerLayout is how many of the chunks asked for one location of a peer holds
	// from the start.
	PeerLayout struct {
		_           struct{} `msg:",tuple"`
		InstanceID  string
		Location    string
		HitChunks   int64
		PeerInitURL string
	}

	// FullSyncStartMsg asks to tell all that a location holds.
	FullSyncStartMsg struct {
		message
		InstanceID string `msg:"instance_id"`
		WorkerID   int64  `msg:"worker_id"`
		Location   string `msg:"location"`
		SyncID     string `msg:"sync_id"`
		TotalKeys  int64  `msg:"total_keys"`
		BatchCount int64  `msg:"batch_count"`
	}

	// FullSyncStartRetMsg answers FullSyncStartMsg.
	FullSyncStartRetMsg struct {
		message
		SyncID   string  `msg:"sync_id"`
		Accepted bool    `msg:"accepted"`
		ErrorMsg *string `msg:"error_msg,optional"`
	}

	// FullSyncStatusMsg asks what is missing of a full sync.
	FullSyncStatusMsg struct {
		message
		InstanceID string `msg:"instance_id"`
		WorkerID   int64  `msg:"worker_id"`
		SyncID     string `msg:"sync_id"`
	}

	// FullSyncStatusRetMsg answers FullSyncStatusMsg.
	FullSyncStatusRetMsg struct {
		message
		SyncID         string  `msg:"sync_id"`
		IsComplete     bool    `msg:"is_complete"`
		GlobalProgress float64 `msg:"global_progress"`
		CanExitFreeze  bool    `msg:"can_exit_freeze"`
		MissingBatches []int64 `msg:"missing_batches,optional"`
	}

	// ErrorMsg answers what failed.
	ErrorMsg struct {
		message
		Error string `msg:"error"`
	}
)

// Requests of the controller to workers and their replies.
type (
	// ClearWorkerMsg empties a location.
	ClearWorkerMsg struct {
		message
		WorkerEventID string `msg:"worker_event_id"`
		Location      string `msg:"location"`
	}

	// PinWorkerMsg keeps a prompt's chunks.
	PinWorkerMsg struct {
		message
		WorkerEventID string   `msg:"worker_event_id"`
		Location      string   `msg:"location"`
		Tokens        []uint64 `msg:"tokens"`
	}

	// CompressWorkerMsg compresses a prompt's chunks, or all.
	CompressWorkerMsg struct {
		message
		WorkerEventID string    `msg:"worker_event_id"`
		Method        string    `msg:"method"`
		Location      string    `msg:"location"`
		Tokens        *[]uint64 `msg:"tokens,optional"`
	}

	// DecompressWorkerMsg undoes CompressWorkerMsg.
	DecompressWorkerMsg CompressWorkerMsg

	// MoveWorkerMsg moves or copies a prompt's chunks to another worker's location.
	MoveWorkerMsg struct {
		message
		WorkerEventID string    `msg:"worker_event_id"`
		OldPosition   string    `msg:"old_position"`
		NewPosition   [2]string `msg:"new_position"`
		Tokens        *[]uint64 `msg:"tokens,optional"`
		Copy          *bool     `msg:"copy,optional"`
	}

	// HealthWorkerMsg asks a worker whether it is well.
	HealthWorkerMsg struct {
		message
		WorkerEventID string `msg:"worker_event_id"`
	}

	// CheckFinishWorkerMsg asks for what has become of an event.
	CheckFinishWorkerMsg HealthWorkerMsg

	// ClearWorkerRetMsg and the four that follow say how many tokens it was.
	ClearWorkerRetMsg struct {
		message
		NumTokens int64 `msg:"num_tokens"`
	}

	PinWorkerRetMsg        ClearWorkerRetMsg // answers PinWorkerMsg
	CompressWorkerRetMsg   ClearWorkerRetMsg // answers CompressWorkerMsg
	DecompressWorkerRetMsg ClearWorkerRetMsg // answers DecompressWorkerMsg
	MoveWorkerRetMsg       ClearWorkerRetMsg // answers MoveWorkerMsg

	// HealthWorkerRetMsg answers HealthWorkerMsg.
	HealthWorkerRetMsg struct {
		message
		ErrorCode int64 `msg:"error_code"`
	}

	// CheckFinishWorkerRetMsg answers CheckFinishWorkerMsg.
	CheckFinishWorkerRetMsg struct {
		message
		Status string `msg:"status"`
	}
)

// Requests of an orchestrator to the controller and their replies.
type (
	// QueryInstMsg asks which instance is at an address.
	QueryInstMsg struct {
		message
		EventID string `msg:"event_id"`
		IP      string `msg:"ip"`
	}

	// QueryInstRetMsg answers QueryInstMsg.
	QueryInstRetMsg struct {
		message
		EventID    string  `msg:"event_id"`
		InstanceID *string `msg:"instance_id"`
	}

	// LookupMsg asks who holds a prompt.
	LookupMsg struct {
		message
		EventID string   `msg:"event_id"`
		Tokens  []uint64 `msg:"tokens"`
	}

	// LookupRetMsg answers LookupMsg.
	LookupRetMsg struct {
		message
		EventID    string `msg:"event_id"`
		LayoutInfo Layout `msg:"layout_info"`
	}

	// ClearMsg empties a location of an instance.
	ClearMsg struct {
		message
		EventID    string `msg:"event_id"`
		InstanceID string `msg:"instance_id"`
		Location   string `msg:"location"`
	}

	// PinMsg keeps a prompt's chunks.
	PinMsg struct {
		message
		EventID    string   `msg:"event_id"`
		InstanceID string   `msg:"instance_id"`
		Location   string   `msg:"location"`
		Tokens     []uint64 `msg:"tokens"`
	}

	// CompressMsg compresses a prompt's chunks, or all.
	CompressMsg struct {
		message
		EventID    string    `msg:"event_id"`
		InstanceID string    `msg:"instance_id"`
		Method     string    `msg:"method"`
		Location   string    `msg:"location"`
		Tokens     *[]uint64 `msg:"tokens,optional"`
	}

	// DecompressMsg undoes CompressMsg.
	DecompressMsg CompressMsg

	// MoveMsg moves or copies a prompt's chunks: positions are instance and location.
	MoveMsg struct {
		message
		EventID     string    `msg:"event_id"`
		OldPosition [2]string `msg:"old_position"`
		NewPosition [2]string `msg:"new_position"`
		Tokens      *[]uint64 `msg:"tokens,optional"`
		Copy        *bool     `msg:"copy,optional"`
	}

	// HealthMsg asks whether an instance is well.
	HealthMsg struct {
		message
		EventID    string `msg:"event_id"`
		InstanceID string `msg:"instance_id"`
	}

	// CheckFinishMsg asks for what has become of an event.
	CheckFinishMsg struct {
		message
		EventID string `msg:"event_id"`
	}

	// QueryWorkerInfoMsg asks for workers; nil or none are all of the instance.
	QueryWorkerInfoMsg struct {
		message
		EventID    string   `msg:"event_id"`
		InstanceID string   `msg:"instance_id"`
		WorkerIDs  *[]int64 `msg:"worker_ids"`
	}

	// ClearRetMsg and the four that follow say how many tokens it was.
	ClearRetMsg struct {
		message
		EventID   string `msg:"event_id"`
		NumTokens int64  `msg:"num_tokens"`
	}

	PinRetMsg        ClearRetMsg // answers PinMsg
	CompressRetMsg   ClearRetMsg // answers CompressMsg
	DecompressRetMsg ClearRetMsg // answers DecompressMsg
	MoveRetMsg       ClearRetMsg // answers MoveMsg

	// HealthRetMsg answers HealthMsg.
	HealthRetMsg struct {
		message
		EventID string `msg:"event_id"`
		// ErrorCodes by worker, whose number is written in decimal.
		ErrorCodes map[string]int64 `msg:"error_codes,intkeys"`
	}

	// CheckFinishRetMsg answers CheckFinishMsg.
	CheckFinishRetMsg CheckFinishWorkerRetMsg

	// QueryWorkerInfoRetMsg answers QueryWorkerInfoMsg.
	QueryWorkerInfoRetMsg struct {
		message
		EventID     string       `msg:"event_id"`
		WorkerInfos []WorkerInfo `msg:"worker_infos"`
	}

	// WorkerInfo is a registered worker. Times are in seconds since 1970.
	WorkerInfo struct {
		InstanceID        string  `msg:"instance_id"`
		WorkerID          int64   `msg:"worker_id"`
		IP                string  `msg:"ip"`
		Port              int64   `msg:"port"`
		PeerInitURL       *string `msg:"peer_init_url,was=distributed_url"`
		RegistrationTime  float64 `msg:"registration_time"`
		LastHeartbeatTime float64 `msg:"last_heartbeat_time"`
	}
)

// Layout is a map from instance to location and tokens, in the order in which the
// controller made it.
type Layout []Placement

// Placement is where the controller found a prompt's chunks: Tokens is the end of
// the last chunk of which the instance was the first holder.
type Placement struct {
	InstanceID string
	Location   string
	Tokens     int64
}

// classes are all messages by name.
var classes = func() map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for _, m := range []Message{
		&RegisterMsg{}, &DeRegisterMsg{}, &KVOperationMsg{}, &KVAdmitMsg{}, &KVEvictMsg{}, &KVOpEvent{}, &BatchedKVOperationMsg{},
		&FullSyncBatchMsg{}, &FullSyncEndMsg{}, &HeartbeatMsg{}, &BatchedP2PLookupMsg{}, &FullSyncStartMsg{}, &FullSyncStatusMsg{},
		&RegisterRetMsg{}, &HeartbeatRetMsg{}, &BatchedP2PLookupRetMsg{}, &FullSyncStartRetMsg{}, &FullSyncStatusRetMsg{},
		&ClearWorkerMsg{}, &PinWorkerMsg{}, &CompressWorkerMsg{}, &DecompressWorkerMsg{}, &MoveWorkerMsg{}, &HealthWorkerMsg{},
		&CheckFinishWorkerMsg{}, &ClearWorkerRetMsg{}, &PinWorkerRetMsg{}, &CompressWorkerRetMsg{}, &DecompressWorkerRetMsg{},
		&MoveWorkerRetMsg{}, &HealthWorkerRetMsg{}, &CheckFinishWorkerRetMsg{},
		&QueryInstMsg{}, &LookupMsg{}, &ClearMsg{}, &PinMsg{}, &CompressMsg{}, &DecompressMsg{}, &MoveMsg{}, &HealthMsg{},
		&CheckFinishMsg{}, &QueryWorkerInfoMsg{}, &QueryInstRetMsg{}, &LookupRetMsg{}, &ClearRetMsg{}, &PinRetMsg{},
		&CompressRetMsg{}, &DecompressRetMsg{}, &MoveRetMsg{}, &HealthRetMsg{}, &CheckFinishRetMsg{}, &QueryWorkerInfoRetMsg{},
		&ErrorMsg{},
	} {
		all[Class(m)] = reflect.TypeOf(m).Elem()
	}
	return all
}()
