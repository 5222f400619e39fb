"""The command `serve` and its subcommands, such as those that manage tokens.

A command imports its implementation only when called, so that all commands start quickly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streammetrics.cli import help_texts as texts
from streammetrics.cli.options import CommandApp, Text, Texts, option

__all__ = ["serve"]

serve = CommandApp(invoke_without_command=True, epilog=texts.SERVE_EXAMPLES)
Store = Annotated[str, option("URL", texts.STORE, "--store", envvar="STREAMMETRICS_STORE")]


@serve.callback()
def _serve(
    context: typer.Context,
    store: Store = "streammetrics.db",
    host: Annotated[
        str,
        option("ADDRESS", "Address to listen on; 0.0.0.0 stands for all addresses.", envvar="STREAMMETRICS_HOST"),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        option("PORT", "Port to listen on; 0 selects a free one.", min=0, max=65535, envvar="STREAMMETRICS_PORT"),
    ] = 8000,
    experiments: Annotated[Text, option("FOLDER", texts.EXPERIMENTS, envvar="STREAMMETRICS_EXPERIMENTS")] = None,
    metrics: Annotated[Text, option("FILE", texts.CATALOG, envvar="STREAMMETRICS_METRICS")] = None,
    watch: Annotated[Text, option("FOLDER", texts.WATCH, envvar="STREAMMETRICS_WATCH")] = None,
    auth: Annotated[str, option("login|proxy-header=NAME", texts.AUTH, envvar="STREAMMETRICS_AUTH")] = "login",
    groups_header: Annotated[Text, option("NAME", texts.GROUPS, envvar="STREAMMETRICS_GROUPS_HEADER")] = None,
    group: Annotated[Texts, option("GROUP=RIGHTS", texts.GROUP_RIGHTS, envvar="STREAMMETRICS_GROUP")] = None,
    public_read: Annotated[
        bool,
        option("", "Let everybody read all experiments.", "--public-read", envvar="STREAMMETRICS_PUBLIC_READ"),
    ] = False,
    trust_proxy: Annotated[Texts, option("ADDRESS", texts.TRUST, envvar="STREAMMETRICS_TRUST_PROXY")] = None,
    name: Annotated[Texts, option("HOST", texts.CALLED, envvar="STREAMMETRICS_NAME")] = None,
    https: Annotated[
        bool,
        option(
            "",
            "Mark all cookies as secure, because readers use only HTTPS.",
            "--https",
            envvar="STREAMMETRICS_HTTPS",
        ),
    ] = False,
    max_bytes: Annotated[
        int, option("NUMBER", "Largest size of a posted state.", min=1024, envvar="STREAMMETRICS_MAX_BYTES")
    ] = 32 << 20,
) -> None:
    """Serve a live dashboard of experiments.

    Workers post states with sm.push or `eval --push`, and people watch the
    experiments. Create a token for the workers first.
    """
    if context.invoked_subcommand is not None:
        context.default_map = {context.invoked_subcommand: {"store": store}}
        return
    from streammetrics.cli.serve import parse_auth, parse_groups, read_catalog, run_server
    from streammetrics.serve.settings import ServerSettings

    settings = ServerSettings(
        public_read=public_read,
        proxy_header=parse_auth(auth),
        groups_header=groups_header,
        group_rights=parse_groups(group or ()),
        proxies=tuple(trust_proxy or ()),
        https=https,
        max_bytes=max_bytes,
        definitions=experiments,
        catalog=read_catalog(metrics),
        watch=watch,
    )
    run_server(store, host, port, settings, name or [])


@serve.command("token")
def _token(
    experiment: Annotated[
        Text, typer.Argument(metavar="EXPERIMENT", help="ID of the experiment whose workers use the token.")
    ] = None,
    name: Annotated[Text, option("NAME", "Name of the worker. An earlier token of this name becomes invalid.")] = None,
    owner: Annotated[Text, option("NAME", "Create a token for an owner, who defines experiments.")] = None,
    reader: Annotated[Text, option("NAME", "Create a token for a reader, who logs in.")] = None,
    tag: Annotated[Texts, option("TAG", "Show the reader only the experiments with this tag; can be repeated.")] = None,
    store: Store = "streammetrics.db",
) -> None:
    """Create a token for an owner, a reader or the workers of an experiment, and print it once."""
    from streammetrics.cli.serve import make_token

    make_token(store, experiment, name, owner, reader, tag or ())


@serve.command("tokens")
def _tokens(
    experiment: Annotated[
        Text,
        typer.Argument(
            metavar="EXPERIMENT", help="ID of an experiment. The list then leaves out the tokens of other experiments."
        ),
    ] = None,
    store: Store = "streammetrics.db",
) -> None:
    """List the names of all tokens."""
    from streammetrics.cli.serve import list_tokens

    list_tokens(store, experiment)


@serve.command("revoke")
def _revoke(
    whose: Annotated[str, typer.Argument(metavar="WHOSE", help=texts.WHOSE)],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")],
    store: Store = "streammetrics.db",
) -> None:
    """Revoke a token and its sessions, effective within seconds."""
    from streammetrics.cli.serve import revoke_token

    revoke_token(store, whose, name)


@serve.command("audit")
def _audit(
    experiment: Annotated[
        Text, typer.Argument(metavar="EXPERIMENT", help="ID of an experiment; by default, all experiments and tokens.")
    ] = None,
    store: Store = "streammetrics.db",
) -> None:
    """Print who changed what and when."""
    from streammetrics.cli.serve import print_audit

    print_audit(store, experiment)


@serve.command("backup")
def _backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file; it must not exist.")],
    store: Store = "streammetrics.db",
) -> None:
    """Copy an SQLite store to a file while the server runs."""
    from streammetrics.cli.serve import back_up

    back_up(store, file)


@serve.command("check")
def _check(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder of definitions, one file ID.toml each.")],
    metrics: Annotated[Text, option("FILE", texts.CATALOG)] = None,
) -> None:
    """Check definitions and a catalog of metrics before a server uses them."""
    from streammetrics.cli.serve import check_folder

    check_folder(folder, metrics)
