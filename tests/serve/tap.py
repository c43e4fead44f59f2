"""Runs a program with a tap between it and its endpoint: ``python tap.py LOG PROGRAM ...``.

Every body that passes is written to LOG, a line for each request: what was sent and what came back, as JSON. The
standard library alone: it runs in the environment of the framework under test.
"""

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOP = {"host", "content-length", "connection", "transfer-encoding", "accept-encoding"}


def reply_of(data, kind):
    """A body as JSON; of a stream, its events."""
    if "event-stream" not in kind:
        return json.loads(data)
    lines = (line.removeprefix("data:").strip() for line in data.decode().splitlines() if line.startswith("data:"))
    return [json.loads(line) for line in lines if line != "[DONE]"]


def main():
    log, *program = sys.argv[1:]
    base, lock = os.environ["OPENAI_BASE_URL"], threading.Lock()

    class Tap(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_POST(self):
            sent = self.rfile.read(int(self.headers["content-length"]))
            headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
            request = urllib.request.Request(base + self.path.removeprefix("/v1"), sent, headers)
            try:
                with urllib.request.urlopen(request) as answer:
                    status, kind, data = answer.status, answer.headers["content-type"], answer.read()
            except urllib.error.HTTPError as error:
                status, kind, data = error.code, error.headers["content-type"], error.read()
            with lock, open(log, "a") as file:
                told = {"path": self.path, "status": status, "sent": json.loads(sent), "received": reply_of(data, kind)}
                file.write(json.dumps(told) + "\n")
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Tap)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here = f"http://127.0.0.1:{server.server_address[1]}/v1"
    sys.exit(subprocess.run(program, env=os.environ | {"OPENAI_BASE_URL": here, "OPENAI_API_BASE": here}).returncode)


if __name__ == "__main__":
    main()
