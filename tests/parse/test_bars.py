# log lines are as long as they are
"""Progress bars and access lines."""

import pytest

from sglang_watchdog.parse.access import Answer, answer_of, kind_of_path
from sglang_watchdog.parse.progress import Bar, last_bar


@pytest.mark.parametrize(
    ("line", "bar"),
    [
        (
            "Loading safetensors checkpoint shards:  50% Completed | 32/64 [09:12<09:12,  17.25s/it]",
            Bar("weights", 32, 64, 552.0),
        ),
        (
            "\r  0%|          | 0/36 [00:00<?, ?it/s]\rCapturing batches (bs=1 avail_mem=9 GB):   3%|▎  | 1/36 [01:09<40:37, 69.64s/it]",
            Bar("capture", 1, 36, 69.0),
        ),
        ("Compiling num tokens (num_tokens=8192):   2%|2| 1/58 [00:14<13:40, 14.40s/it]", Bar("compile", 1, 58, 14.0)),
        ("DeepGEMM warmup:  12%|#| 2000/16384 [1:02:03<2:00:00, 2.1it/s]", Bar("deepgemm", 2000, 16384, 3723.0)),
        ("[Autotuner]: Autotuning fused_moe: 10%|# | 1/10 [00:01<00:09,  1.0s/it]", Bar("autotune", 1, 10, 1.0)),
        ("100%|██████████| 24/24 [00:08<00:00,  2.86it/s]", Bar("other", 24, 24, 8.0)),
        ("nothing here", None),
        ("50% of 3/4 [done]", None),
    ],
)
def test_the_last_drawing_of_a_bar_counts(line: str, bar: Bar | None) -> None:
    assert last_bar(line.encode()) == bar


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/generate", "generate"),
        ("/v1/chat/completions?x=1", "generate"),
        ("/v1/completions/", "generate"),
        ("/health", "health"),
        ("/health_generate?x", "health"),
        ("/metrics", "metrics"),
        ("/metrics/", "metrics"),
        ("/", "other"),
        ("//", "other"),
        ("/generate/x", "other"),
    ],
)
def test_paths_are_told_apart_by_kind(path: str, kind: str) -> None:
    assert kind_of_path(path.encode()) == kind


def test_the_status_is_the_last_one_in_the_line() -> None:
    """A query string may look like the end of an access line."""
    assert answer_of(b'INFO:     1.2.3.4:5 - "GET /?x="HTTP/1.1"500 HTTP/1.1" 404 Not Found') == Answer("other", 404)
    assert answer_of(b'INFO:     1.2.3.4:5 - "GET /a HTTP/1.1" 200 OK" 500 x') is None
    assert answer_of(b"INFO:     Application startup complete.") is None
