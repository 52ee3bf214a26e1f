"""A release that a log states outranks what its dump lets infer."""

import pytest


@pytest.mark.parametrize(
    ("line", "release"),
    [
        ("Successfully installed sgl-kernel-0.3.12 sglang-0.5.3 torch-2.8.0", "0.5.3"),
        ("sglang version: 0.5.12.post1", "0.5.12.post1"),
        ("sglang: 0.4.6.post5", "0.4.6.post5"),
        ("Successfully installed sglang_router-0.2.3 sgl-kernel-0.3.12", None),
        ("sglang is using nccl==2.27.3", None),
    ],
)
def test_a_release_that_the_start_of_the_log_states_is_the_runs(judge_files, tmp_path, line, release):
    log = tmp_path / "server.log"
    log.write_text(f"{line}\n[2025-10-15 09:00:00] server_args=ServerArgs(model_path='/models/a', tp_size=1, log_level='info')\n")
    (run,) = judge_files(log).engine.snapshot().runs

    assert (run.release.min if run.release.source == "stated" else None) == release
