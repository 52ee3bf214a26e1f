"""A process tree with SGLang's titles and none of its work: `python fake_server.py DIRECTORY` writes the packages to run."""

import sys
from pathlib import Path

LAUNCHER = """
import http.server, json, signal, subprocess, sys, time

arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
children = [
    subprocess.Popen([title, "1000"], executable="/bin/sleep")
    for title in ("sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer")
]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("children", *(child.pid for child in children), flush=True)


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({
            "model_path": "/models/m", "tp_size": 2, "api_key": "sk-very-secret", "admin_api_key": "sk-admin",
            "load": {"hf_token": "hf_x", "kind": "auto"}, "version": "0.5.11", "max_total_num_tokens": 1234,
            "launch_command": "--api-key sk-very-secret", "internal_states": [{"memory_usage": {"weight": 4.93}, "api_key": "sk-very-secret"}],
        }).encode()
        self.send_response(200 if self.path == "/server_info" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


try:
    if arguments.get("--opens") == "never":
        time.sleep(1000)
    http.server.ThreadingHTTPServer(("127.0.0.1", int(arguments["--port"])), Answers).serve_forever()
finally:
    for child in children:
        child.kill()
"""


def write_package(directory: Path) -> None:
    """Make `python -m sglang.launch_server` runnable with `directory` on the path."""
    package = directory / "sglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(LAUNCHER)


if __name__ == "__main__":
    write_package(Path(sys.argv[1]))
