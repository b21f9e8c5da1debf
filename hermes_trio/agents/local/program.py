"""The program of the child process.

Llama.cpp's own server, on a loopback port, for as long as the parent lives.

It imports no other module of this package. Its launch spec is one line of JSON on standard input,
because a command line or an environment variable would show the key to other users. When the model
is loaded, it writes one line to standard output. Standard input then stays open and silent until the
parent closes it or dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys


def main() -> None:
    """Serve until standard input ends."""
    spec = json.loads(sys.stdin.buffer.readline())
    _exit_with_parent(sys.stdin.fileno())
    # Keep standard output to ourselves; what libraries print goes to standard error.
    output = os.dup(1)
    os.dup2(2, 1)
    import xllamacpp  # noqa: PLC0415 - it may print

    params = xllamacpp.CommonParams()
    params.model.path = spec["model"]
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], spec["port"], [spec["key"]]
    params.n_ctx, params.n_parallel, params.kv_unified = spec["context"], spec["slots"], True
    params.cpuparams.n_threads, params.n_gpu_layers = spec["threads"] or -1, spec["gpu_layers"]
    params.ui = params.endpoint_slots = False
    params.offline = True
    try:
        server = xllamacpp.Server(params)
    except RuntimeError:
        sys.exit(1)  # the reason has been printed
    os.write(output, json.dumps({"address": server.listening_address}).encode() + b"\n")
    sys.stdin.buffer.read()
    os._exit(0)  # at once, without waiting for the library's threads


def _exit_with_parent(pipe: int) -> None:
    """Have the kernel kill us when the other end is closed, even while loading a model, when no Python code can run.

    ``PR_SET_PDEATHSIG`` does not work here: it fires when the parent's thread ends, which is
    earlier.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)


if __name__ == "__main__":
    main()
