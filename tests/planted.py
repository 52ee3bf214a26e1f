"""Keys and prompts in every place of a log where one has been seen, each in words that nothing else holds."""

from collections.abc import Callable, Iterator

SECRETS = (
    "sk-planted-0123456789abcdefghij", "hf_PlantedTokenPlantedTokenPlanted", "planted-admin-key-42", "planted-bearer-token-77",
    "planted-query-key-99", "PLANTED PROMPT ABOUT MY ILLNESS", "planted-ssl-password-11",
)  # fmt: skip

# Wordings within a line that a signature quotes; {} is the secret. As in tests/parse/test_redact.py.
WORDINGS = (
    "python -m sglang.launch_server --api-key {} --port 1",
    "--admin-api-key={} --x",
    "['--api-key', '{}', '--port']",
    "ServerArgs(a=1, api_key='{}', b=2)",
    "{{'admin_api_key': '{}', 'b': 2}}",
    "Authorization: Bearer {}",
    "{{'authorization': 'Bearer {}', 'x': 1}}",
    "used Bearer {} now",
    "token hf_{} and more",
    "AWS_SECRET_ACCESS_KEY={} rest",
    "https://user:{}@host/a",
    '"GET /v1/models?key={} HTTP/1.1" 200',
    "rid='{}' left",
    "input_value='{}', input_type=str",
    "GenerateReqInput(text='{}', input_ids=[1, 2])",
)


def planted_log(stamp: Callable[[int], str] = lambda second: f"2026-02-06 05:00:{second:02}") -> str:
    """One server's life; `stamp` gives the time of a second of it."""
    api, hf, admin, bearer, query, prompt, ssl = SECRETS
    return (
        f"[{stamp(0)}] server_args=ServerArgs(model_path='/models/m', api_key='{api}', admin_api_key=\"{admin}\", "
        f"ssl_keyfile_password='{ssl}', model_loader_extra_config='{{\"token\": \"{hf}\"}}', tp_size=1, log_level='info')\n"
        f"[{stamp(1)}] Launching: python -m sglang.launch_server --api-key {api} --admin-api-key={admin} HF_TOKEN={hf}\n"
        f"[{stamp(2)}] Receive: obj=GenerateReqInput(rid='1', text='{prompt}')\n"
        f'{{"timestamp": "x", "event": "request.received", "obj": {{"text": "{prompt}"}}}}\n'
        f'[{stamp(3)}] INFO:     10.0.0.7:4242 - "GET /v1/models?api_key={query} HTTP/1.1" 503 Service Unavailable\n'
        f"[{stamp(4)}] Scheduler hit an exception: Traceback (most recent call last):\n"
        f'  File "x.py", line 1, in f\n    headers={{"Authorization": "Bearer {bearer}"}}\n'
        f"ValueError: bad request with Authorization: Bearer {bearer} and api_key={api} token {hf}\n\n"
        f"[{stamp(5)}] server_args={{'model_path': '/m', 'api_key': '{api}', 'admin_api_key': '{admin}', 'tp_size': 1}}\n"
        f"[{stamp(6)}] Scheduler hit an exception: Traceback (most recent call last):\nRuntimeError: CUDA error: launch {api}\n"
        f"[{stamp(7)}] Received sigquit from a child process. It usually means the child failed. key={admin}\n"
    )


def planted_runs(stamp: Callable[[int], str]) -> Iterator[tuple[str, str]]:
    """For each wording a server that dies of it: the secret, and the lines."""
    for number, wording in enumerate(WORDINGS):
        secret, at = f"PlantedWording{number:02}abcdef", number * 4
        yield secret, (
            f"[{stamp(at)}] server_args=ServerArgs(model_path='/models/w{number}', tp_size=1, log_level='info')\n"
            f"[{stamp(at + 1)}] Receive: obj=GenerateReqInput(rid='{secret}', text='{secret}')\n"
            f"[{stamp(at + 3)}] Received sigquit from a child process. It usually means the child failed. wording{number:02}: {wording.format(secret)}\n"
        )
