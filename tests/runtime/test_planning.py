"""From a configuration to the plan of what runs."""

from sglang_watchdog.config.settings import Settings
from sglang_watchdog.runtime.planning import plan_of
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
