"""Asks a running server once for its arguments and release: GET /server_info on loopback, never a generating endpoint.

The answer goes through the scheduler, so that silence is itself a sign. It holds API keys in clear text in every release: they are
dropped by name before anything else sees them.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Final

from ..model.observation import Json, Probe
from ..parse.redact import is_secret_name, is_secret_record, redact
from .loopback_http import NoAnswer, check_loopback, get

_MOST_BYTES: Final = 4 * 1024 * 1024
# 0.5.6 renamed it; the old name logs a warning on every call in later releases, so it is tried only where the new one is missing.
_PATHS: Final = ("/server_info", "/get_server_info")
# Answers of the scheduler beside the arguments, by the name of the fact they teach.
_FACTS: Final = {"version": "run.sglang_version", "max_total_num_tokens": "run.max_total_num_tokens"}
_NOT_ARGUMENTS: Final = {*_FACTS, "status", "max_req_input_len", "internal_states", "kv_events", "launch_command"}
_HIDDEN: Final = ("launch_command",)  # repeats the keys, from 0.5.20


async def ask_server_info(source: str, port: int, at_s: float, *, host: str = "127.0.0.1", within_s: float = 5.0) -> Probe:
    """Return the answer as facts, or a probe whose `error` says why there is none. `host` must be a loopback address."""
    check_loopback(host)
    error = ""
    for path in _PATHS:
        try:
            async with asyncio.timeout(within_s):
                status, body = await get(host, port, path, accept="application/json", most_bytes=_MOST_BYTES)
        except TimeoutError:
            error = f"no answer within {within_s:.0f} s"
            break
        except (OSError, NoAnswer) as failure:
            error = str(failure)
            break
        if status == 200:
            return _probe(source, at_s, path, body)
        error = "the server asks for its API key" if status in (401, 403) else f"HTTP status {status}"
        if status != 404:
            break
    return Probe(at_s=at_s, source=source, origin="/server_info", facts={}, error=error)


def _probe(source: str, at_s: float, path: str, body: bytes) -> Probe:
    try:
        answer = json.loads(body)
    except ValueError:
        return Probe(at_s=at_s, source=source, origin="/server_info", facts={}, error=f"{path}: the answer is no JSON")
    if not isinstance(answer, dict):
        return Probe(at_s=at_s, source=source, origin="/server_info", facts={}, error=f"{path}: the answer is no JSON object")
    return Probe(at_s=at_s, source=source, origin="/server_info", facts=facts_of_answer(answer))


def facts_of_answer(answer: Mapping[str, Json]) -> dict[str, Json]:
    """Return an answer of /server_info as facts, secrets left out at every depth."""
    facts: dict[str, Json] = {}
    for name, value in answer.items():
        if name in _FACTS:
            facts[_FACTS[name]] = value
        elif name not in _NOT_ARGUMENTS and not _is_secret(name):
            facts[f"args.{name}"] = _clean(value)
    memory = _first_state(answer).get("memory_usage")
    if isinstance(memory, dict) and isinstance(memory.get("weight"), int | float):
        facts["run.weights_gib"] = float(memory["weight"])  # type: ignore[arg-type]
    return facts


def _first_state(answer: Mapping[str, Json]) -> Mapping[str, Json]:
    states = answer.get("internal_states")
    first = states[0] if isinstance(states, list) and states else None
    return first if isinstance(first, dict) else {}


def _is_secret(name: str) -> bool:
    return is_secret_name(name) or is_secret_record(name) or name in _HIDDEN


def _clean(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _clean(each) for name, each in value.items() if not _is_secret(name)}
    if isinstance(value, list):
        return [_clean(each) for each in value]
    return redact(value) if isinstance(value, str) else value
