//go:build cgo && !windows

package libzmq_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/libzmq"
	"github.com/kvatlas/kvatlas/kvevents/zmtp"
	"github.com/pebbe/zmq4"
)

// A subscriber that encrypts with CURVE.
func ExampleTransport() {
	public, secret, err := zmq4.NewCurveKeypair()
	if err != nil {
		log.Fatal(err)
	}
	engineKey, _, err := zmq4.NewCurveKeypair() // in life, read from a file
	if err != nil {
		log.Fatal(err)
	}
	var transport zmtp.Transport = libzmq.Transport{
		Curve: &libzmq.Curve{PublicKey: public, SecretKey: secret, ServerKey: engineKey},
	}
	sub, err := transport.NewSub(zmtp.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	if err := sub.Subscribe(""); err != nil {
		log.Fatal(err)
	}
	if err := sub.Dial("tcp://127.0.0.1:5557"); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	var m zmtp.Message
	fmt.Println(sub.Recv(ctx, &m))
	// Output: context deadline exceeded
}
