"""The commands and their options.

A command imports its implementation only when it is called, so that all commands start fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from streammetrics.cli.help_texts import (
    ARM,
    BITS,
    BY,
    CHECKPOINT,
    CLASSES,
    COLUMNS,
    CONTROL,
    DELIMITER,
    FEW,
    FROM,
    GATE,
    GROUP,
    INDEPENDENT,
    INVALID,
    KEEP,
    LACKING,
    LOG,
    METRICS,
    MISSING,
    NO_QUOTES,
    NULLS,
    POSITIVE,
    PRED,
    PUSH,
    QUERY,
    RATE,
    REPORT,
    ROLLUP,
    SAVED,
    SCORE,
    SENDER,
    SHARDS,
    SMALLEST,
    SORT,
    SOURCE,
    SQL,
    STATES,
    TASK,
    TIME,
    TYPES,
    UNIT,
    WHERE,
    WINDOW,
)
from streammetrics.cli.messages import COMMAND, UsageError
from streammetrics.cli.options import (
    COLUMNS_PANEL,
    DASHBOARD_PANEL,
    INTERVALS_PANEL,
    METRICS_PANEL,
    OUTPUT_PANEL,
    READING_PANEL,
    SLICES_PANEL,
    Better,
    Confidence,
    Corrects,
    Format,
    Guardrails,
    Keep,
    MissingColumns,
    MissingUnits,
    OnInvalid,
    Planned,
    Primary,
    Printed,
    ScoreScale,
    Sequential,
    Text,
    Texts,
    Top,
    Type,
    Users,
)

__all__ = ["run"]


app = typer.Typer(
    name="streammetrics",
    help="Score prediction logs of any size in constant memory: exact results where possible, certified bounds elsewhere.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name; return its exit code. Raise UsageError if they are invalid."""
    COMMAND.set(tuple(arguments))
    try:
        code = app(args=list(arguments) or ["--help"], prog_name="streammetrics", standalone_mode=False)
    except Exception as error:
        # This attribute identifies the errors of click, whether typer uses the package or its own copy of it.
        if hasattr(error, "format_message"):
            raise UsageError(_explain_option(error.format_message().replace("\n", " "))) from None
        if type(error).__name__ == "Abort":
            raise KeyboardInterrupt from None
        raise
    if code == 130:
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _explain_option(message: str) -> str:
    """Return an error message of the option parser; for an unknown option such as `--json`, suggest `--format json`."""
    name = message.removeprefix("No such option: --").split(" ")[0]
    return f"there is no option --{name}; did you mean --format {name}?" if name in list(Format) else message


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from streammetrics import __version__

        typer.echo(f"streammetrics {__version__}")
        raise typer.Exit


@app.command("eval")
def _eval(
    log: Annotated[Texts, typer.Argument(metavar="LOG...", help=LOG)] = None,
    label: Annotated[
        Text,
        typer.Option(
            help="Column of labels: 0 or 1, a class, a grade, a number; 'y_*'.", rich_help_panel=COLUMNS_PANEL
        ),
    ] = None,
    pos_label: Annotated[Text, typer.Option(help=POSITIVE, rich_help_panel=COLUMNS_PANEL)] = None,
    score: Annotated[Texts, typer.Option(help=SCORE, rich_help_panel=COLUMNS_PANEL)] = None,
    pred: Annotated[Texts, typer.Option(help=PRED, rich_help_panel=COLUMNS_PANEL)] = None,
    task_type: Annotated[Type, typer.Option(help="What is predicted.", rich_help_panel=METRICS_PANEL)] = Type.binary,
    classes: Annotated[Text, typer.Option(help=CLASSES, rich_help_panel=METRICS_PANEL)] = None,
    query: Annotated[Text, typer.Option(help=QUERY, rich_help_panel=COLUMNS_PANEL)] = None,
    group: Annotated[Text, typer.Option(help=GROUP, rich_help_panel=COLUMNS_PANEL)] = None,
    k: Annotated[Text, typer.Option("--k", help="Cut-offs, such as 5,10.", rich_help_panel=METRICS_PANEL)] = None,
    scale: Annotated[
        ScoreScale, typer.Option(help="Scale of scores.", rich_help_panel=METRICS_PANEL)
    ] = ScoreScale.probability,
    weight: Annotated[Text, typer.Option(help="Column of weights.", rich_help_panel=COLUMNS_PANEL)] = None,
    where: Annotated[Texts, typer.Option(help=WHERE, rich_help_panel=COLUMNS_PANEL)] = None,
    negative_rate: Annotated[float | None, typer.Option(help=RATE, rich_help_panel=COLUMNS_PANEL)] = None,
    corrects: Annotated[
        Corrects | None, typer.Option(help="Which effects of down-sampling to correct.", rich_help_panel=COLUMNS_PANEL)
    ] = None,
    by: Annotated[Texts, typer.Option(help=BY, rich_help_panel=SLICES_PANEL)] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0, help="Number of slices to keep for each --by; others are merged.", rich_help_panel=SLICES_PANEL
        ),
    ] = None,
    keep: Annotated[Keep | None, typer.Option(help=KEEP, rich_help_panel=SLICES_PANEL)] = None,
    unit: Annotated[Text, typer.Option(help=UNIT, rich_help_panel=INTERVALS_PANEL)] = None,
    confidence: Confidence = 0.95,
    shards: Annotated[int | None, typer.Option(min=8, max=4096, help=SHARDS, rich_help_panel=INTERVALS_PANEL)] = None,
    missing_unit: Annotated[MissingUnits | None, typer.Option(help=MISSING, rich_help_panel=INTERVALS_PANEL)] = None,
    window: Annotated[Text, typer.Option(help=WINDOW, rich_help_panel=SLICES_PANEL)] = None,
    time: Annotated[Text, typer.Option(help=TIME, rich_help_panel=SLICES_PANEL)] = None,
    arm: Annotated[Text, typer.Option(help=ARM, rich_help_panel=INTERVALS_PANEL)] = None,
    control: Annotated[Text, typer.Option(help=CONTROL, rich_help_panel=INTERVALS_PANEL)] = None,
    primary: Primary = None,
    guardrail: Guardrails = None,
    better: Better = None,
    users: Users = None,
    planned: Planned = None,
    sequential: Sequential = False,
    metrics: Annotated[Text, typer.Option(help=METRICS, rich_help_panel=METRICS_PANEL)] = None,
    bits: Annotated[int | None, typer.Option(min=8, max=24, help=BITS, rich_help_panel=METRICS_PANEL)] = None,
    task: Annotated[Text, typer.Option(help=TASK, rich_help_panel=METRICS_PANEL)] = None,
    on_invalid: Annotated[OnInvalid, typer.Option(help=INVALID, rich_help_panel=READING_PANEL)] = OnInvalid.stop,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of threads; by default one a CPU.", rich_help_panel=READING_PANEL)
    ] = None,
    save: Annotated[
        Text,
        typer.Option(help="Write the states to a file that `merge` and `show` read.", rich_help_panel=OUTPUT_PANEL),
    ] = None,
    checkpoint: Annotated[Text, typer.Option(metavar="FILE", help=CHECKPOINT, rich_help_panel=OUTPUT_PANEL)] = None,
    report: Annotated[Text, typer.Option(help=REPORT, rich_help_panel=OUTPUT_PANEL)] = None,
    push: Annotated[Text, typer.Option(metavar="URL", help=PUSH, rich_help_panel=DASHBOARD_PANEL)] = None,
    experiment: Annotated[
        Text, typer.Option(help="With --push: the experiment of the rows.", rich_help_panel=DASHBOARD_PANEL)
    ] = None,
    source: Annotated[str, typer.Option(help=SOURCE, rich_help_panel=DASHBOARD_PANEL)] = SENDER,
    hour: Annotated[
        Text,
        typer.Option(help="With --push: the hour of the rows, in UTC: 2026-06-01T09.", rich_help_panel=DASHBOARD_PANEL),
    ] = None,
    seq: Annotated[
        int,
        typer.Option(min=0, help="With --push: the number of this part of the hour.", rich_help_panel=DASHBOARD_PANEL),
    ] = 0,
    printed: Printed = Format.table,
    top: Top = 40,
    sort: Annotated[Text, typer.Option(help=SORT, rich_help_panel=OUTPUT_PANEL)] = None,
    min_rows: Annotated[int, typer.Option(min=0, help=FEW, rich_help_panel=OUTPUT_PANEL)] = 0,
    types: Annotated[
        Texts, typer.Option("--type", metavar="NAME=TYPE", help=TYPES, rich_help_panel=READING_PANEL)
    ] = None,
    delimiter: Annotated[Text, typer.Option(help=DELIMITER, rich_help_panel=READING_PANEL)] = None,
    nulls: Annotated[Texts, typer.Option(help=NULLS, rich_help_panel=READING_PANEL)] = None,
    no_quotes: Annotated[bool, typer.Option("--no-quotes", help=NO_QUOTES, rich_help_panel=READING_PANEL)] = False,
    missing_columns: Annotated[MissingColumns | None, typer.Option(help=LACKING, rich_help_panel=READING_PANEL)] = None,
    columns: Annotated[Text, typer.Option(help=COLUMNS, rich_help_panel=READING_PANEL)] = None,
    sql: Annotated[Text, typer.Option("--sql", metavar="QUERY", help=SQL, rich_help_panel=READING_PANEL)] = None,
) -> None:
    """Score a log in one pass: all metrics, models, slices and windows; with --unit also intervals and comparisons.

    The exit code is 3 if a guardrail is broken.
    """
    from streammetrics.cli.comparison import ComparisonOptions, parse_directions, parse_margins
    from streammetrics.cli.log_options import build_log_arguments
    from streammetrics.cli.score import EvalRequest, missing_label_error, score_log
    from streammetrics.cli.tasks import TaskSpec, parse_classes, parse_cutoffs, parse_names, read_task_file

    if (sql is None) == (not log):
        raise UsageError(
            "which log? Name files, or give a query by --sql" if not log else "give LOG or --sql, not both"
        )
    reading = build_log_arguments(
        types=types or (),
        delimiter=delimiter,
        nulls=nulls or (),
        quotes=not no_quotes,
        columns=columns,
        missing_columns=missing_columns.value if missing_columns else None,
    )
    names = None if metrics is None else parse_names(metrics)
    sets = list(by or [])
    # Options from a task file, which command-line options override.
    file_options: dict[str, Any] = {}
    if task is not None:
        task_options: dict[str, object] = {
            "label": label,
            "pos-label": pos_label,
            "score": score,
            "pred": pred,
            "classes": classes,
            "query": query,
            "group": group,
            "k": k,
            "weight": weight,
            "where": where,
            "metrics": metrics,
        }
        task_options |= {
            "negative-rate": negative_rate,
            "corrects": corrects,
            "scale": None if scale == "probability" else 1,
        }
        task_options |= {"task-type": None if task_type == "binary" else 1}
        if excluded := [f"--{name}" for name, value in task_options.items() if value]:
            raise UsageError(f"{', '.join(excluded)} and --task exclude each other; set it for each task in the file")
        specs, file_slices, file_options = read_task_file(task, bits)
        sets = sets or file_slices
    elif label is None:
        raise missing_label_error(log or [f"sql:{sql}"], reading)
    else:
        specs = {
            "": TaskSpec(
                label=label,
                pos_label=pos_label,
                score=tuple(score or ()),
                pred=tuple(pred or ()),
                task_type=task_type.value,
                classes=parse_classes(classes),
                query=query,
                group=group,
                k=parse_cutoffs(k),
                weight=weight,
                where=tuple(where or ()),
                metrics=names,
                scale=scale.value,
                bits=bits,
                negative_rate=negative_rate,
                corrects=corrects.value if corrects else None,
            )
        }
    comparison_options = ComparisonOptions(
        control=control or file_options.get("control"),
        primary=primary or file_options.get("primary"),
        guardrails=parse_margins(guardrail or file_options.get("guardrails", ())),
        better=parse_directions(better or file_options.get("better", ())),
        users=users,
        planned=planned,
        sequential=sequential,
        confidence=confidence,
    )
    code = score_log(
        EvalRequest(
            log or [f"sql:{sql}"],
            specs,
            sets,
            limit,
            on_invalid.value,
            threads,
            save,
            printed.value,
            top,
            reading,
            sort,
            min_rows,
            report,
            keep.value if keep else None,
            checkpoint,
            unit=unit or file_options.get("unit"),
            shards=shards or file_options.get("shards"),
            missing_unit=missing_unit.value if missing_unit else file_options.get("missing_unit", "raise"),
            window=window or file_options.get("window"),
            time=time or file_options.get("time"),
            arm=arm or file_options.get("arm"),
            options=comparison_options,
            push=_make_push_target(push, experiment, hour, source, seq),
            task_file=task,
        )
    )
    raise typer.Exit(code)


def _make_push_target(url: str | None, experiment: str | None, hour: str | None, source: str, seq: int) -> Any:
    if url is None:
        if experiment is not None or hour is not None or source != SENDER or seq:
            raise UsageError("--experiment, --hour, --source and --seq need --push URL")
        return None
    from streammetrics.cli.push import PushTarget

    return PushTarget(url, experiment, hour, source, seq)


@app.command("merge")
def _merge(
    files: Annotated[list[str], typer.Argument(metavar="FILES...", help=SAVED)],
    output: Annotated[str, typer.Option("-o", "--output", help="Where the merged states go.")],
) -> None:
    """Merge saved states in any order. The result has the same bits as one pass over all logs."""
    from streammetrics.cli.state_files import merge_files

    merge_files(files, output)


@app.command("show")
def _show(
    file: Annotated[str, typer.Argument(help="A file that --save, merge or sm.save wrote.")],
    metrics: Annotated[Text, typer.Option(help="Show only these metrics: auc,log_loss.")] = None,
    by: Annotated[Texts, typer.Option(help=ROLLUP)] = None,
    sort: Annotated[Text, typer.Option(help=SORT)] = None,
    min_rows: Annotated[int, typer.Option(min=0, help=FEW)] = 0,
    report: Annotated[Text, typer.Option(help=REPORT)] = None,
    confidence: Confidence = 0.95,
    printed: Printed = Format.table,
    top: Top = 40,
) -> None:
    """Print the results in saved states, with intervals if they were counted with --unit."""
    from streammetrics.cli.display_options import DisplayOptions
    from streammetrics.cli.state_files import show_file

    display = DisplayOptions(printed.value, top, sort, min_rows, confidence)
    show_file(file, display, report, metrics=_parse_metric_names(metrics), by=by or ())


@app.command("compare", help=GATE)
def _compare(
    files: Annotated[list[str], typer.Argument(metavar="CONTROL OTHER...", help=STATES)],
    by: Annotated[Texts, typer.Option(help=ROLLUP)] = None,
    primary: Primary = None,
    guardrail: Guardrails = None,
    better: Better = None,
    metrics: Annotated[Text, typer.Option(help="Show only these metrics: auc,log_loss.")] = None,
    confidence: Confidence = 0.95,
    independent: Annotated[bool, typer.Option("--independent", help=INDEPENDENT)] = False,
    users: Users = None,
    planned: Planned = None,
    sequential: Sequential = False,
    sort: Annotated[Text, typer.Option(help=SORT)] = None,
    min_rows: Annotated[int, typer.Option(min=0, help=FEW)] = 0,
    printed: Printed = Format.table,
    top: Top = 40,
) -> None:
    from streammetrics.cli.comparison import ComparisonOptions, parse_directions, parse_margins
    from streammetrics.cli.display_options import DisplayOptions
    from streammetrics.cli.state_files import compare_files

    options = ComparisonOptions(
        primary=primary,
        guardrails=parse_margins(guardrail or ()),
        better=parse_directions(better or ()),
        users=users,
        planned=planned,
        sequential=sequential,
        confidence=confidence,
        independent=independent,
    )
    options.check()
    display = DisplayOptions(printed.value, top, sort, min_rows, confidence)
    raise typer.Exit(compare_files(files, options, display, metrics=_parse_metric_names(metrics), by=by or ()))


def _parse_metric_names(metrics: str | None) -> list[str] | None:
    from streammetrics.cli.tasks import parse_names

    return None if metrics is None else [*parse_names(metrics)]


@app.command("power")
def _power(
    file: Annotated[
        str, typer.Argument(help="File that --save wrote, counted with --unit: the population without a treatment.")
    ],
    users: Annotated[float, typer.Option(min=1, help="Number of users in the file.")],
    metric: Annotated[Text, typer.Option(help="The metric; by default all metrics of the file.")] = None,
    relative: Annotated[float, typer.Option(help="Relative difference to detect: 0.01 is 1 % more.")] = 0.01,
    planned: Annotated[float | None, typer.Option("--planned-users", min=1, help=SMALLEST)] = None,
    sequential: Sequential = False,
    confidence: Confidence = 0.95,
) -> None:
    """Print how many users are needed to detect a difference, or the smallest difference for the planned users."""
    from streammetrics.cli.state_files import show_power

    how = {"users": users, "planned": planned, "sequential": sequential, "confidence": confidence}
    show_power(file, metric, relative, how)


@app.command("catalog")
def _catalog(
    metric: Annotated[Text, typer.Argument(help="One metric, to show its definition, settings and cost.")] = None,
    of: Annotated[Text, typer.Option("--from", metavar="LIBRARY", help=FROM)] = None,
) -> None:
    """List every metric: formula, better direction, cost, and exactness."""
    from streammetrics.cli.catalog import list_metrics, show_metric
    from streammetrics.cli.peers import list_names, show_name

    if of is not None:
        list_names(of) if metric is None else show_name(of, metric)
    else:
        list_metrics() if metric is None else show_metric(metric)


@app.command("guide")
def _guide(page: Annotated[Text, typer.Argument(help="The page; by default all pages are listed.")] = None) -> None:
    """Read the guide: training loops, engines, many machines, and which metric to choose."""
    from streammetrics.cli.guide import show_page

    show_page(page)


@app.command("warmup")
def _warmup() -> None:
    """Compile all kernels into the cache, so that later runs need not wait for compilation."""
    from streammetrics.cli.warmup import warm_up

    warm_up()


@app.command("selftest")
def _selftest() -> None:
    """Check that this machine computes the same bits as all others, and measure its speed.

    The exit code is 1 if any bits differ.
    """
    from streammetrics.cli.selftest import run_self_test

    raise typer.Exit(0 if run_self_test() else 1)


@app.command("demo")
def _demo(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Folder of the log.")] = "demo-log",
    rows: Annotated[int, typer.Option(min=1000, help="Number of impressions.")] = 1_000_000,
    live: Annotated[bool, typer.Option("--live", help="Serve a live dashboard of a simulated experiment.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port for --live; 0 selects a free one.")] = 0,
    slow: Annotated[bool, typer.Option("--slow", help="With --live: the treatment breaks its guardrail.")] = False,
    once: Annotated[bool, typer.Option("--once", help="With --live: end when all parts are posted.")] = False,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="With --live: end after this time.")] = None,
) -> None:
    """Write a realistic click log with known true values, and score it; or serve a live dashboard of an experiment."""
    if live:
        from streammetrics.cli.live import run_live

        run_live(port, seconds, once, slow)
        return
    from streammetrics.cli.demo import run_demo

    run_demo(folder, rows)


serve = typer.Typer(help="The live dashboard of experiments.", invoke_without_command=True)
app.add_typer(serve, name="serve")
STORE = "The database: an SQLite file, or postgresql://user@host/database."
Store = Annotated[str, typer.Option("--store", metavar="URL", envvar="STREAMMETRICS_STORE", help=STORE)]
EXPERIMENTS = "Folder of definitions, one ID.toml an experiment; changes are read while the server runs."
WATCH = "Folder, or URL such as s3://bucket/parts, into which parts are dropped: experiment/hour/source-seq.smet."
AUTH = "How readers are authenticated: login (with a token), or proxy-header=NAME, which a proxy in front sets."
TRUST = (
    "Address of a proxy whose forwarded headers are trusted; by default none. Repeat the option for several addresses."
)
CALLED = (
    "Host name of the dashboard, such as dashboard.example.com: requests for other names are refused. Repeat the option "
    "for several names."
)
WHOSE = "An experiment; or owner, or reader."


@serve.callback()
def _serve(
    context: typer.Context,
    store: Store = "streammetrics.db",
    host: Annotated[str, typer.Option(help="Address to listen at; 0.0.0.0 stands for all addresses.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 selects a free port.")] = 8000,
    experiments: Annotated[Text, typer.Option(metavar="FOLDER", help=EXPERIMENTS)] = None,
    watch: Annotated[Text, typer.Option(metavar="FOLDER", help=WATCH)] = None,
    auth: Annotated[str, typer.Option(help=AUTH)] = "login",
    public_read: Annotated[bool, typer.Option("--public-read", help="Let everybody read all experiments.")] = False,
    trust_proxy: Annotated[Texts, typer.Option(metavar="ADDRESS", help=TRUST)] = None,
    name: Annotated[Texts, typer.Option(help=CALLED)] = None,
    https: Annotated[bool, typer.Option("--https", help="Readers use https only, so cookies are secure.")] = False,
    max_bytes: Annotated[int, typer.Option(min=1024, help="Largest size of a posted state.")] = 32 << 20,
) -> None:
    """Serve the live dashboard: workers post states (sm.push, eval --push), people watch experiments.

    Create tokens with `streammetrics serve token EXPERIMENT`.
    """
    if context.invoked_subcommand is not None:
        context.default_map = {context.invoked_subcommand: {"store": store}}
        return
    from streammetrics.cli.serve import parse_auth, run_server
    from streammetrics.serve.settings import ServerSettings

    settings = ServerSettings(
        public_read=public_read,
        proxy_header=parse_auth(auth),
        proxies=tuple(trust_proxy or ()),
        https=https,
        max_bytes=max_bytes,
        definitions=experiments,
        watch=watch,
    )
    run_server(store, host, port, settings, name or [])


@serve.command("token")
def _token(
    experiment: Annotated[Text, typer.Argument(help="The experiment whose workers use it.")] = None,
    name: Annotated[Text, typer.Option(help="The worker; an earlier token of this name becomes invalid.")] = None,
    owner: Annotated[Text, typer.Option(metavar="NAME", help="Instead, for an owner, who defines experiments.")] = None,
    reader: Annotated[Text, typer.Option(metavar="NAME", help="Instead, for a reader, who logs in.")] = None,
    store: Store = "streammetrics.db",
) -> None:
    """Create a token for the workers of an experiment, an owner or a reader, and print it once."""
    from streammetrics.cli.serve import make_token

    make_token(store, experiment, name, owner, reader)


@serve.command("tokens")
def _tokens(
    experiment: Annotated[Text, typer.Argument(help="Only its tokens, and those of owners and readers.")] = None,
    store: Store = "streammetrics.db",
) -> None:
    """List the names of all tokens."""
    from streammetrics.cli.serve import list_tokens

    list_tokens(store, experiment)


@serve.command("revoke")
def _revoke(
    whose: Annotated[str, typer.Argument(help=WHOSE)],
    name: Annotated[str, typer.Argument(help="The name of the token.")],
    store: Store = "streammetrics.db",
) -> None:
    """Revoke a token and its sessions, effective within seconds."""
    from streammetrics.cli.serve import revoke_token

    revoke_token(store, whose, name)
