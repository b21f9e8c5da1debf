"""In the place of xllamacpp.

A package of that name whose server answers everything with one sentence.
"""

from __future__ import annotations

from pathlib import Path

SOURCE = """
import ctypes, json, os, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

print("a library that prints", flush=True)


def CommonParams():
    return SimpleNamespace(model=SimpleNamespace(path=""), cpuparams=SimpleNamespace(n_threads=-1))


class Server:
    def __init__(self, params):
        text = open(params.model.path).read()
        if text == "broken":
            print("0.00.001 I srv init: loading", file=sys.stderr)
            print("0.00.002 E gguf: invalid magic", file=sys.stderr)
            print("0.00.003 E srv: exiting", file=sys.stderr, flush=True)
            raise RuntimeError("Failed")
        if text == "slow":
            print("loading", os.getpid(), file=sys.stderr, flush=True)
            ctypes.PyDLL(None).sleep(3600)  # with the interpreter's lock, as the real one
        self.params, self.text = params, text
        self.http = ThreadingHTTPServer((params.hostnames[0], params.port), self.handler())
        self.listening_address = "http://127.0.0.1:%d" % self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def handler(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.headers["Authorization"] != "Bearer " + server.params.api_keys[0]:
                    return self.send_error(401)
                said = asked["messages"][-1]["content"]
                if said == "die":
                    os.kill(os.getpid(), 9)
                words = {"environ": sorted(os.environ), "pid": os.getpid(), "params": str(vars(server.params))}
                message = {"role": "assistant", "content": str(words.get(said, server.text))}
                body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        return Handler
"""


def install(folder: Path) -> None:
    """Write it."""
    (folder / "xllamacpp.py").write_text(SOURCE)
