"""What the child process runs: llama.cpp's own server, on a loopback port, for as long as the parent lives.

It imports nothing of ours, and is told what to do in one line of JSON on its standard input: a command line or an
environment would show the key to others. When the model is loaded it answers with one line on its standard output.
The input then stays open and silent until the parent closes it or dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
from typing import Any


def main() -> None:
    """Serve until the input ends."""
    wish = json.loads(sys.stdin.buffer.readline())
    _end_with(sys.stdin.fileno())
    answer = _answer_line()
    server = _served(wish)
    os.write(answer, json.dumps({"address": server.listening_address}).encode() + b"\n")
    sys.stdin.buffer.read()
    os._exit(0)  # at once: nobody is left to wait for an orderly end of the threads in there


def _end_with(pipe: int) -> None:
    """Let the kernel end us when the other end is closed, even while a model is loaded and no Python code can run.

    ``PR_SET_PDEATHSIG`` would not do: it means the parent's thread, and that ends earlier.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)


def _answer_line() -> int:
    """The standard output for ourselves. What libraries print goes where their errors go."""
    answer = os.dup(1)
    os.dup2(2, 1)
    return answer


def _served(wish: dict[str, Any]) -> Any:
    import xllamacpp  # noqa: PLC0415 - it may print

    params = xllamacpp.CommonParams()
    params.model.path = wish["model"]
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], wish["port"], [wish["key"]]
    params.n_ctx, params.n_parallel, params.kv_unified = wish["context"], wish["slots"], True
    params.cpuparams.n_threads, params.n_gpu_layers = wish["threads"] or -1, wish["gpu_layers"]
    params.ui = params.endpoint_slots = False
    params.offline = True
    try:
        return xllamacpp.Server(params)
    except RuntimeError:
        sys.exit(1)  # why was printed already


if __name__ == "__main__":
    main()
