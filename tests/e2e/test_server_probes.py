"""The whole daemon beside a server that answers: its metrics and its model's config.json are read without being asked for."""

import http.server
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .daemon import RunningDaemon

METRICS = b'sglang:num_running_reqs{tp_rank="0"} 7\n'
CONFIG = {"architectures": ["Qwen3MoeForCausalLM"], "num_experts": 64, "num_experts_per_tok": 8, "hidden_size": 1024, "num_hidden_layers": 24}
WITHIN_S = 40.0


class Answers(http.server.BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(METRICS if self.path == "/metrics" else b"{}")

    def log_message(self, *_: Any) -> None:
        pass


def until(holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + WITHIN_S
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.2)
    return found


def test_a_server_and_its_model_are_asked_beside_the_log(tmp_path: Path):
    model, log = tmp_path / "model", tmp_path / "server.log"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    stamp = f"[{datetime.now(UTC):%Y-%m-%d %H:%M:%S}]"
    log.write_text(
        f"{stamp} server_args=ServerArgs(model_path='{model}', tp_size=1)\n"
        f"{stamp} Load weight end. elapsed=0.21 s, type=Qwen3MoeForCausalLM, avail mem=134.19 GB, mem usage=4.93 GB.\n"
    )
    handler = type("Handler", (Answers,), {"asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = tmp_path / "watchdog.yaml"
    config.write_text(
        json.dumps(
            {
                "servers": [{"name": "chat", "logs": [str(log)], "url": f"http://127.0.0.1:{server.server_address[1]}", "timezone": "UTC"}],
                "telemetry": "none",
                "state_dir": str(tmp_path / "state"),
                "listen": "127.0.0.1:0",
            }
        )
    )
    try:
        with RunningDaemon("--config", str(config)) as daemon:

            def facts() -> dict[str, Any] | None:
                runs = daemon.all("runs")
                return runs[0]["facts"] if runs and "model.num_experts" in runs[0]["facts"] else None

            told = until(facts)
            until(lambda: "/metrics" in handler.asked)
    finally:
        server.shutdown()
        server.server_close()

    assert (told["model.num_experts"], told["model.top_k"], told["model.checkpoint_quantization"]) == (64, 8, "none")
    assert set(handler.asked) == {"/metrics"}
