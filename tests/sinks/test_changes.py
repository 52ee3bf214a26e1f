"""The stream of changes over a real connection: resume, heartbeats, slow readers."""

import json
import threading
import time
from itertools import islice

import pytest

from sglang_watchdog.sinks.web.limits import Limits
from sglang_watchdog.sinks.web.tokens import TokenScope
from sinks import material
from sinks.live import Raw, Stream, serving


def names(events) -> list[str]:
    return [f"{each['id']} {each['event']}" for each in events]


def test_changes_arrive_as_they_are_committed(daemon):
    with serving(daemon.parts()) as address, Stream(address) as stream:
        status, headers = stream.head()
        events = stream.events()
        assert next(events) == {"retry": "2000"}
        daemon.tell(material.moved(), material.fired())
        first, second = next(events), next(events)

    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert names([first, second]) == ["1 run", "2 finding"]
    assert json.loads(second["data"])["finding"]["title"] == "Triton MoE kernels run untuned defaults"
    assert json.loads(second["data"])["was"] is None


def test_a_client_that_was_away_goes_on_where_it_stopped(daemon):
    with serving(daemon.parts()) as address:
        daemon.tell(*(material.fired(f"f{n}") for n in range(500)))
        with Stream(address, "Last-Event-ID: 0") as stream:
            stream.head()
            seen = [int(event["id"]) for event in islice(stream.events(), 1, 201)]
        with Stream(address, f"Last-Event-ID: {seen[-1]}") as stream:
            stream.head()
            seen += [int(event["id"]) for event in islice(stream.events(), 1, 301)]

    assert seen == list(range(1, 501))


def test_a_stream_can_be_bounded_for_scripts(daemon):
    daemon.tell(material.moved(), material.fired())
    with serving(daemon.parts()) as address, Stream(address, query="?after=1&duration_s=0") as stream:
        stream.head()
        assert names(list(stream.events())[1:]) == ["2 finding"]


def test_what_is_past_its_retention_is_said_to_be_missed(daemon):
    daemon.tell(material.fired("a"), material.fired("b"), material.fired("c"))
    daemon.ledger.write(lambda connection: connection.execute("DELETE FROM changes WHERE id < 3")).result(5)
    with serving(daemon.parts()) as address, Stream(address, "Last-Event-ID: 1", query="?duration_s=0") as stream:
        stream.head()
        events = list(stream.events())[1:]

    assert names(events) == ["2 missed", "3 finding"]
    assert json.loads(events[0]["data"])["oldest"] == 3


def test_an_id_of_another_ledger_is_not_silently_taken_for_ours(daemon):
    daemon.tell(material.fired())
    with serving(daemon.parts()) as address, Stream(address, "Last-Event-ID: 999", query="?duration_s=0") as stream:
        stream.head()
        assert names(list(stream.events())[1:]) == ["0 missed", "1 finding"]


def test_a_quiet_stream_has_heartbeats(daemon):
    with serving(daemon.parts(limits=Limits(heartbeat_s=0.05))) as address, Stream(address) as stream:
        stream.head()
        assert list(islice(stream.events(), 1, 4)) == [{":": "heartbeat"}] * 3


def test_people_are_in_the_stream_too(story):
    with serving(story.parts()) as address, Stream(address) as stream:
        stream.head()
        events = stream.events()
        next(events)
        client = story.client(TokenScope.WRITE)
        client.post("/api/v1/findings/cause/acknowledgement", json={"by": "ada", "note": "mine"})
        client.post("/api/v1/silences", json={"matchers": {"server": "chat"}, "reason": "r", "duration_s": 60})
        word, silence = next(events), next(events)

    assert json.loads(word["data"])["acknowledgement"]["by"] == "ada"
    assert json.loads(silence["data"])["silence"]["matchers"] == {"server": "chat"}


def test_hostile_text_cannot_forge_an_event(daemon):
    daemon.tell(material.fired(title="x\n\nid: 999\nevent: finding\ndata: {}\n\n", summary="\r\n\u2028"))
    with serving(daemon.parts()) as address, Stream(address, query="?after=0&duration_s=0") as stream:
        stream.head()
        assert names(list(stream.events())[1:]) == ["1 finding"]


def test_a_client_that_never_reads_is_cut_off_and_disturbs_nobody(daemon):
    """It holds a connection and one buffer, never the ledger or another client; its connection ends by itself."""
    limits = Limits(stream_stall_s=0.3)
    with serving(daemon.parts(limits=limits)) as address:  # noqa: SIM117
        with Stream(address, query="?after=0", receive_buffer=4096) as deaf, Stream(address, query="?after=0") as keen:
            keen.head()
            counted = threading.Event()

            def read() -> None:
                for count, _ in enumerate(keen.events(), 0):
                    if count == 2000:
                        counted.set()
                        return

            reader = threading.Thread(target=read)
            reader.start()
            for n in range(20):
                daemon.tell(*(material.fired(f"f{n}-{m}", explanation="x" * 2000) for m in range(100)))
            assert counted.wait(20)
            reader.join()
            ended = threading.Event()
            threading.Thread(target=lambda: (daemon_streams_end(daemon, 1), ended.set())).start()
            assert ended.wait(10)
            assert deaf.is_cut()


def daemon_streams_end(daemon, left: int) -> None:
    """Wait until at most so many clients listen."""
    tick = threading.Event()
    while daemon.broadcast.listeners > left:
        tick.wait(0.01)


def test_there_are_only_so_many_streams(daemon):
    with serving(daemon.parts(limits=Limits(streams=1))) as address, Stream(address) as first:
        assert first.head()[0] == 200
        with Stream(address) as second:
            assert second.head()[0] == 503


def test_a_stream_whose_client_leaves_frees_its_place(daemon):
    with serving(daemon.parts(limits=Limits(streams=1))) as address:
        for _ in range(3):
            with Stream(address) as stream:
                assert stream.head()[0] == 200
            daemon_streams_end(daemon, 0)


@pytest.mark.parametrize("query", ["?after=x", "?after=-1", "?duration_s=-1", "?stop=1"])
def test_a_stream_that_is_asked_for_wrongly_is_refused(daemon, query):
    assert daemon.client().get(f"/api/v1/changes{query}").status_code == 422


def test_streams_end_when_the_daemon_stops(daemon):
    with serving(daemon.parts()) as address:
        stream = Stream(address)
        stream.head()
    assert stream.is_cut()
    stream.__exit__()


# --- connections -----------------------------------------------------------------------------------------------------


def test_a_request_that_never_ends_is_cut_off(daemon):
    limits = Limits(request_s=0.2)
    with (
        serving(daemon.parts(limits=limits)) as address,
        Raw(address) as silent,
        Raw(address) as slow,
        Raw(address) as body,
    ):
        slow.send("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        body.send(
            "POST /api/v1/silences HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\nAuthorization: Bearer "
            f"{daemon.tokens[TokenScope.WRITE]}\r\nContent-Type: application/json\r\n\r\n{{"
        )
        assert [each.is_cut() for each in (silent, slow, body)] == [True, True, True]
        assert daemon.client().get("/healthz").status_code == 200


def test_a_connection_that_is_used_again_is_not_cut_off_between_requests(daemon):
    with serving(daemon.parts(limits=Limits(request_s=0.1))) as address, Raw(address) as client:
        for pause_s in (0.0, 0.3, 0.3):
            threading.Event().wait(pause_s)
            client.get("/healthz")
            status, headers = client.head()
            client.file.read(int(headers["content-length"]))
            assert status == 200


def test_answers_do_not_wait_for_a_delayed_acknowledgement(daemon):
    """Head and body are written apart; without TCP_NODELAY the second waits 40 ms on a connection that is kept open."""
    with serving(daemon.parts()) as address, Raw(address) as client:
        took_s = []
        for _ in range(20):
            begun = time.perf_counter()
            client.get("/healthz")
            client.file.read(int(client.head()[1]["content-length"]))
            took_s.append(time.perf_counter() - begun)

    assert min(took_s[1:]) < 0.03


def test_huge_headers_are_refused(daemon):
    with serving(daemon.parts()) as address, Raw(address) as client:
        client.get("/healthz", "X-Big: " + "x" * 40_000)
        assert client.head()[0] == 400


def test_connections_are_bounded_in_all_and_for_each_address(daemon):
    with serving(daemon.parts(limits=Limits(connections=3))) as address:  # noqa: SIM117
        with Raw(address) as one, Raw(address) as two, Raw(address) as three:
            for each in (one, two, three):
                each.get("/healthz")
                assert each.head()[0] == 200
            with Raw(address) as four:
                four.get("/healthz")
                assert four.head()[0] == 503
    with serving(daemon.parts(limits=Limits(connections_per_client=1))) as address, Raw(address) as one:
        one.get("/healthz")
        assert one.head()[0] == 200
        with Raw(address) as two:
            assert two.head()[0] == 503


def test_garbage_is_answered_and_harms_nothing(daemon):
    with serving(daemon.parts()) as address:
        for garbage in (
            "\x00" * 100,
            "GET\r\n\r\n",
            "GET / HTTP/9.9\r\n\r\n",
            "G" * 20_000,
            "\r\n" * 1000,
            "GET / HTTP/1.1\r\n\r\n",
        ):
            with Raw(address) as client:
                client.send(garbage)
                client.socket.shutdown(1)
                assert client.is_cut()
        with Raw(address) as client:
            client.get("/healthz")
            assert client.head()[0] == 200
