"""Serves one model with PyTorch and dynamic batching.

    python3 serve.py MODEL_DIRECTORY [--threads N] [--max-batch N] [--max-delay MS]

It prints "listening ADDRESS". Messages are a length of four bytes, big-endian, and so many bytes of JSON; a connection may
have any number of requests under way, and answers come as they are ready:

    {"id": 1, "input": "hello", "max_tokens": 16}
    {"id": 1, "text": "...", "input_tokens": 5, "output_tokens": 16}     or {"id": 1, "error": "..."}

One thread reads and writes with asyncio, another one runs the model. It ends with its standard input.
"""

import argparse
import asyncio
import json
import os
import sys
import threading

import torch

import networks
from batcher import Batcher

LONGEST = 1 << 20


class Connection(asyncio.Protocol):
    """Reads requests of one client."""

    def __init__(self, batcher):
        self.batcher, self.buffer, self.transport = batcher, bytearray(), None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.buffer += data
        at = 0
        while len(self.buffer) - at >= 4:
            end = at + 4 + int.from_bytes(self.buffer[at : at + 4], "big")
            if end - at > LONGEST:
                self.transport.close()
                return
            if len(self.buffer) < end:
                break
            try:
                request = json.loads(self.buffer[at + 4 : end])
                number = request["id"]
            except (ValueError, TypeError, KeyError):
                self.transport.close()  # nobody could be told whose answer an error is
                return
            at = end
            if isinstance(request.get("input"), str):
                self.batcher.submit((self, request))
            else:
                self.answer({"id": number, "error": "input: a text wanted"})
        del self.buffer[:at]

    def answer(self, answer):
        self.write(frame(answer))

    def write(self, messages):
        if not self.transport.is_closing():
            self.transport.write(messages)


def frame(answer):
    text = json.dumps(answer).encode()
    return len(text).to_bytes(4, "big") + text


def predict(model, requests):
    """Return an answer for each request. One that the model cannot read fails alone."""
    try:
        answers = model(requests)
    except Exception as error:  # of any of them
        if len(requests) == 1:
            return [{"id": requests[0]["id"], "error": f"{type(error).__name__}: {error}"}]
        return [answer for r in requests for answer in predict(model, [r])]
    for request, answer in zip(requests, answers):
        answer["id"] = request["id"]
    return answers


def run(batcher, model, loop):
    """Run batches until the batcher is closed. All answers of a batch to one client are written at once."""
    with torch.inference_mode():
        while (batch := batcher.take()) is not None:
            messages = {}
            for (connection, _), answer in zip(batch, predict(model, [r for _, r in batch])):
                messages.setdefault(connection, []).append(frame(answer))
            for connection, frames in messages.items():
                loop.call_soon_threadsafe(connection.write, b"".join(frames))


async def serve(options):
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    sys.setswitchinterval(options.switch_ms / 1000)
    model = networks.load(options.model, jit=options.jit, packed=options.packed)
    batcher, loop = Batcher(options.max_batch, options.max_delay / 1000), asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(batcher), options.host, options.port)
    thread = threading.Thread(target=run, args=(batcher, model, loop))
    thread.start()
    host, port = server.sockets[0].getsockname()[:2]
    print(f"listening {host}:{port}", flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)
    server.close()
    batcher.close()
    thread.join()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", help="directory of a model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of a batch")
    parser.add_argument("--max-batch", type=int, default=64, help="requests")
    parser.add_argument("--max-delay", type=float, default=0, help="how long a batch may wait to become full, ms")
    parser.add_argument("--switch-ms", type=float, default=5, help="how long a thread may keep the interpreter, ms")
    parser.add_argument("--jit", action=argparse.BooleanOptionalAction, default=True, help="compile the loops of generation")
    parser.add_argument("--packed", action=argparse.BooleanOptionalAction, default=True, help="leave padding out")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
