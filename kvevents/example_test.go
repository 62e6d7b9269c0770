package kvevents_test

import (
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"github.com/kvatlas/kvatlas/kvevents"
	"github.com/kvatlas/kvatlas/kvevents/kveventstest"
)

func ExampleDecoder() {
	// The third frame of a message of vLLM.
	payload, _ := hex.DecodeString("92cb3ff40000000000009196ab426c6f636b53746f726564912a07920102" + "02c0")
	var dec kvevents.Decoder
	var batch kvevents.Batch // reuse it
	if err := dec.Decode(payload, &batch); err != nil {
		fmt.Println(err)
		return
	}
	for _, ev := range batch.Events {
		fmt.Println(ev.Kind, ev.Hashes, "after", ev.Parent, "tokens", ev.Tokens)
	}
	// Output: BlockStored [42] after 7 tokens [1 2]
}

func ExampleAppendBatch() {
	form, err := kvevents.FormFor("vllm", "0.32.0")
	if err != nil {
		fmt.Println(err)
		return
	}
	batch := kvevents.Batch{Timestamp: 1, Events: []kvevents.Event{{Kind: kvevents.AllBlocksCleared}}}
	fmt.Printf("%x\n", kvevents.AppendBatch(nil, &batch, form))
	// Output: 92cb3ff00000000000009181a474797065b0416c6c426c6f636b73436c6561726564
}

// index is the least that a Handler can be: the blocks of each source.
type index struct {
	mu     sync.Mutex
	blocks map[kvevents.Source]map[uint64]int
}

func (x *index) Apply(src kvevents.Source, _ uint64, b *kvevents.Batch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	held := x.blocks[src]
	if held == nil {
		held = map[uint64]int{}
		x.blocks[src] = held
	}
	for i := range b.Events {
		switch ev := &b.Events[i]; ev.Kind {
		case kvevents.BlockStored:
			for _, h := range ev.Hashes {
				held[h]++ // copies: each is announced and removed on its own
			}
		case kvevents.BlockRemoved:
			for _, h := range ev.Hashes {
				if held[h]--; held[h] <= 0 {
					delete(held, h)
				}
			}
		case kvevents.AllBlocksCleared:
			clear(held)
		}
	}
}

func (x *index) Clear(src kvevents.Source, _ kvevents.ClearCause) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.blocks, src)
}

func (x *index) Lost(l kvevents.Loss) { fmt.Println(l) }

func ExampleSubscriber() {
	// In place of a real engine.
	engine, err := kveventstest.Start(kveventstest.Options{Release: "0.32.0", Replay: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	engine.Serve(make([]uint32, 100)) // before we listen: 6 blocks of 16 tokens

	x := &index{blocks: map[kvevents.Source]map[uint64]int{}}
	sub, err := kvevents.NewSubscriber(kvevents.SubscriberOptions{Handler: x})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sub.Close()
	err = sub.Add(kvevents.Target{Worker: "pod-1", Endpoint: engine.Endpoint(), ReplayEndpoint: engine.ReplayEndpoint()})
	if err != nil {
		fmt.Println(err)
		return
	}
	for sub.AppendStatus(nil)[0].State != kvevents.Live {
		time.Sleep(time.Millisecond)
	}
	x.mu.Lock()
	fmt.Println(len(x.blocks[kvevents.Source{Worker: "pod-1"}]), "blocks")
	x.mu.Unlock()
	// Output: 6 blocks
}

// printer is a Sink.
type printer struct{}

func (printer) Apply(seq uint64, _ *kvevents.Batch) { fmt.Println("apply", seq) }
func (printer) Clear(c kvevents.ClearCause)         { fmt.Println("clear:", c) }
func (printer) Lost(l kvevents.Loss)                { fmt.Println("lost", l.From, "to", l.To) }

// A stream without sockets: messages in, ordered batches out.
func ExampleStream() {
	s, err := kvevents.NewStream(kvevents.StreamOptions{Replay: true}, printer{})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Now()
	message := func(seq uint64) kvevents.Message {
		return kvevents.Message{Seq: seq, Payload: kvevents.AppendBatch(nil, &kvevents.Batch{Timestamp: float64(seq)}, kvevents.Form{})}
	}
	s.Message(now, 1, message(0))
	s.Message(now, 1, message(3)) // 1 and 2 are missing
	request, _ := s.Request()
	fmt.Println("replay from", request.From)
	for _, seq := range []uint64{1, 2} {
		s.Reply(now, request.ID, kvevents.Reply{Seq: seq, Payload: message(seq).Payload})
	}
	fmt.Println(s.Status(now).State)
	// Output:
	// apply 0
	// replay from 1
	// apply 1
	// apply 2
	// apply 3
	// live
}
