package zmtp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvatlas/kvatlas/kvevents/zmtp"
	"github.com/kvatlas/kvatlas/kvevents/zmtp/zmtptest"
)

// The suite against PUB and ROUTER of pyzmq, which is what engines use. It needs
// a Python with pyzmq, named by KVATLAS_PYZMQ; testdata/pyzmq/setup.sh makes one.
func TestConformancePyZMQ(t *testing.T) {
	python := os.Getenv("KVATLAS_PYZMQ")
	if python == "" {
		t.Skip("KVATLAS_PYZMQ does not name a Python with pyzmq; testdata/pyzmq/setup.sh makes one")
	}
	pauses := []time.Duration{200 * time.Millisecond, 5 * time.Second, time.Minute}
	if testing.Short() {
		pauses = pauses[:1]
	}
	py := startPython(t, python)
	zmtptest.Suite{
		Transport: zmtp.Native,
		Peers: zmtptest.Peers{
			NewPublisher: func(highWater int) (zmtptest.Publisher, error) { return py.open("pub", highWater) },
			NewRouter:    func(highWater int) (zmtptest.Router, error) { return py.open("router", highWater) },
		},
		Pauses:    pauses,
		TellsLoss: true,
	}.Run(t)
}

// pyProcess is testdata/pyzmq/peers.py; see there for what is said.
type pyProcess struct {
	mu      sync.Mutex
	in      *bufio.Writer
	last    int
	waiting map[int]chan pyAnswer
	gone    error
}

type pyAnswer struct {
	status string
	frames [][]byte
}

func startPython(t *testing.T, python string) *pyProcess {
	cmd := exec.Command(python, "testdata/pyzmq/peers.py")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	py := &pyProcess{in: bufio.NewWriter(in), waiting: make(map[int]chan pyAnswer)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		py.listen(bufio.NewReader(out))
	}()
	t.Cleanup(func() {
		in.Close()
		<-done
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return py
}

func (py *pyProcess) listen(out *bufio.Reader) {
	for {
		number, answer, err := readAnswer(out)
		py.mu.Lock()
		if err != nil {
			py.gone = errors.New("python has ended")
			for _, c := range py.waiting {
				close(c)
			}
			clear(py.waiting)
			py.mu.Unlock()
			return
		}
		py.waiting[number] <- answer
		delete(py.waiting, number)
		py.mu.Unlock()
	}
}

func readAnswer(out *bufio.Reader) (number int, a pyAnswer, err error) {
	line, err := out.ReadString('\n')
	if err != nil {
		return 0, a, err
	}
	words := strings.Fields(line)
	if number, err = strconv.Atoi(words[0]); err != nil {
		return 0, a, err
	}
	a.status = words[1]
	for _, w := range words[2:] {
		n, err := strconv.Atoi(w)
		if err != nil {
			return 0, a, err
		}
		f := make([]byte, n)
		if _, err := io.ReadFull(out, f); err != nil {
			return 0, a, err
		}
		a.frames = append(a.frames, f)
	}
	return number, a, nil
}

// say sends a request; the answer comes by the channel, unless there is none.
func (py *pyProcess) say(op string, socket int, arg string, frames ...[]byte) (chan pyAnswer, error) {
	py.mu.Lock()
	defer py.mu.Unlock()
	if py.gone != nil {
		return nil, py.gone
	}
	py.last++
	c := make(chan pyAnswer, 1)
	if op != "send" {
		py.waiting[py.last] = c
	}
	fmt.Fprintf(py.in, "%d %s %d %s", py.last, op, socket, arg)
	for _, f := range frames {
		fmt.Fprintf(py.in, " %d", len(f))
	}
	py.in.WriteByte('\n')
	for _, f := range frames {
		py.in.Write(f)
	}
	return c, py.in.Flush()
}

func (py *pyProcess) ask(op string, socket int, arg string) (pyAnswer, error) {
	c, err := py.say(op, socket, arg)
	if err != nil {
		return pyAnswer{}, err
	}
	a, ok := <-c
	switch {
	case !ok:
		return a, errors.New("python has ended")
	case a.status == "error":
		return a, errors.New(string(a.frames[0]))
	}
	return a, nil
}

// pySocket is one socket of the process.
type pySocket struct {
	py   *pyProcess
	name int
	once sync.Once
}

func (py *pyProcess) open(kind string, highWater int) (*pySocket, error) {
	py.mu.Lock()
	py.last++
	s := &pySocket{py: py, name: py.last}
	py.mu.Unlock()
	_, err := py.ask("new", s.name, fmt.Sprintf("%s:%d", kind, highWater))
	return s, err
}

func (s *pySocket) Bind(endpoint string) (string, error) {
	a, err := s.py.ask("bind", s.name, endpoint)
	if err != nil {
		return "", err
	}
	return string(a.frames[0]), nil
}

func (s *pySocket) Dial(endpoint string) error {
	_, err := s.py.ask("dial", s.name, endpoint)
	return err
}

func (s *pySocket) Send(frames ...[]byte) error {
	_, err := s.py.say("send", s.name, "-", frames...)
	return err
}

func (s *pySocket) Recv(ctx context.Context, m *zmtp.Message) error {
	for {
		a, err := s.py.ask("recv", s.name, "-")
		if err != nil {
			return err
		}
		if a.status == "ok" {
			*m = zmtp.Message{Frames: a.frames}
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *pySocket) Close() (err error) {
	s.once.Do(func() { _, err = s.py.ask("close", s.name, "-") })
	return err
}
