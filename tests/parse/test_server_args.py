# log lines are as long as they are
"""The line in which SGLang prints its arguments, in both of its forms."""

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_watchdog.parse.server_args import read_server_args

CAPTURES = Path(__file__).parents[1] / "captures"
CASES = Path(__file__).parents[1] / "cases"


def dumps() -> list[str]:
    """Every dump line of the recordings and cases, message only."""
    found = []
    for log in sorted([*CAPTURES.glob("*/server.log"), *CASES.glob("*/server.log")]):
        found += [line[line.index("server_args=") :] for line in log.read_text(errors="replace").split("\n") if "] server_args=" in line and not line.startswith("{")]
    return found


def by_python(message: str) -> dict[str, Any]:
    """What Python's own parser reads: the oracle."""
    tree = ast.parse(message.removeprefix("server_args="), mode="eval").body
    if isinstance(tree, ast.Call):
        return {str(word.arg): ast.literal_eval(word.value) for word in tree.keywords}
    return dict(ast.literal_eval(tree))


def test_real_dumps_are_read_as_python_reads_them() -> None:
    messages = dumps()

    assert len(messages) > 20
    for message in messages:
        read = read_server_args(message)
        assert read is not None
        assert read.complete
        expected = by_python(message)
        changed = {name for name in expected if read.args[name] != expected[name]}
        assert changed <= {"api_key", "admin_api_key", "ssl_keyfile_password"}
        assert all(read.args[name] == "***" for name in changed)


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**12), 10**12),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=20),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.from_regex(r"[a-z]{1,6}", fullmatch=True), inner, max_size=4)),
    max_leaves=12,
)
ARGS = st.dictionaries(
    st.from_regex(r"x_[a-z_]{1,10}", fullmatch=True).filter(lambda name: "key" not in name and "config" not in name),
    VALUES,
    max_size=6,
)
HARMLESS = (
    "=",
    ":",
    "?",
    "hf",
    "sk",
    "rid",
    "text",
    "prompt",
    "content",
    "token",
    "key",
    "passw",
    "secret",
    "bearer",
    "basic",
    "arguments",
    "messages",
    "eyj",
    "pk_",
    "xox",
    "gh",
)


def plain(value: Any) -> bool:
    """Whether a value holds nothing that redaction might cut."""
    return not any(word in repr(value).lower().replace("': ", "") for word in HARMLESS)


@settings(max_examples=80, deadline=None)
@given(ARGS.filter(plain))
def test_any_literal_is_read_back_in_both_forms(args: dict[str, Any]) -> None:
    as_repr = "server_args=ServerArgs(" + ", ".join(f"{name}={value!r}" for name, value in args.items()) + ")"

    for message in (as_repr, f"server_args={args!r}"):
        read = read_server_args(message)
        assert read is not None
        assert read.complete
        assert read.args == args


@settings(max_examples=80, deadline=None)
@given(ARGS, st.integers(0, 400))
def test_a_cut_line_gives_what_could_be_read(args: dict[str, Any], keep: int) -> None:
    whole = "server_args=ServerArgs(" + ", ".join(f"{name}={value!r}" for name, value in args.items()) + ")"
    cut = whole[: max(keep, len("server_args=ServerArgs("))]

    read, full = read_server_args(cut), read_server_args(whole)

    assert read is not None
    assert full is not None
    assert read.complete == (len(cut) >= len(whole))
    assert all(full.args[name] == value for name, value in read.args.items())


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet="server_args=ServerArgs(){}[]'\"\\,:<>x1- \n\x00\udcff", max_size=60))
def test_no_text_makes_it_fail(text: str) -> None:
    read_server_args("server_args=ServerArgs(" + text)
    read_server_args("server_args={" + text)


def test_deep_nesting_is_kept_as_text() -> None:
    read = read_server_args("server_args=ServerArgs(a=" + "[" * 50_000 + "]" * 50_000 + ", b=1)")

    assert read is not None
    assert read.args["b"] == 1


def test_nested_records_become_mappings_and_what_is_no_literal_stays_text() -> None:
    read = read_server_args(
        "server_args=ServerArgs(lora_paths=[LoRARef(lora_id='a', lora_path='/l', pinned=False)], custom_sigquit_handler=<function f at 0x7f>, "
        "mode=<Mode.A: 1>, dtype=torch.bfloat16, path=PosixPath('/a'), ratio=nan, cuda_graph_config=CudaGraphConfig(decode=PhaseConfig(backend='full', "
        "max_bs=64, bs=[1, 2, 64]), prefill=PhaseConfig(backend='disabled', max_bs=None, bs=None)), names={'a', 'b'}, empty={}, none=(), one=(1,))"
    )

    assert read is not None
    assert read.args == {
        "lora_paths": [{"lora_id": "a", "lora_path": "/l", "pinned": False}],
        "custom_sigquit_handler": "<function f at 0x7f>",
        "mode": "<Mode.A: 1>",
        "dtype": "torch.bfloat16",
        "path": "/a",
        "ratio": "nan",
        "cuda_graph_config": {
            "decode": {"backend": "full", "max_bs": 64, "bs": [1, 2, 64]},
            "prefill": {"backend": "disabled", "max_bs": None, "bs": None},
        },
        "names": ["a", "b"],
        "empty": {},
        "none": [],
        "one": [1],
        "disable_cuda_graph": False,
        "cuda_graph_max_bs": 64,
    }


def test_graphs_switched_off_in_the_nested_form_are_known_by_their_old_name() -> None:
    read = read_server_args("server_args={'cuda_graph_config': {'decode': {'backend': 'disabled'}, 'prefill': {'backend': 'tc_piecewise'}}}")

    assert read is not None
    assert read.args["disable_cuda_graph"] is True
    assert "cuda_graph_max_bs" not in read.args


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        ("api_key='k'", "***"),
        ("admin_api_key='k'", "***"),
        ("ssl_keyfile_password='k'", "***"),
        ("hf_token='k'", "***"),
        ("model_loader_extra_config='{\"a\": 1}'", "***"),
        ("hicache_storage_backend_extra_config={'a': 'b'}", "***"),
        ("model_loader_extra_config='{}'", "{}"),
        ("api_key=None", None),
        ("swa_full_tokens_ratio=0.8", 0.8),
        ("bucket_time_to_first_token=None", None),
        ("tbo_token_distribution_threshold=0.48", 0.48),
        ("skip_tokenizer_init=False", False),
    ],
)
def test_secrets_are_masked_by_name_and_nothing_else_is(field: str, shown: Any) -> None:
    read = read_server_args(f"server_args=ServerArgs({field})")

    assert read is not None
    assert read.args == {field.split("=", maxsplit=1)[0]: shown}


def test_the_digest_identifies_a_run_but_leaves_secrets_out() -> None:
    def digest(key: str, seed: int) -> str:
        read = read_server_args(f"server_args=ServerArgs(api_key={key!r}, random_seed={seed})")
        assert read is not None
        return read.digest

    assert digest("first-secret", 1) == digest("other-secret", 1)
    assert digest("first-secret", 1) != digest("first-secret", 2)
    assert len(digest("x", 1)) == 16


def test_other_messages_are_no_dump() -> None:
    assert read_server_args("Using server_args=ServerArgs(a=1)") is None
    assert read_server_args("server_args=None") is None
