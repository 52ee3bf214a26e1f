"""The configuration is put together from layers; what is wrong in one of them is shown where it was written."""

import hashlib
import json

import pytest

from sglang_watchdog.config.layers import configuration_files, configure
from sglang_watchdog.config.secrets import NoSecret, read_secret, token_hash
from sglang_watchdog.config.settings import Settings, Token, json_schema, split_address
from sglang_watchdog.config.show import MASK, settings_shown, show_text


@pytest.fixture
def write(tmp_path):
    def write(text, name="watchdog.yaml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_without_any_layer_the_defaults_are_the_contracts():
    settings = configure().settings

    assert settings.address == ("127.0.0.1", 17853)
    assert settings.state_dir == "/var/lib/sglang-watchdog"
    assert settings.telemetry.source == "nvml"
    assert settings.clock == "wall"


def test_later_layers_win_files_then_environment_then_flags(write):
    first = write("listen: 127.0.0.1:1\nretention: {days: 7}\nclock: log\nlog_level: debug\n")
    second = write("listen: 127.0.0.1:2\nretention: {max_mb: 10}\n", "conf.d/a.yaml")

    configuration = configure(
        [first, second],
        {"SGLANG_WATCHDOG_LISTEN": "127.0.0.1:3", "SGLANG_WATCHDOG_LOG_LEVEL": "error", "HOME": "/root"},
        {"--listen": (("listen",), "127.0.0.1:4")},
    )

    settings = configuration.settings
    assert (settings.listen, settings.retention.days, settings.retention.max_mb) == ("127.0.0.1:4", 7, 10)
    assert (settings.clock, settings.log_level) == ("log", "error")


def test_conf_d_follows_the_file_in_order_of_names(write, tmp_path):
    path = write("")
    write("", "conf.d/b.yaml")
    write("", "conf.d/a.yaml")

    assert [one.name for one in configuration_files(path)] == ["watchdog.yaml", "a.yaml", "b.yaml"]


def test_servers_of_several_files_are_merged_by_name(write):
    first = write("servers: [{name: a, logs: /a.log}, {name: b, logs: /b.log}]\n")
    second = write("servers: [{name: b, timezone: Europe/Berlin}, {name: c, logs: [/c.log, 'journal:sglang']}]\n", "c.yaml")

    servers = {server.name: server for server in configure([first, second]).settings.servers}

    assert servers["b"].logs == ["/b.log"]
    assert servers["b"].timezone == "Europe/Berlin"
    assert servers["c"].logs == ["/c.log", "journal:sglang"]


def test_other_lists_are_replaced(write):
    first = write("signatures: {disable: [a, b]}\n")
    second = write("signatures: {disable: [c]}\n", "c.yaml")

    assert configure([first, second]).settings.signatures.disable == ["c"]


def test_every_fault_is_told_where_it_stands_with_the_nearest_key(write):
    first = write("retention:\n  dayz: 3\n")
    second = write("servers:\n  - {name: a, timezon: UTC}\nclock: wal\nnotify: [{type: webhok}]\nstate_dir: 5\n", "c.yaml")

    faults = {fault.where.rsplit("/", 1)[-1]: fault for fault in configure([first, second]).faults}

    assert faults["watchdog.yaml:2:3"].help == "Did you mean `days`?"
    assert faults["c.yaml:2:15"].help == "Did you mean `timezone`?"
    assert faults["c.yaml:3:8"].help == "Did you mean `wall`?"
    assert faults["c.yaml:4:10"].help == "Did you mean `webhook`?"
    assert "this is `5`" in faults["c.yaml:5:12"].message
    assert len(faults) == 5


def test_a_server_of_a_later_file_is_shown_in_that_file(write):
    """Merging moves items; a fault still points at the line that someone has to change."""
    first = write("servers: [{name: a}]\n")
    second = write("servers:\n  - name: b\n    timezone: Nowhere\n", "c.yaml")

    (fault,) = configure([first, second]).faults
    assert fault.where.endswith("c.yaml:3:15")
    assert "write it like UTC" in fault.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("listen: 17853:x\n", "is no address to listen on"),
        ("listen: 0.0.0.0:17853\n", "reachable from other machines"),
        ("telemetry: replay\n", "needs `file`"),
        ("telemetry: {source: nvml, interval_s: 0}\n", "interval_s"),
        ("auth: {tokens: [{name: a}]}\n", "exactly one of `sha256`, `file`, `credential`"),
        ("auth: {tokens: [{name: a, sha256: abc}]}\n", "sha256"),
        ("servers: [{name: a}, {name: a}]\n", "given twice"),
        ("servers: [{name: a}]\nnotify: [{type: webhook, url: 'http://x/', secret_file: s, servers: [b]}]\n", "names the server `b`"),
        ("notify: [{url: 'http://x/'}]\n", "`type` is missing"),
        ("notify: [{type: webhook, url: x}]\n", "is no address"),
        ("notify: [{type: webhook, url: 'http://x/'}]\n", "exactly one of `secret_file`, `secret_credential`"),
        ("notify: [{type: webhook, url: 'http://x/', secret_file: a, secret_credential: b}]\n", "exactly one of"),
        ("notify: [{type: alertmanager, name: a, urls: ['http://x']}, {type: alertmanager, name: a, urls: ['http://y']}]\n", "given twice"),
        ("root_path: watchdog\n", "is no path prefix"),
        ("root_path: /a/../b\n", "is no path prefix"),
        ("root_path: /api\n", "begins like an address of the API"),
        ("auth: {reads_need_token: true}\n", "would keep everybody out"),
        ("limits: {body_bytes: 1}\n", "greater than or equal to 1024"),
        ("notify: [{type: apprise}]\n", "urls_file"),
        ("signatures: {override: {a-b: {}}}\n", "needs `severity` or `threshold`"),
        ("external_url: example.org\n", "write it like http"),
        ("- a\n", "a mapping of settings is needed"),
        ("listen: [\n", "not valid YAML"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(write, text, words):
    configuration = configure([write(text)])

    assert configuration.settings is None
    assert any(words in fault.message for fault in configuration.faults), [f.message for f in configuration.faults]


def test_a_missing_file_is_a_fault(tmp_path):
    assert "No such file" in configure([tmp_path / "none.yaml"]).faults[0].message


@pytest.mark.parametrize(
    ("name", "value", "words", "help"),
    [
        ("SGLANG_WATCHDOG_RETENTION__DAYZ", "3", "unknown setting `retention.dayz`", "Did you mean `days`?"),
        ("SGLANG_WATCHDOG_LISTEM", "x", "unknown setting `listem`", "Did you mean `listen`?"),
        ("SGLANG_WATCHDOG_SERVERS__3__NAME", "x", "there is no item `3`", "next free one is 0"),
        ("SGLANG_WATCHDOG_SERVERS", "[{name: a", "not valid YAML", ""),
        ("SGLANG_WATCHDOG_RETENTION__DAYS", "many", "this is `many`", ""),
    ],
)
def test_a_bad_variable_is_named(name, value, words, help):
    (fault,) = configure([], {name: value}).faults

    assert fault.where == name or fault.where.startswith(f"{name}:")
    assert words in fault.message
    assert help in fault.help


def test_variables_reach_groups_lists_and_items(write):
    path = write("servers: [{name: a}]\ntelemetry: {interval_s: 2}\n")

    settings = configure([path], {
        "SGLANG_WATCHDOG_SERVERS__0__LOGS": "/a.log,/b.log",
        "SGLANG_WATCHDOG_SERVERS__1__NAME": "b",
        "SGLANG_WATCHDOG_TELEMETRY": "replay:x.jsonl.gz",
        "SGLANG_WATCHDOG_AUTH__METRICS_OPEN": "true",
        "SGLANG_WATCHDOG_SIGNATURES__OVERRIDE": "{a-b: {threshold: 0.3}}",
        "SGLANG_WATCHDOG_CONFIG": "elsewhere.yaml",
    }).settings  # fmt: skip

    assert [(server.name, server.logs) for server in settings.servers] == [("a", ["/a.log", "/b.log"]), ("b", [])]
    assert (settings.telemetry.source, settings.telemetry.file, settings.telemetry.interval_s) == ("replay", "x.jsonl.gz", 2)
    assert settings.auth.metrics_open is True
    assert settings.signatures.override["a-b"].threshold == 0.3


def test_the_short_form_of_telemetry_keeps_the_rest_of_its_group(write):
    path = write("telemetry: {interval_s: 2, source: nvml}\n")

    telemetry = configure([path], {}, {"--telemetry": (("telemetry",), "none")}).settings.telemetry
    assert (telemetry.source, telemetry.interval_s) == ("none", 2)


def test_show_names_who_set_each_value_and_masks_secrets(write):
    digest = hashlib.sha256(b"token").hexdigest()
    path = write(
        f"auth: {{tokens: [{{name: page, scope: write, sha256: {digest}}}]}}\n"
        "notify: [{type: webhook, url: 'https://hooks.example/T0/hidden', secret_file: /s}]\n"
        "servers: [{name: a, url: 'http://me:pass@127.0.0.1:30000'}]\n"
    )

    configuration = configure([path], {"SGLANG_WATCHDOG_CLOCK": "log"}, {"--listen": (("listen",), "127.0.0.1:9")})
    shown = {setting.path: setting for setting in settings_shown(configuration)}

    assert shown["auth.tokens.0.sha256"].value == MASK
    assert shown["notify.0.url"].value == MASK
    assert shown["servers.0.url"].value == f"http://{MASK}@127.0.0.1:30000"
    assert shown["auth.tokens.0.name"].origin == f"{path}:1"
    assert shown["notify.0.type"].origin == f"{path}:2"
    assert shown["clock"].origin == "SGLANG_WATCHDOG_CLOCK"
    assert shown["listen"].origin == "--listen"
    assert shown["retention.days"].origin == "default"
    assert "hidden" not in show_text(configuration)
    assert digest not in show_text(configuration)
    assert "pass@" not in show_text(configuration)


@pytest.mark.parametrize(
    ("text", "address"),
    [("127.0.0.1:80", ("127.0.0.1", 80)), ("[::1]:80", ("::1", 80)), ("80", ("127.0.0.1", 80)), (":80", ("0.0.0.0", 80)),
     ("localhost:0", ("localhost", 0))],
)  # fmt: skip
def test_addresses_may_be_written_short(text, address):
    assert split_address(text) == address


@pytest.mark.parametrize("text", ["::1:80", "host", "host:99999", "host:-1", ""])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match="write it like"):
        split_address(text)


@pytest.mark.parametrize(("listen", "needs"), [("127.0.0.1:1", False), ("[::1]:1", False), ("localhost:1", False)])
def test_loopback_needs_no_token_to_read(listen, needs):
    assert Settings(listen=listen).needs_token is needs


def test_beyond_loopback_a_token_is_needed_and_enough():
    settings = Settings(listen="0.0.0.0:1", auth={"tokens": [{"name": "a", "file": "/x"}]})

    assert settings.needs_token


def test_a_token_is_kept_as_its_hash(tmp_path):
    plain, hashed = tmp_path / "plain", tmp_path / "hashed"
    plain.write_text("s3cret\n")
    digest = hashlib.sha256(b"s3cret").hexdigest()
    hashed.write_text(digest + "\n")

    assert token_hash(Token(name="a", file=str(plain)), {}) == digest
    assert token_hash(Token(name="a", file=str(hashed)), {}) == digest
    assert token_hash(Token(name="a", sha256=digest), {}) == digest
    assert token_hash(Token(name="a", credential="plain"), {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == digest


@pytest.mark.parametrize(
    ("file", "credential", "words"),
    [("/none/such", None, "cannot be read"), (None, "api", "LoadCredential=api"), ("{tmp}/empty", None, "is empty")],
)
def test_a_secret_that_cannot_be_read_says_why_and_what_to_do(tmp_path, file, credential, words):
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(NoSecret, match=words):
        read_secret(file and file.format(tmp=tmp_path), credential, {})


def test_a_credential_is_a_name_and_no_path(tmp_path):
    with pytest.raises(NoSecret, match="no name of a credential"):
        read_secret(None, "../x", {"CREDENTIALS_DIRECTORY": str(tmp_path)})


def test_the_schema_knows_every_setting_of_the_contract():
    schema = json_schema()

    assert {"servers", "telemetry", "listen", "external_url", "auth", "state_dir", "retention", "signatures", "notify"} <= set(
        schema["properties"])  # fmt: skip
    assert json.dumps(schema)
