"""Whatever stands around a server's own command, its arguments and variables are found as a shell would hand them over."""

import pytest

from sglang_watchdog.triage.command import LaunchCommand, NotACommand, mask_words, read_command

FLAGS = ("--model-path", "m", "--tp", "4")


@pytest.mark.parametrize(
    "text",
    [
        "python -m sglang.launch_server --model-path m --tp 4",
        "/opt/venv/bin/python3.12 -u -m sglang.launch_server --model-path m --tp 4",
        "sglang serve --model-path m --tp 4",
        "/usr/local/bin/sglang serve --model-path m --tp 4",
        "python3 /sgl-workspace/sglang/python/sglang/launch_server.py --model-path m --tp 4",
        "python3 -m sglang.cli.main serve --model-path m --tp 4",
        "docker run --gpus all --shm-size 32g -p 30000:30000 lmsysorg/sglang:latest python3 -m sglang.launch_server --model-path m --tp 4",
        "docker run --rm lmsysorg/sglang bash -c 'cd /srv && python3 -m sglang.launch_server --model-path m --tp 4 2>&1 | tee x.log'",
        "nohup python -m sglang.launch_server --model-path m --tp 4 > server.log 2>&1 &",
        "python -m sglang.launch_server --model-path m --tp 4 && echo up",
        "python -m sglang.launch_server \\\n  --model-path m \\\n  --tp 4\n",
        "python -m sglang.launch_server ^\r\n  --model-path m ^\r\n  --tp 4",
        "python -m sglang.launch_server `\n  --model-path m `\n  --tp 4",
        '["python3", "-m", "sglang.launch_server", "--model-path", "m", "--tp", "4"]',
        "--model-path m --tp 4",
        "sglang serve --model-path m --tp 4 # with a remark",
        "numactl -N 0 torchrun-wrapper sglang serve --model-path m --tp 4; sleep 1",
    ],
)
def test_the_arguments_are_found_in(text: str):
    assert read_command(text).arguments == FLAGS


def test_a_redirection_takes_its_descriptor_along_but_no_argument():
    """`--port 30000 > log`: the number before the arrow is the port, unlike the 2 of `2>&1`."""
    assert read_command("sglang serve --port 30000 > server.log 2>&1").arguments == ("--port", "30000")
    assert read_command("sglang serve --port 30000 2>&1 | tee server.log").arguments == ("--port", "30000")


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("SGLANG_A=1 B='x y' python -m sglang.launch_server --tp 1", {"SGLANG_A": "1", "B": "x y"}),
        ("export SGLANG_A=1\npython -m sglang.launch_server --tp 1", {"SGLANG_A": "1"}),
        ("docker run -e SGLANG_A=1 --env=B=2 image python -m sglang.launch_server --tp 1", {"SGLANG_A": "1", "B": "2"}),
        ("A=1 bash -c 'B=2 sglang serve --tp 1'", {"A": "1", "B": "2"}),
        ("HF_TOKEN=hf_EXAMPLE sglang serve --tp 1", {"HF_TOKEN": "***"}),
        ("AWS_SECRET_ACCESS_KEY=x MAX_TOKENS=5 sglang serve --tp 1", {"AWS_SECRET_ACCESS_KEY": "***", "MAX_TOKENS": "5"}),
    ],
)
def test_variables_are_kept_and_secrets_masked(text: str, variables: dict[str, str]):
    assert read_command(text).environment == variables


def test_words_that_a_shell_has_split_are_taken_as_they_are():
    words = ["python3", "-m", "sglang.launch_server", "--json-model-override-args", '{"a": 1}']

    assert read_command(words) == LaunchCommand("python -m sglang.launch_server", (words[3], words[4]))


def test_quotes_hold_spaces_and_json():
    command = read_command("""sglang serve --deepep-config '{"a": {"num_sms": 96}}' --served-model-name "my model" --x={\\"a\\":1}""")

    assert command.arguments == (
        "--deepep-config",
        '{"a": {"num_sms": 96}}',
        "--served-model-name",
        "my model",
        '--x={"a":1}',
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("python -m sglang.launch_server --chat-template 'x", "is a quote left open?"),
        ("python -m vllm.entrypoints.api_server --model m", "neither a command that starts SGLang"),
        ("", "nothing given"),
    ],
)
def test_what_is_no_command_is_said(text: str, says: str):
    with pytest.raises(NotACommand) as caught:
        read_command(text)

    assert says in str(caught.value)


def test_a_command_is_shown_without_its_secrets():
    words = ["--api-key", "sk-EXAMPLE", "--admin-api-key=x", "--ssl-keyfile-password", "p", "--max-total-tokens", "5"]

    assert mask_words(words) == "--api-key *** --admin-api-key=*** --ssl-keyfile-password *** --max-total-tokens 5"
