"""The routes that show the login form, log a user in, and log a user out."""

from __future__ import annotations

import re
from html import escape

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from .access import TOO_MANY_TOKENS, Access, cookie_name, error_response, is_valid_csrf_token, read_form
from .headers import is_same_origin

__all__ = ["build_login_routes"]

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in - streammetrics</title>
<style nonce="{nonce}">
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }}
main {{ max-width: 24rem; margin: 15vh auto 0; padding: 0 1rem }}
h1 {{ font-size: 1.25rem }}
input, button {{ font: inherit; box-sizing: border-box; width: 100%; padding: .5rem; margin: .25rem 0 1rem }}
.wrong {{ border-left: 4px solid #b3261e; padding-left: .75rem }}
</style>
</head>
<body>
<main>
<h1>streammetrics</h1>
{wrong}<form method="post" action="/login">
<input type="hidden" name="next" value="{next}">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button>Log in</button>
</form>
<p>The operator of this server creates tokens: <code>streammetrics serve token --reader NAME</code>.</p>
</main>
</body>
</html>
"""
LOCAL_PATH = re.compile(r"/(?![/\\])[\x21-\x7e]*")
"""A path on this server, to which a login may redirect. A path that begins with "//" would lead to a different host."""


def build_login_routes(access: Access) -> list[Route]:
    """Return the routes for login and logout."""

    def page(request: Request, to: str, status: int = 200, wrong: str = "") -> Response:
        message = f'<p class="wrong" role="alert">{escape(wrong)}</p>\n' if wrong else ""
        text = PAGE.format(nonce=request.state.nonce, wrong=message, next=escape(_keep_local_path(to)))
        return HTMLResponse(text, status, {"cache-control": "no-store"})

    async def show(request: Request) -> Response:
        return page(request, request.query_params.get("next", "/"))

    async def log_in(request: Request) -> Response:
        client = access.find_client(request.scope)
        if not is_same_origin(request):
            return error_response(403, "the form was not sent from a page of this server; open /login and log in there")
        form = await read_form(request, access.settings.body_seconds)
        to, token = form.get("next", "/"), form.get("token", "").strip()
        person = await run_in_threadpool(access.accounts.find_person, token)
        if person is None:
            if not access.failures.take(client):
                return error_response(429, TOO_MANY_TOKENS, wait=access.failures.seconds_to_wait(client))
            return page(request, to, 403, "This token is not known to the server, or was revoked.")
        answer = RedirectResponse(_keep_local_path(to), 303)
        https = access.uses_https(request.scope)
        answer.set_cookie(
            cookie_name(https),
            await run_in_threadpool(access.accounts.create_session, token),
            max_age=int(access.accounts.seconds),
            secure=https,
            httponly=True,
            samesite="lax",
        )
        return answer

    async def log_out(request: Request) -> Response:
        form = await read_form(request, access.settings.body_seconds)
        if not is_valid_csrf_token(request.state.reader, form.get("form", "")):
            message = "the form is from another server or another session; reload the page and try again"
            return error_response(403, message)
        answer = RedirectResponse("/login", 303)
        https = access.uses_https(request.scope)
        cookie = request.cookies.get(cookie_name(https), "")
        await run_in_threadpool(access.accounts.end_session, cookie)
        answer.delete_cookie(cookie_name(https), secure=https, httponly=True, samesite="lax")
        return answer

    return [
        Route("/login", show, methods=["GET"]),
        Route("/login", log_in, methods=["POST"]),
        Route("/logout", log_out, methods=["POST"]),
    ]


def _keep_local_path(to: str) -> str:
    return to if LOCAL_PATH.fullmatch(to) and len(to) <= 2000 else "/"
