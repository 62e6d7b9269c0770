"""PUB and ROUTER sockets of pyzmq, driven over standard input and output.

A request is a line "ID OP SOCKET ARG SIZE...", then the bytes of frames of these
sizes. The answer is a line "ID STATUS SIZE...", then frames. Status is "ok",
"none" (nothing to receive) or "error" (with one frame, the reason). A send has no
answer, so that many can be on the way; one that fails ends the program.
"""

import sys

import zmq

KINDS = {"pub": zmq.PUB, "router": zmq.ROUTER}


def main():
    ctx = zmq.Context(io_threads=1)
    ctx.max_sockets = 10000
    sockets = {}
    read, write = sys.stdin.buffer, sys.stdout.buffer

    def answer(number, status, frames=()):
        sizes = "".join(f" {len(f)}" for f in frames)
        write.write(f"{number} {status}{sizes}\n".encode())
        for frame in frames:
            write.write(frame)
        write.flush()

    while True:
        line = read.readline().decode().split()
        if not line:
            break
        number, op, name, arg = line[:4]
        frames = [read.read(int(size)) for size in line[4:]]
        if op == "send":
            if name in sockets:
                sockets[name].send_multipart(frames, zmq.DONTWAIT)
            continue
        try:
            if op == "new":
                kind, high_water = arg.split(":")
                s = ctx.socket(KINDS[kind])
                s.sndhwm, s.linger = int(high_water), 0
                sockets[name] = s
                answer(number, "ok")
            elif op == "bind":
                sockets[name].ipv6 = "[" in arg
                sockets[name].bind(arg)
                answer(number, "ok", [sockets[name].last_endpoint.rstrip(b"\0")])
            elif op == "dial":
                sockets[name].ipv6 = "[" in arg
                sockets[name].connect(arg)
                answer(number, "ok")
            elif op == "recv":
                try:
                    answer(number, "ok", sockets[name].recv_multipart(zmq.DONTWAIT))
                except zmq.Again:
                    answer(number, "none")
            elif op == "close":
                sockets.pop(name).close()
                answer(number, "ok")
        except (zmq.ZMQError, KeyError) as e:
            answer(number, "error", [str(e).encode()])


main()
