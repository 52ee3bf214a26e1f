"""The three ways in which SGLang has declared its arguments are read from source alone, and a new release shows what it changed."""

import zipfile
from pathlib import Path
from textwrap import dedent

import pytest

from sglang_watchdog.library.flag_table import FlagTable, UnknownRelease, differences, load_table
from sglang_watchdog.library.flag_wheels import build_table, find_releases, main, read_release, write_table

ADD_ARGUMENT = """
    import dataclasses

    BACKENDS = ["triton", "fa3"]

    @dataclasses.dataclass
    class ServerArgs:
        tp_size: int = 1
        attention_backend: str | None = None
        old_switch: bool = False
        steps: int = 1
        bs: list[int] | None = None

        def __post_init__(self):
            if self.attention_backend is None:
                self.attention_backend = "fa3"

        @staticmethod
        def add_cli_args(parser):
            parser.add_argument("--tensor-parallel-size", "--tp-size", type=int, default=ServerArgs.tp_size)
            parser.add_argument("--attention-backend", choices=BACKENDS, default=ServerArgs.attention_backend)
            parser.add_argument("--old-switch", action="store_true")
            parser.add_argument("--steps", type=int, default=ServerArgs.steps)
            parser.add_argument("--bs", type=int, nargs="+")

        @classmethod
        def from_cli_args(cls, args):
            args.tp_size = args.tensor_parallel_size
            return cls(**{f.name: getattr(args, f.name) for f in dataclasses.fields(cls)})
"""
ANNOTATED = """
    import dataclasses

    @dataclasses.dataclass
    class ServerArgs:
        tp_size: A[int, "GPUs", Arg(aliases=["--tensor-parallel-size"])] = 1
        attention_backend: A[Optional[str], Arg(help="kernels", choices=["triton", "fa3", "fa4"])] = None
        steps: A[int, "steps"] = 2
        new_switch: A[bool, "new"] = False
        inner: A[int, Arg(no_cli=True)] = 0
        bs: A[Optional[List[int]], "sizes"] = None
"""
FIELDS = """
    @dataclasses.dataclass
    class ParallelFields:
        tp_size: A[int, "GPUs", Arg(aliases=["--tensor-parallel-size"])] = 1
"""
USE = """
    def run(server_args):
        return server_args.tp_size, server_args.attention_backend, server_args.bs
"""
UNSEEN = "def test(server_args):\n    return server_args.steps\n"


def tree(folder: Path, release: str, **files: str) -> Path:
    root = folder / release
    for name, text in files.items():
        path = root / "sglang" / name.replace("__", "/")
        path = path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return root


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    tree(tmp_path, "0.5.13", srt__server_args=ADD_ARGUMENT, srt__use=USE, test__use=UNSEEN)
    tree(tmp_path, "0.5.14", srt__server_args=ANNOTATED, srt__use=USE)
    tree(
        tmp_path,
        "0.5.20",
        srt__server_args="class ServerArgs:\n    pass\n",
        srt__arg_groups__fields__parallel=FIELDS,
        srt__use="def run():\n    return get_parallel().tp_size\n",
    )
    return tmp_path


def table_of(folder: Path) -> FlagTable:
    return build_table([read_release(release, origin) for release, origin in find_releases([folder]).items()])


def test_fields_defaults_and_options_of_each_style(releases: Path):
    table = table_of(releases)

    assert table.releases == ("0.5.13", "0.5.14", "0.5.20")
    assert table.fields_at("0.5.20") == ("tp_size",)
    assert (table.default("steps", "0.5.13"), table.default("steps", "0.5.14")) == (1, 2)
    for release in table.releases:
        assert set(table.options_of("tp_size", release)) == {"--tp-size", "--tensor-parallel-size"}
        assert table.option("--tp-size", release).type == "int"
    assert table.option("--attention-backend", "0.5.13").choices == ("triton", "fa3")
    assert table.option("--attention-backend", "0.5.14").choices == ("triton", "fa3", "fa4")
    assert table.option("--bs", "0.5.13").nargs == table.option("--bs", "0.5.14").nargs == "+"
    assert table.option("--old-switch", "0.5.13").action == "flag"
    assert table.option("--inner", "0.5.14") is None


def test_what_serving_code_never_reads_is_dead_even_if_tests_do(releases: Path):
    table = table_of(releases)

    assert table.read_status("tp_size", "0.5.13") == table.read_status("tp_size", "0.5.20") == "read"
    assert table.read_status("steps", "0.5.13") == "never-read"
    assert table.read_status("old_switch", "0.5.13") == "never-read"


def test_a_wheel_reads_as_its_unpacked_tree(releases: Path, tmp_path: Path):
    origin = releases / "0.5.13"
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "sglang-0.5.13-py3-none-any.whl", "w") as wheel:
        for path in origin.rglob("*.py"):
            wheel.write(path, path.relative_to(origin).as_posix())

    assert build_table([read_release("0.5.13", next(folder.iterdir()))]) == build_table([read_release("0.5.13", origin)])


def test_a_table_survives_its_file(releases: Path, tmp_path: Path):
    table = table_of(releases)
    write_table(table, tmp_path / "table.json")

    again = load_table(tmp_path / "table.json")
    assert again == table
    assert differences(again, table) == []


def test_a_new_release_shows_what_it_changed(releases: Path, tmp_path: Path):
    known = build_table([read_release("0.5.13", releases / "0.5.13")])
    seen = build_table([read_release("0.5.14", releases / "0.5.14")])
    found = "\n".join(differences(known, seen))

    assert "0.5.14: old_switch is gone (against 0.5.13)" in found
    assert "0.5.14: new_switch is declared, the table lacks it (against 0.5.13)" in found
    assert "0.5.14: default of steps is 2, the table says 1 (against 0.5.13)" in found
    assert "0.5.14: option --new-switch is new (against 0.5.13)" in found
    assert "0.5.14: option --attention-backend is declared otherwise (against 0.5.13)" in found


def test_the_check_tells_by_its_code_whether_wheels_and_table_agree(releases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "table.json"

    assert main([str(releases), "--out", str(path)]) == 0
    assert main([str(releases), "--check", str(path)]) == 0
    assert "3 releases agree" in capsys.readouterr().out
    (releases / "0.5.13/sglang/srt/use.py").write_text("")
    assert main([str(releases), "--check", str(path)]) == 1
    assert "tp_size is never-read, the table says read" in capsys.readouterr().out


def test_sources_that_do_not_exist_are_named(releases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    flags = tmp_path / "signatures" / "flags"
    flags.mkdir(parents=True)
    (flags / "flag-a.yaml").write_text("source: 0.5.13, srt/use.py::run\nneeds: [{source: '0.5.13, srt/use.py::walk'}]\n")
    (flags / "flag-b.yaml").write_text("source: 0.5.13, srt/gone.py::run\nneeds: [{source: somewhere}]\n")

    assert main([str(releases), "--sources", str(tmp_path / "signatures")]) == 1
    out = capsys.readouterr().out
    assert "srt/use.py::walk: the file defines no such function or class" in out
    assert "srt/gone.py::run: this release has no such file" in out
    assert "somewhere: not of the form" in out
    assert "srt/use.py::run: " not in out


def test_what_is_no_wheel_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path), "--out", str(tmp_path / "x.json")])

    assert ended.value.code == 2
    assert "neither an SGLang wheel" in capsys.readouterr().err


def test_a_release_is_answered_by_itself_its_post_release_or_its_neighbours(releases: Path):
    table = table_of(releases)

    assert table.sampled("0.5.13") == ("0.5.13",)
    assert table.sampled("0.5.13.post1") == ("0.5.13",)
    assert table.sampled("0.5.15") == ("0.5.14", "0.5.20")
    for outside in ("0.5.12", "0.5.21"):
        with pytest.raises(UnknownRelease, match="outside the releases"):
            table.sampled(outside)
