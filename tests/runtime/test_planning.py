"""From a configuration to the plan of what runs."""

from sglang_watchdog.config.settings import Settings
from sglang_watchdog.runtime.planning import plan_of
from sglang_watchdog.runtime.preflight import doubts
from sglang_watchdog.sinks.notify.settings import AlertmanagerSettings


def test_a_servers_labels_go_to_its_alerts():
    settings = Settings.model_validate(
        {
            "servers": [{"name": "chat", "logs": ["/var/log/chat.log"], "labels": {"site": "east"}}, {"name": "code", "logs": ["/var/log/code.log"]}],
            "notify": [{"type": "alertmanager", "urls": ["http://127.0.0.1:9093"]}],
        }
    )

    (channel,) = plan_of(settings).notify

    assert isinstance(channel, AlertmanagerSettings)
    assert channel.of_server == (("chat", (("site", "east"),)),)


def doubts_of(*servers: dict[str, object]) -> list[str]:
    return doubts(plan_of(Settings.model_validate({"servers": list(servers)})))


def test_an_address_elsewhere_is_never_asked_and_that_is_said():
    (said,) = doubts_of({"name": "chat", "url": "http://192.0.2.1:30000"}, {"name": "code", "url": "http://localhost:30001"})

    assert said.startswith("server chat: http://192.0.2.1:30000 is not on this machine")


def test_one_log_for_two_servers_is_doubted():
    (said,) = doubts_of({"name": "chat", "logs": ["/var/log/sglang.log"]}, {"name": "code", "logs": ["/var/log/sglang.log"]})

    assert said.startswith("/var/log/sglang.log is the log of chat and code")
