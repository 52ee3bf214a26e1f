"""The status page: what a person with a phone sees at three in the morning."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from sglang_watchdog.model.finding import Roofline
from sglang_watchdog.model.words import Phase, Severity, State
from sglang_watchdog.sinks.state import RankLoad, Reload
from sglang_watchdog.sinks.web.tokens import TokenScope
from sinks import material

VOID = {"meta", "link", "input"}


class Tree(HTMLParser):
    """Collects the text, and fails on markup that is not properly nested."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.found: list[tuple[tuple[str, ...], dict[str, str | None], str]] = []

    def handle_starttag(self, tag, attrs) -> None:
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop()[0] == tag

    def handle_data(self, data) -> None:
        self.found.append((tuple(tag for tag, _ in self.open), self.open[-1][1] if self.open else {}, data))


def read(page: str) -> Tree:
    tree = Tree()
    tree.feed(page)
    tree.close()
    assert tree.open == []
    return tree


def words(page: str) -> str:
    """The visible text."""
    return re.sub(r"\s+", " ", " ".join(data for tags, _, data in read(page).found if not {"script", "style"} & set(tags)))


def test_it_shows_server_findings_with_evidence_and_remedy_gpus_and_what_is_missing(story):
    text = words(story.client().get("/").text)

    for shown in (
        "chat serving",
        "SGLang 0.5.8",
        "model Qwen3-30B",
        "ready after 77 s",
        "running 256",
        "output tok/s 881",
        "Triton MoE kernels run untuned defaults warning firing",
        "No tuned file for E=128, N=768 on this GPU.",
        f"server.log:28 {material.LINE.text}",
        "though such lines reach us: server.log:17",
        "power_ratio of GPU 0, 1: median 0.42 of 480 samples",
        'args.moe_runner_backend = "flashinfer_cutlass" server.log:1',
        "1. Tune E=128.",
        "Explains 1 more",
        "200 / 700 W",
        "93 %",
        "SwPowerCap",
        "1 signature could not judge this run",
        "restart the server while the watchdog runs",
        "server.log reading",
        "4,113 lines",
        "1 gap",
        "1 finding already over",
    ):
        assert shown in text, shown


def test_launch_flags_are_a_table_of_the_current_run(daemon):
    daemon.tell(material.moved(flags=material.FLAGS))
    page = daemon.client().get("/").text
    text = words(page)

    for shown in (
        "Launch flags: 1 set, 1 to look at",
        "Asked: from the process command line.",
        "flag asked runs with verdict why what to do --attention-backend flashinfer triton overridden asked flashinfer, runs with triton",
        "kernels of the routed experts moe_runner_backend = auto triton seen the log says it server.log:28",
        "Would help here and is not set",
        "--enable-torch-compile one request at a time Try it.",
        "141 flags of it are described, 388 known by declaration only.",
    ):
        assert shown in text, shown
    assert "<b>it</b>" not in page


def test_what_a_cause_explains_is_folded_inside_it(story):
    page = story.client().get("/").text

    cause, effect = page.index('id="f-cause"'), page.index('id="f-effect"')
    assert cause < effect
    assert page[cause:effect].count("<article") - page[cause:effect].count("</article>") >= 1
    assert page.count('id="f-effect"') == 1


def test_causes_that_explain_each_other_are_still_shown(daemon):
    daemon.tell(material.fired("a", explained_by="b"), material.fired("b", explained_by="a"))

    page = daemon.client().get("/").text

    assert 'id="f-a"' in page
    assert 'id="f-b"' in page


def test_the_worst_comes_first(daemon):
    daemon.tell(
        material.fired("bad", severity=Severity.CRITICAL),
        material.fired("small", severity=Severity.INFO),
        material.fired("mid"),
    )
    page = daemon.client().get("/").text

    assert page.index('id="f-bad"') < page.index('id="f-mid"') < page.index('id="f-small"')


def test_a_quiet_server_says_so(daemon):
    daemon.tell(material.moved())

    assert "Nothing is firing." in words(daemon.client().get("/").text)


def test_before_anything_is_watched_it_says_what_is_awaited(daemon):
    daemon.board.set_servers([])
    daemon.board.set_ready("no SGLang process was found")

    text = words(daemon.client().get("/").text)
    assert "Not ready: no SGLang process was found" in text
    assert "No server is watched yet" in text


def test_trouble_of_our_own_is_at_the_top(story):
    story.board.set_reload(Reload(was_successful=False, error="watchdog.yaml:3:1: unknown key"))
    story.board.set_sources([material.source(state="failed", why="permission denied", do="add the daemon to group adm")])

    text = words(story.client().get("/").text)
    assert "The newest configuration was refused: watchdog.yaml:3:1: unknown key" in text
    assert "permission denied; add the daemon to group adm" in text


def test_a_gpu_that_cannot_be_read_is_not_shown_as_idle(daemon):
    daemon.board.add_sample(material.sample(error="GPU is lost", power_w=None))

    text = words(daemon.client().get("/").text)
    assert "GPU is lost" in text
    assert "0 / " not in text


def test_servers_without_dump_or_samples_have_no_invented_numbers(daemon):
    unknown = replace(material.run().release, min=None, max=None, source="unknown")
    daemon.tell(material.moved(phase=Phase.UNKNOWN, started_at_s=None, release=unknown, model="", timings_s={}))
    daemon.board.add_sample(material.sample(power_w=None, sm_util=None, mem_used_mib=None, temp_c=None, throttle_reasons=None))

    text = words(daemon.client().get("/").text)
    assert "release unknown" in text
    assert "model unknown" in text
    assert "None" not in text
    assert "nan" not in text.lower().split()


def test_the_roofline_says_its_share_and_what_is_missing(daemon):
    known = Roofline(
        at_s=material.T0, running=64.0, tokens_per_s=880.0, ceiling_low=5200.0, ceiling_high=7600.0, share_low=0.115, share_high=0.17,
        text="880 tokens/s with 64 running are 12 to 17 %",
    )  # fmt: skip
    daemon.tell(material.moved(roofline=known))
    assert "12% to 17% of 5,200 to 7,600 tok/s" in words(daemon.client().get("/").text)

    daemon.tell(material.moved(roofline=Roofline(at_s=material.T0, running=1.0, tokens_per_s=1.0, missing=("the arguments",), do=("give the log",))))

    text = words(daemon.client().get("/").text)
    assert "unknown: the arguments" in text
    assert "Cure: give the log." in text


def test_the_page_needs_nothing_from_anywhere(story):
    page = story.client().get("/").text
    without_ours = re.sub(r"<(script|style) nonce=\"[^\"]+\">.*?</\1>", "", page, flags=re.S)

    assert not re.search(r'\s(style|on\w+)="', without_ours)
    assert [each for each in re.findall(r'(?:src|href)="([^"]+)"', without_ours) if each.startswith(("http", "//"))] == [
        "https://github.com/sgl-project/sglang/issues/1"
    ] * without_ours.count('href="https://github.com')
    assert re.search(r"url\(|@import", page) is None


def test_every_address_on_the_page_works_behind_a_path_prefix(story):
    """A proxy may serve us under any prefix; relative addresses need not know it."""
    page = story.client(root_path="/gpu-7/watchdog").get("/").text

    ours = [each for each in re.findall(r'(?:src|href)="([^"]+)"', page) if not each.startswith(("http", "data:"))]
    assert ours
    assert not [each for each in ours if each.startswith("/")]
    assert not re.findall(r"fetch\('/", page)


@pytest.mark.parametrize("path", ["/gpu-7/watchdog/api/v1/status", "/api/v1/status"])
def test_a_proxy_may_strip_the_prefix_or_leave_it(story, path):
    assert story.client(root_path="/gpu-7/watchdog").get(path).status_code == 200
    assert story.client(root_path="/gpu-7/watchdog", is_loopback=False).get(path).status_code == 401


def test_beyond_loopback_a_stranger_sees_a_form_and_nothing_else(story):
    client = story.client(is_loopback=False)
    for path in ("/", "/docs"):
        answer = client.get(path)
        text = words(answer.text)
        assert answer.status_code == 401
        assert 'id="token"' in answer.text
        assert not [secret for secret in ("chat", "Triton", "H200", "server.log", "findings") if secret in text]

    assert "Triton" in story.client(TokenScope.READ, is_loopback=False).get("/").text


def test_the_page_never_holds_a_token(story):
    page = story.client(TokenScope.WRITE).get("/").text

    assert "sgwd_" not in page


def test_many_findings_do_not_make_an_endless_page(daemon):
    daemon.tell(*(material.fired(f"f{n}") for n in range(600)))

    assert daemon.client().get("/").text.count("<article") == 300


def test_a_closed_finding_is_not_offered_for_acknowledgement(story):
    page = story.client().get("/").text
    over = page[page.index('id="f-over"') - 200 : page.index('id="f-over"') + 4000]

    assert 'data-take="over"' not in over
    assert 'data-take="cause"' in page
    assert State.RESOLVED.value in over


def test_a_server_that_is_gone_shows_its_last_load_with_its_time(daemon):
    """256 running requests of a server that crashed an hour ago must not look like now."""
    daemon.tell(material.moved(phase=Phase.CRASHED, ended_at_s=material.T0 + 60))
    daemon.board.set_load("chat", {"TP0": RankLoad(running_requests=256.0)})

    text = words(daemon.client().get("/").text)
    assert re.search(r"last load, until 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d", text)
    assert "running 256" in text


def test_a_source_that_is_not_read_says_why_and_what_to_do(daemon):
    daemon.board.set_sources([material.source(state="failed", why="/logs/server.log: Permission denied", do="setfacl", last_line_at_s=None)])

    text = words(daemon.client().get("/").text)
    assert "/logs/server.log: Permission denied; setfacl" in text
    assert "an unknown time" not in text.partition("Sources")[2]
