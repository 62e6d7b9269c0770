package zmtp_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
)

// A subscriber and a publisher in one process. A subscriber joins when it joins:
// what was published before is not sent to it.
func ExampleSub() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	pub, err := zmtp.NewPub(zmtp.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer pub.Close()
	endpoint, err := pub.Bind("tcp://127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}

	sub, err := zmtp.NewSub(zmtp.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	if err := sub.Subscribe("kv"); err != nil {
		log.Fatal(err)
	}
	if err := sub.Dial(endpoint); err != nil {
		log.Fatal(err)
	}
	for pub.Subscriptions() == 0 {
		time.Sleep(time.Millisecond)
	}
	for seq := range uint64(3) {
		if err := pub.Send([]byte("kv"), binary.BigEndian.AppendUint64(nil, seq), []byte("batch")); err != nil {
			log.Fatal(err)
		}
	}

	var m zmtp.Message // reused, so that receiving does not allocate
	for range 3 {
		err := sub.Recv(ctx, &m)
		if lost, ok := errors.AsType[*zmtp.LossError](err); ok {
			fmt.Println("we were too slow:", lost.Messages)
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %d %s\n", m.Frames[0], binary.BigEndian.Uint64(m.Frames[1]), m.Frames[2])
	}
	// Output:
	// kv 0 batch
	// kv 1 batch
	// kv 2 batch
}

// A replay request as engines answer it: an empty frame, then the number.
func ExampleDealer() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	router, err := zmtp.NewRouter(zmtp.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer router.Close()
	endpoint, err := router.Bind("tcp://127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		var m zmtp.Message
		if router.Recv(ctx, &m) == nil {
			client, start := m.Frames[0], m.Frames[2]
			router.Send(client, nil, start, []byte("batch"))
		}
	}()

	dealer, err := zmtp.NewDealer(zmtp.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dealer.Close()
	if err := dealer.Dial(endpoint); err != nil {
		log.Fatal(err)
	}
	if err := dealer.Send(ctx, nil, binary.BigEndian.AppendUint64(nil, 7)); err != nil {
		log.Fatal(err)
	}
	var m zmtp.Message
	if err := dealer.Recv(ctx, &m); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q\n", m.Frames)
	// Output: ["" "\x00\x00\x00\x00\x00\x00\x00\a" "batch"]
}
