"""Who is told what, how often, and that nothing is lost over failures and restarts."""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from sglang_watchdog.model.words import Severity, State
from sglang_watchdog.sinks.ledger import Ledger
from sglang_watchdog.sinks.ledger_writes import Acknowledgement, Silence
from sglang_watchdog.sinks.notify import http
from sglang_watchdog.sinks.notify.build import notifier, outbox_channels
from sglang_watchdog.sinks.notify.http import DeliveryFailed
from sglang_watchdog.sinks.notify.notifier import AlertPeer, Post
from sglang_watchdog.sinks.notify.settings import AlertmanagerSettings, ChatSettings, Pace, Wanted, WebhookSettings
from sglang_watchdog.sinks.notify.webhook import Chat, Webhook
from sinks import material
from sinks.receiver import Receiver, receiving

KEY = b"0123456789abcdef0123456789abcdef"
T0 = material.T0


@dataclass
class Clock:
    now_s: float = T0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Desk:
    """A ledger, a webhook to a real receiver, and a clock that only we move. `go_home` is a crash and a restart."""

    path: Path
    settings: WebhookSettings
    receiver: Receiver
    clock: Clock
    pace: Pace = field(default_factory=Pace)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.ledger = Ledger(self.path, channels=outbox_channels([self.settings]), notify_wait_s=self.pace.wait_s, now=self.clock)
        self.post = Post(
            "pager",
            Webhook(self.settings, "https://watch.example"),
            self.ledger,
            wanted=self.settings.wanted,
            pace=self.pace,
            now=self.clock,
            jitter=lambda: 0.5,
        )

    def restart(self) -> None:
        self.ledger.close()
        self.open()

    def tell(self, *changes: object) -> None:
        self.ledger.commit(changes).result(5)

    def after(self, seconds: float) -> list[str]:
        """Let time pass, hand out what is due, and say what has arrived since."""
        before = len(self.receiver.requests)
        self.clock.now_s += seconds
        self.post.turn()
        return [f"{body['finding']['id']} {body['event']}" for body in self.receiver.bodies()[before:]]

    def dead(self) -> list[tuple[str, str]]:
        return self.ledger.read(lambda connection: connection.execute("SELECT key, error FROM dead_letters").fetchall())


@pytest.fixture
def desk(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("whsec_" + base64.b64encode(KEY).decode() + "\n")
    with receiving() as receiver:
        settings = WebhookSettings(name="pager", url=f"{receiver.url}/hook?x=1", secret_file=secret)
        desk = Desk(tmp_path / "state" / "ledger.db", settings, receiver, Clock())
        yield desk
        desk.ledger.close()


def test_a_firing_and_a_resolved_finding_are_told_once_each(desk):
    desk.tell(material.fired())
    assert desk.after(4) == []
    assert desk.after(2) == ["f1 finding.firing"]
    assert desk.after(3600) == []

    desk.tell(material.resolved())

    assert desk.after(6) == ["f1 finding.resolved"]
    assert desk.after(3600) == []


def test_the_payload_has_server_cause_first_evidence_and_a_link(desk):
    desk.tell(material.fired(explains=("f2",)))
    desk.after(6)

    (body,) = desk.receiver.bodies()

    assert body["server"] == "chat"
    assert body["text"] == "[WARNING] chat: Triton MoE kernels run untuned defaults"
    assert body["first_evidence"] == f"server.log:28: {material.LINE.text}"
    assert body["link"] == "https://watch.example/#f-f1"
    assert body["finding"]["explains"] == ["f2"]


def test_the_signature_can_be_checked_with_the_shared_secret(desk):
    """As Standard Webhooks has it: HMAC-SHA256 over id, time and body."""
    desk.tell(material.fired())
    desk.after(6)

    path, headers, body = desk.receiver.requests[0]

    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["webhook-timestamp"] == str(int(desk.clock.now_s))
    assert path == "/hook?x=1"


def test_effects_are_folded_under_their_cause_and_told_when_it_is_gone(desk):
    desk.tell(
        material.fired("effect", topic="gpu.power-underused"),
        material.fired("effect", was=State.FIRING, explained_by="cause"),
        material.fired("cause"),
    )
    assert desk.after(6) == ["cause finding.firing"]

    desk.tell(material.resolved("cause"), material.fired("effect", was=State.FIRING, at_s=T0 + 60))

    assert sorted(desk.after(400)) == ["cause finding.resolved", "effect finding.firing"]


def test_what_was_over_before_the_daemon_started_is_recorded_and_never_told(desk):
    desk.tell(material.fired(historic=True), material.resolved(historic=True))

    assert desk.after(3600) == []
    assert desk.ledger.finding("f1").is_historic


def test_only_severities_the_channel_wants_are_told(desk):
    desk.tell(material.fired("low", severity=Severity.INFO), material.fired("high", severity=Severity.CRITICAL))

    assert desk.after(6) == ["high finding.firing"]


def test_a_blink_is_not_told_at_all(desk):
    desk.tell(material.fired(), material.resolved())

    assert desk.after(6) == []


def test_a_flapping_finding_makes_at_most_the_documented_number_of_notifications(desk):
    """1 + T / repeat_s, whatever the input does: here 200 flaps in 2,000 seconds."""
    told = []
    for flap in range(200):
        desk.tell(material.fired(at_s=T0 + 10 * flap, reopened=flap), material.resolved(at_s=T0 + 10 * flap + 5))
        if flap % 2:
            desk.tell(material.fired(at_s=T0 + 10 * flap + 6, reopened=flap))
        told += desk.after(10)

    bound = 1 + 2000 / desk.pace.repeat_s
    print(f"200 flaps in 2,000 s: {len(told)} notifications, at most {bound:.0f}")
    assert 2 <= len(told) <= bound
    assert all(one != other for one, other in pairwise(told))


def test_a_silenced_finding_is_told_when_the_silence_ends_if_it_still_fires(desk):
    desk.ledger.silence(Silence(id="s", matchers={"server": "chat"}, author="ada", reason="r", starts_s=T0, ends_s=T0 + 100)).result(5)
    desk.tell(material.fired("stays"), material.fired("goes"))
    assert desk.after(6) == []
    desk.tell(material.resolved("goes"))

    assert desk.after(95) == ["stays finding.firing"]


def test_an_acknowledged_finding_is_told_again_only_when_it_is_over(desk):
    desk.tell(material.fired("early"), material.fired("late"))
    desk.ledger.acknowledge(Acknowledgement(finding="early", author="ada", note="", at_s=T0)).result(5)
    assert desk.after(6) == ["late finding.firing"]

    desk.ledger.acknowledge(Acknowledgement(finding="late", author="ada", note="", at_s=T0)).result(5)
    desk.tell(material.resolved("early"), material.resolved("late"))

    assert desk.after(400) == ["late finding.resolved"]


def test_a_failed_delivery_is_tried_again_with_growing_pauses_until_it_arrives(desk):
    desk.receiver.status = 503
    desk.tell(material.fired())
    attempts = [len(desk.after(seconds)) for seconds in (6, 4, 1.5, 5, 6, 10, 11)]
    assert attempts == [1, 0, 1, 0, 1, 0, 1]
    assert desk.post.tally.error == "127.0.0.1: answered 503 Service Unavailable"

    desk.receiver.status = 200

    assert desk.after(60) == ["f1 finding.firing"]
    ids = {headers["webhook-id"] for _, headers, _ in desk.receiver.requests}
    assert len(ids) == 1


def test_a_restart_loses_nothing_that_waits_and_repeats_nothing_that_arrived(desk):
    desk.tell(material.fired("one"))
    desk.after(6)
    desk.receiver.status = 500
    desk.tell(material.fired("two"))
    desk.after(6)

    desk.restart()
    desk.receiver.status = 200
    desk.tell(material.fired("one"), material.fired("two"))

    assert desk.after(60) == ["two finding.firing"]


def test_after_the_deadline_it_lies_with_the_dead_letters(desk):
    desk.receiver.status = 500
    desk.tell(material.fired())
    desk.after(6)
    desk.after(desk.pace.deadline_s)

    assert desk.dead() == [("f1", "127.0.0.1: answered 500 Internal Server Error")]
    assert desk.after(3600) == []


@pytest.mark.parametrize("status", [301, 400, 401, 404, 410])
def test_a_refusal_for_good_is_not_tried_again(desk, status):
    desk.receiver.status, desk.receiver.headers = status, {"location": "http://127.0.0.1:1/elsewhere"}
    desk.tell(material.fired())

    assert desk.after(6) == ["f1 finding.firing"]
    assert desk.after(3600) == []
    assert len(desk.dead()) == 1


def test_the_queue_is_bounded_and_what_does_not_fit_is_kept_as_dead(desk):
    desk.pace = Pace(queue=3)
    desk.restart()
    for n in range(5):
        desk.clock.now_s += 0.1
        desk.tell(material.fired(f"f{n}"))

    assert sorted(desk.after(6)) == ["f2 finding.firing", "f3 finding.firing", "f4 finding.firing"]
    assert sorted(desk.dead()) == [("f0", "the queue was full"), ("f1", "the queue was full")]


def test_a_finding_that_moves_while_it_is_being_told_is_told_again(desk):
    desk.tell(material.fired())
    sent = desk.post._channel.tell

    def slow(row, change_id, **rest):
        desk.tell(material.resolved())
        sent(row, change_id, **rest)

    desk.post._channel.tell = slow
    assert desk.after(6) == ["f1 finding.firing"]
    desk.post._channel.tell = sent

    assert desk.after(400) == ["f1 finding.resolved"]


def test_a_secret_that_is_too_short_is_refused_with_its_place(desk):
    desk.settings.secret_file.write_text("short")
    desk.tell(material.fired())
    desk.after(6)

    assert "shorter than 24 bytes" in desk.post.tally.error
    assert desk.receiver.requests == []


def test_an_answer_that_never_ends_costs_no_more_than_the_deadline():
    import socket
    import threading

    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not stop.wait(0.05):
                    try:
                        connection.sendall(b".")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(DeliveryFailed, match=r"did not end in time|timed out"):
            http.post(f"http://127.0.0.1:{server.getsockname()[1]}/", b"{}", {}, timeout_s=0.4)
        stop.set()
        thread.join(5)
        assert not thread.is_alive()


def test_an_error_names_the_host_and_never_the_address_with_its_secret():
    with pytest.raises(DeliveryFailed) as failure:
        http.post("http://user:hunter2@127.0.0.1:1/hook/s3cret", b"", {}, timeout_s=1)

    assert "127.0.0.1" in str(failure.value)
    assert "hunter2" not in str(failure.value)
    assert "s3cret" not in str(failure.value)


def test_secrets_of_channels_stay_out_of_the_ledger(desk):
    """Whatever goes wrong: address, key and signature are nowhere in the file that is kept, nor in what is said."""
    desk.settings = WebhookSettings(
        name="pager", url="http://user:hunter2@127.0.0.1:1/hook/s3cret?key=t0ken", secret_file=desk.settings.secret_file
    )
    desk.restart()
    desk.tell(material.fired())
    desk.after(6)
    desk.after(desk.pace.deadline_s)
    assert len(desk.dead()) == 1
    desk.ledger.close()

    kept = b"".join(file.read_bytes() for file in desk.path.parent.iterdir()) + desk.post.tally.error.encode()
    for secret in (b"hunter2", b"s3cret", b"t0ken", KEY, base64.b64encode(KEY)):
        assert secret not in kept


def test_chats_get_title_evidence_and_remedy(tmp_path):
    urls = tmp_path / "chats"
    urls.write_text("# team\nslack://a/b/c\n")
    ledger, sent = Ledger(None), []
    ledger.commit([material.fired()]).result(5)
    chat = Chat(ChatSettings(name="team", urls_file=urls), "https://watch.example", send=lambda *args: sent.append(args) or True)

    chat.tell(ledger.finding("f1"), 1, told_before=False, now_s=T0)

    ((addresses, title, text),) = sent
    assert addresses == ["slack://a/b/c"]
    assert title == "[WARNING] chat: Triton MoE kernels run untuned defaults"
    assert "server.log:28" in text
    assert "1. Tune E=128." in text
    ledger.close()


def test_what_waits_for_a_channel_that_is_gone_becomes_a_dead_letter(desk):
    desk.tell(material.fired())
    notifier([], desk.ledger, now=desk.clock)

    assert desk.dead() == [("f1", "the channel is no longer configured")]


def test_the_threads_tell_by_themselves_when_woken(desk):
    """The real thing: threads, a committed change, a delivery; then an orderly end."""
    pace = Pace(wait_s=0.0)
    desk.ledger.close()
    ledger = Ledger(desk.path, channels=("pager",), notify_wait_s=0.0, on_committed=lambda _: running.wake())
    running = notifier([desk.settings], ledger, pace=pace)
    running.start()
    ledger.commit([material.fired()]).result(5)

    desk.receiver.wait_for(1)
    running.stop()

    (name, health), = running.health().items()
    assert (name, health.sent, health.failed, health.waiting, health.dead, health.error) == ("pager", 1, 0, 0, 0, "")
    assert health.sent_s is not None
    ledger.close()


# --- Alertmanager ---------------------------------------------------------------------------------------------------


@pytest.fixture
def peer(desk):
    settings = AlertmanagerSettings(name="am", urls=(desk.receiver.url,), resend_s=60.0)
    return AlertPeer(settings, desk.receiver.url, desk.ledger, pace=desk.pace, external_url="https://watch.example", now=desk.clock)


def sent(desk: Desk) -> dict[str, dict]:
    """The newest push, by finding."""
    return {alert["labels"].get("finding", "alive"): alert for alert in desk.receiver.bodies()[-1]}


def test_a_firing_alert_is_sent_again_and_again_with_its_end_ahead(desk, peer):
    desk.tell(material.fired())
    assert peer.turn() == 60.0
    first = sent(desk)["f1"]
    desk.clock.now_s += 60
    desk.tell(material.fired(was=State.FIRING, count=7, last_seen_s=T0 + 50, summary="other numbers"))
    peer.turn()
    second = sent(desk)["f1"]

    assert desk.receiver.requests[0][0] == "/api/v2/alerts"
    assert (
        first["labels"]
        == second["labels"]
        == {
            "alertname": "SGLangWatchdogFinding",
            "server": "chat",
            "topic": "moe.config-missing",
            "signature": "moe-config-missing",
            "severity": "warning",
            "finding": "f1",
        }
    )
    assert (first["startsAt"], first["endsAt"], second["endsAt"]) == (
        "2026-02-19T08:10:03Z",
        "2026-02-19T08:14:03Z",
        "2026-02-19T08:15:03Z",
    )
    assert second["annotations"]["description"] == "other numbers"
    assert first["generatorURL"] == "https://watch.example/#f-f1"


def test_a_resolved_alert_is_sent_again_for_a_while_and_then_no_more(desk, peer):
    desk.tell(material.fired())
    peer.turn()
    desk.tell(material.resolved())

    seen = []
    for _ in range(8):
        desk.clock.now_s += 60
        peer.turn()
        seen.append(sent(desk).get("f1", {}).get("endsAt"))

    assert seen == ["2026-02-19T08:11:03Z"] * 6 + [None] * 2


def test_an_alert_resolved_while_the_peer_was_away_is_still_resolved_there(desk, peer):
    desk.tell(material.fired())
    peer.turn()
    desk.receiver.status = 503
    desk.tell(material.resolved())
    for _ in range(30):
        desk.clock.now_s += 60
        assert peer.turn() == desk.pace.backoff_s

    desk.receiver.status = 200
    peer.turn()

    assert sent(desk)["f1"]["endsAt"] == "2026-02-19T08:11:03Z"


def test_after_a_restart_of_the_daemon_a_firing_alert_goes_on_and_a_resolved_one_is_resolved(desk, peer):
    desk.tell(material.fired("on"), material.fired("off"))
    peer.turn()
    desk.tell(material.resolved("off"))
    desk.restart()
    again = AlertPeer(peer._settings, desk.receiver.url, desk.ledger, pace=desk.pace, now=desk.clock)

    again.turn()

    assert {id: alert["endsAt"] for id, alert in sent(desk).items() if id != "alive"} == {
        "on": "2026-02-19T08:14:03Z",
        "off": "2026-02-19T08:11:03Z",
    }


def silence(desk: Desk, seconds: float) -> None:
    word = Silence(id="s", matchers={"finding": "f1"}, author="a", reason="r", starts_s=desk.clock.now_s, ends_s=desk.clock.now_s + seconds)
    desk.ledger.silence(word).result(5)


def test_a_silence_ends_an_alert_that_is_out_and_its_end_brings_it_back(desk, peer):
    """Alertmanager knows nothing of our silences: the alert is ended there at once, and said again for as long as a resolved one,
    in case a peer was away."""
    desk.tell(material.fired())
    peer.turn()
    silence(desk, 900)

    seen = []
    for _ in range(16):
        peer.turn()
        seen.append(sent(desk).get("f1", {}).get("endsAt"))
        desk.clock.now_s += 60

    assert seen[:6] == ["2026-02-19T08:10:03Z"] * 6, "ended now, and the same end each time"
    assert seen[6:15] == [None] * 9
    assert seen[15] == "2026-02-19T08:29:03Z", "the silence is over: it fires, with its end four resends ahead"


def test_an_acknowledgement_ends_an_alert_that_is_out_until_it_is_taken_back(desk, peer):
    desk.tell(material.fired())
    peer.turn()
    labels = sent(desk)["f1"]["labels"]
    desk.ledger.acknowledge(Acknowledgement(finding="f1", author="ada", note="", at_s=T0)).result(5)
    desk.clock.now_s += 30
    peer.turn()
    taken = sent(desk)["f1"]
    desk.ledger.withdraw("f1", "ada").result(5)
    desk.clock.now_s += 30
    peer.turn()
    back = sent(desk)["f1"]

    assert (taken["endsAt"], back["endsAt"]) == ("2026-02-19T08:10:33Z", "2026-02-19T08:15:03Z")
    assert labels == taken["labels"] == back["labels"]


def test_an_acknowledged_alert_that_resolves_is_told_resolved_while_it_is_remembered(desk, peer):
    desk.tell(material.fired())
    peer.turn()
    desk.ledger.acknowledge(Acknowledgement(finding="f1", author="ada", note="", at_s=T0)).result(5)
    peer.turn()
    desk.tell(material.resolved())
    desk.clock.now_s += 60
    peer.turn()

    assert sent(desk)["f1"]["endsAt"] == "2026-02-19T08:11:03Z"


def test_an_alertmanager_gets_the_servers_and_topics_it_wants_with_its_labels(desk, peer):
    """Who was told of a beginning is told of the end, whatever is wanted by then."""
    desk.tell(material.fired("here"), material.fired("elsewhere", server="code"), material.fired("other", topic="gpu.lost"))
    peer._settings = replace(peer._settings, wanted=Wanted(servers=("chat",), topics=("moe.",)), labels=(("team", "serving"), ("finding", "x"), ("site", "any")),
                              of_server=(("chat", (("site", "east"),)), ("code", (("site", "west"),))))  # fmt: skip
    peer.turn()

    assert set(sent(desk)) == {"here", "alive"}
    labels = sent(desk)["here"]["labels"]
    assert (labels["team"], labels["finding"], labels["site"]) == ("serving", "here", "east")

    peer._settings = replace(peer._settings, wanted=Wanted(servers=("code",)))
    peer.turn()
    assert set(sent(desk)) == {"here", "elsewhere", "alive"}


def test_a_webhook_gets_the_servers_and_topics_it_wants(desk):
    desk.settings = replace(desk.settings, wanted=Wanted(servers=("chat",), topics=("moe.",)))
    desk.restart()
    desk.tell(material.fired("here"), material.fired("elsewhere", server="code"), material.fired("other", topic="gpu.lost"))

    assert desk.after(6) == ["here finding.firing"]


def test_each_failure_is_told_with_its_reason_and_kept_until_the_next_success(desk):
    told = []
    desk.post._on_failed = lambda channel, why: told.append((channel, why))
    desk.receiver.status = 503
    desk.tell(material.fired())
    desk.after(6)
    assert told == [("pager", "127.0.0.1: answered 503 Service Unavailable")]
    assert desk.post.tally.error == "127.0.0.1: answered 503 Service Unavailable"

    desk.receiver.status = 200
    desk.after(60)
    assert (desk.post.tally.error, desk.post.tally.sent, desk.post.tally.sent_s) == ("", 1, desk.clock.now_s)


def test_historic_folded_silenced_and_minor_findings_are_not_pushed(desk, peer):
    desk.ledger.silence(Silence(id="s", matchers={"finding": "quiet"}, author="a", reason="r", starts_s=T0, ends_s=T0 + 999)).result(5)
    desk.tell(
        material.fired("old", historic=True),
        material.fired("effect", explained_by="x"),
        material.fired("quiet"),
        material.fired("minor", severity=Severity.INFO),
        material.fired("pending", state=State.PENDING),
    )
    peer.turn()

    assert list(sent(desk)) == ["alive"]
    assert sent(desk)["alive"]["labels"] == {"alertname": "SGLangWatchdogAlive", "severity": "none"}


def test_a_quiet_daemon_writes_nothing_to_its_ledger_when_it_resends(desk, peer):
    desk.tell(material.fired())
    peer.turn()
    before = desk.ledger.read(lambda connection: connection.execute("SELECT channel, key, state, at FROM delivered").fetchall())
    desk.clock.now_s += 60
    peer.turn()

    assert desk.ledger.read(lambda connection: connection.execute("SELECT channel, key, state, at FROM delivered").fetchall()) == before
