# log lines are as long as they are
"""What is cut from a quotation, and what is not."""

import pytest

from sglang_watchdog.parse.redact import Redactor, redact, redact_words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("python -m sglang.launch_server --api-key s3cret --port 1", "python -m sglang.launch_server --api-key *** --port 1"),
        ("--admin-api-key=s3cret --x", "--admin-api-key=*** --x"),
        ("['--api-key', 's3cret', '--port']", "['--api-key', ***, '--port']"),
        ("ServerArgs(a=1, api_key='s3, cret', b=2)", "ServerArgs(a=1, api_key=***, b=2)"),
        ("{'admin_api_key': 's3cret', 'b': 2}", "{'admin_api_key': ***, 'b': 2}"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("{'authorization': 'Bearer abc.def', 'x': 1}", "{'authorization': ***', 'x': 1}"),
        ("used Bearer abcdefgh now", "used Bearer *** now"),
        ("token hf_abcdefghijkl and sk-abcdef123456", "token *** and ***"),
        ("AWS_SECRET_ACCESS_KEY=abc rest", "AWS_SECRET_ACCESS_KEY=*** rest"),
        ("https://user:pw@host/a", "https://***@host/a"),
        ('"GET /v1/models?key=abc HTTP/1.1" 200', '"GET /v1/models?*** HTTP/1.1" 200'),
        ("rid='5c0ef8' left", "rid=*** left"),
        ("Abort request rid=[x] y z", "Abort request rid=***"),
        ("remaining_rids=['[a] b', 'c]'] end", "remaining_rids=*** end"),
        ("decode_req.req.rid='5c0ef8a1d9' room", "decode_req.req.rid=*** room"),
        ("Req(rid=7d9a1c04b2, input_ids=[1, 2], output_ids=[])", "Req(rid=***, input_ids=***, output_ids=***)"),
        ("remaining_rids=['a', 'b']. Bye", "remaining_rids=***. Bye"),
        ("input_value='hello there', input_type=str", "input_value=***, input_type=str"),
        ("model_loader_extra_config={'a': 1}, b=2", "model_loader_extra_config=***, b=2"),
    ],
)
def test_secrets_and_users_text_are_cut(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Decode batch, #running-req: 38, #token: 61000, token usage: 0.07, gen throughput (token/s): 641.32, #queue-req: 0",
        "max_total_num_tokens=312640, chunked_prefill_size=8192, max_prefill_tokens=16384",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 651264, #new_token_ratio: 0.4821 -> 0.7104",
        "KeyError: 'model.layers.0.mlp'",
        "swa_full_tokens_ratio=0.8, skip_tokenizer_init=False",
        "Tokenizer loaded as generic TokenizersBackend for /m",
        "Config file not found at /usr/lib/sglang/configs/E=128,N=768,device_name=H200.json",
        "port 30000 is already in use",
        "context_len=32768",
        "Overriding bid=3, grid=(1, 2)",
        "https://github.com/sgl-project/sglang/issues/new/choose",
    ],
)
def test_ordinary_messages_stay_whole(text: str) -> None:
    assert redact(text) == text


def test_values_learned_from_a_dump_are_cut_anywhere() -> None:
    redactor = Redactor()
    redactor.learn(("abcdef123", "abc"))

    assert redactor("x abcdef123 abc") == "x *** abc"


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("--api-key sk-planted-1 --tp 2", ("--api-key", "***", "--tp", "2")),
        ("--api-key=sk-planted-1 --tp=2", ("--api-key=***", "--tp=2")),
        ("--admin-api-key planted --port 1", ("--admin-api-key", "***", "--port", "1")),
        ("--api-k planted", ("--api-k", "***")),
        ("--admin=planted", ("--admin=***",)),
        ("--ssl-keyfile-password planted", ("--ssl-keyfile-password", "***")),
        ("--hicache-storage-backend-extra-config {planted}", ("--hicache-storage-backend-extra-config", "***")),
        ("--model-path https://me:planted@host/m", ("--model-path", "https://***@host/m")),
        ("--model-loader-extra-config {} --model /m/x", ("--model-loader-extra-config", "***", "--model", "/m/x")),
        ("--api-key -planted --tp 2", ("--api-key", "***", "--tp", "2")),
    ],
)
def test_a_launch_command_keeps_its_words_and_loses_its_secrets(words: str, kept: tuple[str, ...]):
    assert redact_words(words.split()) == kept
    assert "planted" not in repr(redact_words(words.split()))
