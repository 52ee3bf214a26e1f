"""The frame around every page: head, policy with a nonce, and the form for strangers."""

import secrets

from starlette.responses import HTMLResponse

from . import assets
from .html import Markup, link, tag


def respond(title: str, main: Markup, *, follows: bool, status: int = 200) -> HTMLResponse:
    """A whole page. The policy allows this page's own style and script, by a nonce that is used once, and nothing
    else."""
    nonce = secrets.token_urlsafe(16)
    document = Markup("<!doctype html>") + tag(
        "html",
        tag(
            "head",
            Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup(f'<link rel="icon" href="{assets.ICON}">'),
            tag("title", title),
            tag("style", Markup(assets.text("page.css")), nonce=nonce),
        ),
        tag(
            "body",
            tag(
                "header",
                tag("h1", title),
                tag("span", id="live", class_="soft"),
                tag(
                    "nav",
                    link("./", "status"),
                    " · ",
                    link("./docs", "API"),
                    " · ",
                    link("./metrics", "metrics"),
                    class_="soft",
                ),
            ),
            main,
            tag("script", Markup(assets.text("page.js")), nonce=nonce),
            data_follow="1" if follows else None,
        ),
        lang="en",
    )
    policy = (
        f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return HTMLResponse(document, status, headers={"content-security-policy": policy})


def stranger(title: str) -> HTMLResponse:
    """What somebody without a token sees: nothing but the form."""
    main = tag(
        "main",
        tag(
            "section",
            tag(
                "form",
                tag("p", "Reading needs a token here."),
                Markup('<input id="token" type="password" autocomplete="off" aria-label="token"> '),
                tag("button", "Open"),
            ),
        ),
    )
    answer = respond(title, main, follows=True, status=401)
    answer.headers["www-authenticate"] = 'Bearer realm="sglang-watchdog"'
    return answer
