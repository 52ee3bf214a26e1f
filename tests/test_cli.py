"""The command line as people meet it: bad input, exit codes, speed of help."""

import bz2
import gzip
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from labels import FOLDERS

ROOT = Path(__file__).parents[1]
HEALTHY = FOLDERS[0] / "neg-idle-server-60w" / "server.log"
CRASHED = FOLDERS[0] / "crash-kv-pool-leak-check" / "server.log"


def cli(*arguments: object, stdin: bytes | None = None) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run([sys.executable, "-m", "sglang_watchdog", *map(str, arguments)], input=stdin, capture_output=True)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_exit_codes_are_the_contracts():
    assert cli("check", HEALTHY).returncode == 0
    assert cli("check", CRASHED).returncode == 1
    assert cli("check", CRASHED, "--fail-on", "never").returncode == 0
    assert cli("check").returncode == 2
    assert cli("chekc", HEALTHY).returncode == 2


def test_a_wrong_command_names_the_nearest_one():
    assert "Did you mean 'check'?" in cli("chekc").stderr


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"", 3), (os.urandom(300_000), 3), (b"\x00" * 100_000, 3), (b"nothing of SGLang\n" * 50, 3), (b"no line end", 3)],
    ids=["empty", "binary", "nul", "other", "torn"],
)
def test_what_is_no_log_of_sglang_is_said_and_is_code_3(content: bytes, code: int, tmp_path: Path):
    path = tmp_path / "x.log"
    path.write_bytes(content)
    done = cli("check", path)

    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "Nothing here is an SGLang log" in done.stderr


def test_what_cannot_be_read_says_why_and_what_to_do(tmp_path: Path):
    assert "is a folder; name the log files in it" in cli("check", tmp_path).stderr
    assert "no such file" in cli("check", tmp_path / "missing.log").stderr
    assert cli("check", tmp_path / "missing.log").returncode == 3


def test_one_bad_log_does_not_stop_the_others(tmp_path: Path):
    done = cli("check", tmp_path / "missing.log", CRASHED)

    assert done.returncode == 1
    assert "no such file" in done.stderr


def test_a_log_that_is_missing_beside_a_good_one_is_not_all_well(tmp_path: Path):
    done = cli("check", tmp_path / "missing.log", HEALTHY)

    assert done.returncode == 3
    assert "Nothing here is an SGLang log" not in done.stderr


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bzip2", "xz"])
def test_packed_logs_are_judged_whatever_their_names(pack: Callable[[bytes], bytes], tmp_path: Path):
    path = tmp_path / "server.log"
    path.write_bytes(pack(CRASHED.read_bytes()))

    assert cli("check", path).returncode == 1


def test_a_gzip_torn_in_its_first_block_is_judged_as_far_as_it_goes(tmp_path: Path):
    packed = gzip.compress(CRASHED.read_bytes())
    path = tmp_path / "server.log.gz"
    path.write_bytes(packed[:-20])
    done = cli("check", path)

    assert done.returncode == 1
    assert "reading stopped" in done.stderr


def test_a_damaged_gzip_says_so(tmp_path: Path):
    packed = bytearray(gzip.compress(CRASHED.read_bytes() * 50))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = b"\xff" * 40
    path = tmp_path / "server.log.gz"
    path.write_bytes(packed)
    done = cli("check", path)

    assert done.returncode == 1
    assert "reading stopped" in done.stderr
    assert "Traceback" not in done.stderr


def test_zstd_is_refused_with_what_to_do(tmp_path: Path):
    path = tmp_path / "server.log.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(100))
    done = cli("check", path)

    assert done.returncode == 3
    assert f"zstd -dc {path} | sglang-watchdog check -" in done.stderr


def test_standard_input_may_be_packed():
    assert cli("check", "-", stdin=gzip.compress(CRASHED.read_bytes())).returncode == 1


@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 500, b"[1, 2]\n", gzip.compress(b"nothing\n" * 9)[:-9]], ids=["empty", "binary", "other", "torn"])
def test_a_recording_without_a_sample_is_an_error(content: bytes, tmp_path: Path):
    path = tmp_path / "gpus.jsonl"
    path.write_bytes(content)
    done = cli("check", HEALTHY, "--telemetry", path)

    assert done.returncode == 2
    assert "holds no sample" in done.stderr
    assert "Traceback" not in done.stderr


def into_a_reader_that_has_enough(*arguments: object) -> tuple[int, str]:
    """Exit code and standard error of a command whose output nobody reads any more."""
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run([sys.executable, "-m", "sglang_watchdog", *map(str, arguments)], stdout=writes, stderr=subprocess.PIPE, text=True)
    os.close(writes)
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", [("config", "show"), ("config", "schema"), ("check", HEALTHY), ("config", "--help"), ("--help",)])
def test_a_reader_that_has_enough_is_no_fault(arguments: tuple[object, ...]):
    code, errors = into_a_reader_that_has_enough(*arguments)

    assert code == 0
    assert errors == ""


def test_a_damaged_gzip_is_judged_as_far_as_it_goes(tmp_path: Path):
    packed = gzip.compress(CRASHED.read_bytes() * 200)
    path = tmp_path / "server.log.gz"
    path.write_bytes(packed[: len(packed) // 2])
    done = cli("check", path)

    assert "reading stopped" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_line_of_200_mb_stays_within_bounded_memory(tmp_path: Path):
    path = tmp_path / "long.log"
    with path.open("wb") as file:
        file.write(CRASHED.read_bytes())
        for _ in range(200):
            file.write(b"x" * (1 << 20))
        file.write(b"\n")
    # VmHWM begins anew with exec; ru_maxrss would carry over what this process of the tests had at its fork.
    code = (
        "import re, sys; from sglang_watchdog.cli.main import main; code = main(['check', sys.argv[1], '--fail-on', 'never']);"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert int(done.stderr.split()[-1]) < 400 * 1024  # KiB; the line alone has 200 MiB


def test_standard_input_is_a_log():
    assert cli("check", "-", stdin=CRASHED.read_bytes()).returncode == 1


def test_a_broken_signature_is_78_with_file_line_and_column(tmp_path: Path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "bad.yaml").write_text("id: bad\nkind: forbiden\nmatch: 3\n")
    done = cli("check", HEALTHY, "--signatures", tmp_path)

    assert done.returncode == 78
    assert "bad.yaml:2:" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("how", [("--config",), ()], ids=["flag", "place"])
def test_a_log_that_is_no_place_is_a_fault_of_the_configuration(how: tuple[str, ...], tmp_path: Path):
    config = tmp_path / "watchdog.yaml"
    config.write_text("servers:\n  - name: a\n    logs: sglang.service\n")
    done = cli("config", "check", *how, config)

    assert done.returncode == 78
    assert "watchdog.yaml:3:" in done.stderr
    assert "did you mean journal:sglang.service?" in done.stderr


def test_an_unknown_setting_is_78_and_names_the_nearest(tmp_path: Path):
    config = tmp_path / "watchdog.yaml"
    config.write_text("servers: []\nlisten: 127.0.0.1:0\ntelemetri: none\n")
    done = cli("config", "check", "--config", config)

    assert done.returncode == 78
    assert "watchdog.yaml:3:1" in done.stderr
    assert "telemetry" in done.stderr


def test_a_daemon_with_a_bad_configuration_does_not_start(tmp_path: Path):
    config = tmp_path / "watchdog.yaml"
    config.write_text("listen: 0.0.0.0:17853\nservers: [{name: a, logs: [/nowhere.log]}]\n")

    assert cli("run", "--config", config).returncode == 78


@pytest.mark.parametrize("command", ["check", "run", "replay", "triage", "signatures", "config", "explain", "findings", "doctor"])
def test_every_command_has_help(command: str):
    done = cli(command, "--help")

    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


def test_help_imports_nothing_heavy():
    code = "import sys; from sglang_watchdog.cli.main import main; main(['--help']); print(sorted({'pydantic', 'fastapi', 'yaml', 'hyperscan'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


def test_no_colour_where_nobody_looks():
    assert "\x1b" not in cli("check", CRASHED).stdout


def test_explain_tells_what_an_unknown_needs():
    done = cli("explain", "moe-triton-config-silent", "--log", CRASHED)

    assert done.returncode == 0
    assert "unknown" in done.stdout
    assert "start" in done.stdout


def test_explain_says_once_what_it_could_not_read(tmp_path: Path):
    done = cli("explain", "moe-triton-config-silent", "--log", tmp_path / "missing.log")

    assert done.returncode == 3
    assert done.stderr.count("no such file") == 1


def test_doctor_says_by_its_code_that_something_cannot_be_seen():
    done = cli("doctor")

    assert done.returncode == (1 if "✗" in done.stdout else 0)
    assert "PatternSet" not in done.stdout
    assert not re.search(r"\b(no-\w+): \1:", done.stdout)


def test_two_logs_are_compared_by_arguments_speed_and_findings():
    captures = FOLDERS[0].parent / "captures"
    done = cli("compare", captures / "04-moe-disable-cuda-graph" / "server.log", captures / "01-moe-default" / "server.log")

    assert done.returncode == 0, done.stderr
    assert re.search(r"disable_cuda_graph +true → false", done.stdout)
    assert re.search(r"decode_tokens_per_s .*\(5\.\d+ ×\)", done.stdout)
    assert "only A: WARNING" in done.stdout
    assert "cuda-graph.disabled" in done.stdout


def test_a_log_is_not_compared_with_a_run_id():
    done = cli("compare", HEALTHY, "0123456789abcdef")
    assert done.returncode == 2
    assert "0123456789abcdef: no such file" in done.stderr


def test_a_new_token_is_told_once_and_only_its_hash_goes_to_stdout(tmp_path: Path):
    done = cli("config", "token", "grafana")
    secret = re.search(r"nowhere: (\S+)", done.stderr)
    assert secret
    assert secret[1] not in done.stdout
    assert hashlib.sha256(secret[1].encode()).hexdigest() in done.stdout

    config = tmp_path / "watchdog.yaml"
    config.write_text(f"auth:\n  tokens:\n    {done.stdout}")
    assert cli("config", "check", "--config", config).returncode == 0


def test_a_signature_that_does_not_exist_is_a_usage_error_with_the_nearest_id():
    for command in ("lint", "test", "show"):
        done = cli("signatures", command, "crash-detokeniser")

        assert done.returncode == 2
        assert "Did you mean `crash-detokenizer`?" in done.stderr


def test_signatures_are_counted_by_area_kind_and_topic():
    done = cli("signatures", "stats")

    assert done.returncode == 0
    for part in ("by kind", "by area", "by topic", "crash.host-oom", "Topics without a signature:"):
        assert part in done.stdout


def test_a_new_signature_goes_into_the_folder_that_is_named_and_lock_touches_that_alone(tmp_path: Path):
    own = tmp_path / "signatures.d"
    own.mkdir()
    made = cli("signatures", "--signatures", own, "new", "my-first", "--area", "crash", "--topic", "crash.scheduler")
    assert made.returncode == 0
    path = own / "crash" / "my-first.yaml"
    assert made.stdout.strip() == str(path)
    assert "SIG035" in cli("signatures", "--signatures", own, "lint", "my-first").stderr

    path.write_text(path.read_text().replace("status: draft ", "status: trial "))
    builtin = {file: file.read_bytes() for file in (ROOT / "signatures").glob("*.*")}
    locked = cli("signatures", "--signatures", own, "lock")

    assert locked.returncode == 0
    assert (own / "revisions.lock").read_text().splitlines()[-1].startswith("my-first 1 ")
    assert {file: file.read_bytes() for file in (ROOT / "signatures").glob("*.*")} == builtin
    assert sorted(file.name for file in own.iterdir()) == ["crash", "revisions.lock"]


def test_an_installed_package_is_not_written_to(tmp_path: Path):
    """In an installed wheel the signatures lie inside the package; the next update would take what was written there."""
    site = tmp_path / "site-packages"
    shutil.copytree(ROOT / "daemon" / "sglang_watchdog", site / "sglang_watchdog", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "signatures", site / "sglang_watchdog" / "signatures")
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    before = {file for file in site.rglob("*") if file.is_file()}

    for command in (["new", "my-first", "--area", "crash", "--topic", "crash.scheduler"], ["lock"]):
        done = subprocess.run([sys.executable, "-m", "sglang_watchdog", "signatures", *command], env=environment,
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 2
        assert "--signatures" in done.stderr
    assert {file for file in site.rglob("*") if file.is_file()} == before


def test_explain_names_the_nearest_signature_or_topic():
    assert "Did you mean `crash-detokenizer`?" in cli("explain", "crash-detokeniser").stderr
    assert "Did you mean `dist.nccl-error`?" in cli("explain", "dist.nccl-eror").stderr
