"""The commands of the command line, and their options.

A command imports its implementation only when it is called, so that all commands start quickly.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from streammetrics.cli import help_texts as texts
from streammetrics.cli.messages import COMMAND, UsageError
from streammetrics.cli.options import (
    COLUMNS_PANEL,
    DASHBOARD_PANEL,
    INTERVALS_PANEL,
    METRICS_PANEL,
    OUTPUT_PANEL,
    READING_PANEL,
    SLICES_PANEL,
    Absolute,
    Better,
    CommandApp,
    Confidence,
    Corrects,
    Final,
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
    Shares,
    Text,
    Texts,
    Top,
    Type,
    Users,
    option,
)
from streammetrics.cli.serve_commands import serve

__all__ = ["run"]


app = CommandApp(
    name="streammetrics",
    help="Score prediction logs of any size in constant memory, with certified bounds and confidence intervals.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=texts.MAIN_EXAMPLES,
)

# Headings under which --help groups the commands.
LOGS_PANEL = "Score a log"
STATES_PANEL = "Merge and compare saved states"
REFERENCE_PANEL = "Look up metrics and pages"
DASHBOARD_COMMANDS = "Watch experiments"
MACHINE_PANEL = "Prepare and check this machine"


def run(arguments: Sequence[str]) -> int:
    """Run the command named in the arguments; return its exit code. Raise UsageError if the arguments are invalid."""
    COMMAND.set(tuple(arguments))
    try:
        code = app(args=list(arguments) or ["--help"], prog_name="streammetrics", standalone_mode=False)
    except Exception as error:
        # click's errors have this attribute. Do not test the class, because some versions of typer bundle their own
        # copy of click.
        if hasattr(error, "format_message"):
            raise UsageError(_explain_option(error.format_message().replace("\n", " "))) from None
        if type(error).__name__ == "Abort":
            raise KeyboardInterrupt from None
        raise
    if code == 130:
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _explain_option(message: str) -> str:
    """Return the option parser's message; for an unknown option such as `--json`, suggest `--format json` instead."""
    # Some versions of typer put pydantic's words "Value error" before the reason. Remove them.
    message = message.replace(": Value error, ", ": ")
    name = message.removeprefix("No such option: --").split(" ")[0]
    return f"there is no option --{name}; did you mean --format {name}?" if name in list(Format) else message


@app.callback(invoke_without_command=True)
def _main(version: Annotated[bool, option("", "Print the version.", "--version")] = False) -> None:
    if version:
        from streammetrics import __version__

        typer.echo(f"streammetrics {__version__}")
        raise typer.Exit


@app.command("eval", epilog=texts.EVAL_EXAMPLES, rich_help_panel=LOGS_PANEL)
def _eval(
    log: Annotated[Texts, typer.Argument(metavar="LOG", help=texts.LOG)] = None,
    label: Annotated[
        Text,
        option("COLUMN", texts.LABEL, panel=COLUMNS_PANEL),
    ] = None,
    pos_label: Annotated[Text, option("VALUE", texts.POSITIVE, panel=COLUMNS_PANEL)] = None,
    score: Annotated[Texts, option("COLUMN", texts.SCORE, panel=COLUMNS_PANEL)] = None,
    pred: Annotated[Texts, option("COLUMN", texts.PRED, panel=COLUMNS_PANEL)] = None,
    value: Annotated[Text, option("COLUMN", texts.VALUE, panel=COLUMNS_PANEL)] = None,
    task_type: Annotated[
        Type, typer.Option(help="Type of the prediction task.", rich_help_panel=METRICS_PANEL)
    ] = Type.binary,
    classes: Annotated[Text, option("NUMBER|NAMES", texts.CLASSES, panel=METRICS_PANEL)] = None,
    query: Annotated[Text, option("COLUMN", texts.QUERY, panel=COLUMNS_PANEL)] = None,
    group: Annotated[Text, option("COLUMN", texts.GROUP, panel=COLUMNS_PANEL)] = None,
    k: Annotated[
        Text, option("NUMBERS", "Cutoffs of ranking metrics, such as 5,10.", "--k", panel=METRICS_PANEL)
    ] = None,
    scale: Annotated[
        ScoreScale,
        typer.Option(
            help="Scale of the scores: probabilities, logits, or other real numbers.", rich_help_panel=METRICS_PANEL
        ),
    ] = ScoreScale.probability,
    weight: Annotated[Text, option("COLUMN", "Column of row weights.", panel=COLUMNS_PANEL)] = None,
    where: Annotated[Texts, option("CONDITION", texts.WHERE, panel=COLUMNS_PANEL)] = None,
    negative_rate: Annotated[float | None, option("NUMBER", texts.RATE, panel=COLUMNS_PANEL)] = None,
    corrects: Annotated[
        Corrects | None,
        typer.Option(
            help="What --negative-rate corrects: the scores, the row weights, or both.", rich_help_panel=COLUMNS_PANEL
        ),
    ] = None,
    by: Annotated[Texts, option("COLUMNS", texts.BY, panel=SLICES_PANEL)] = None,
    limit: Annotated[
        int | None,
        option("NUMBER", texts.LIMIT, panel=SLICES_PANEL, min=0),
    ] = None,
    keep: Annotated[Keep | None, typer.Option(help=texts.KEEP, rich_help_panel=SLICES_PANEL)] = None,
    unit: Annotated[Text, option("COLUMN", texts.UNIT, panel=INTERVALS_PANEL)] = None,
    confidence: Confidence = 0.95,
    shards: Annotated[int | None, option("NUMBER", texts.SHARDS, panel=INTERVALS_PANEL, min=8, max=4096)] = None,
    missing_unit: Annotated[
        MissingUnits | None, typer.Option(help=texts.MISSING, rich_help_panel=INTERVALS_PANEL)
    ] = None,
    window: Annotated[Text, option("WIDTH", texts.WINDOW, panel=SLICES_PANEL)] = None,
    time: Annotated[Text, option("COLUMN", texts.TIME, panel=SLICES_PANEL)] = None,
    arm: Annotated[Text, option("COLUMN", texts.ARM, panel=INTERVALS_PANEL)] = None,
    control: Annotated[Text, option("NAME", texts.CONTROL, panel=INTERVALS_PANEL)] = None,
    primary: Primary = None,
    guardrail: Guardrails = None,
    better: Better = None,
    absolute: Absolute = False,
    shares: Shares = None,
    exposures: Annotated[Text, option("FILE", texts.EXPOSURES, panel=INTERVALS_PANEL)] = None,
    covariate: Annotated[Texts, option("FILE|COLUMN", texts.COVARIATE, panel=INTERVALS_PANEL)] = None,
    users: Users = None,
    planned: Planned = None,
    final: Final = False,
    sequential: Sequential = False,
    metrics: Annotated[Text, option("METRICS", texts.METRICS, panel=METRICS_PANEL)] = None,
    bits: Annotated[int | None, option("NUMBER", texts.BITS, panel=METRICS_PANEL, min=8, max=24)] = None,
    task: Annotated[Text, option("FILE", texts.TASK, panel=METRICS_PANEL)] = None,
    on_invalid: Annotated[OnInvalid, typer.Option(help=texts.INVALID, rich_help_panel=READING_PANEL)] = OnInvalid.stop,
    threads: Annotated[
        int | None,
        option("NUMBER", "Number of threads. The default is the number of CPUs.", panel=READING_PANEL, min=1),
    ] = None,
    save: Annotated[Text, option("FILE", texts.SAVE, panel=OUTPUT_PANEL)] = None,
    checkpoint: Annotated[Text, option("FILE", texts.CHECKPOINT, panel=OUTPUT_PANEL)] = None,
    report: Annotated[Text, option("FILE", texts.REPORT, panel=OUTPUT_PANEL)] = None,
    push: Annotated[Text, option("URL", texts.PUSH, panel=DASHBOARD_PANEL)] = None,
    experiment: Annotated[Text, option("ID", "With --push: ID of the experiment.", panel=DASHBOARD_PANEL)] = None,
    source: Annotated[str, option("NAME", texts.SOURCE, panel=DASHBOARD_PANEL)] = texts.SENDER,
    hour: Annotated[
        Text,
        option("HOUR", "With --push: hour of the rows in UTC, such as 2026-06-01T09.", panel=DASHBOARD_PANEL),
    ] = None,
    seq: Annotated[
        int,
        option("NUMBER", "With --push: number of this part of the hour.", panel=DASHBOARD_PANEL, min=0),
    ] = 0,
    printed: Printed = Format.table,
    top: Top = 40,
    sort: Annotated[Text, option("METRIC", texts.SORT, panel=OUTPUT_PANEL)] = None,
    min_rows: Annotated[int, option("NUMBER", texts.FEW, panel=OUTPUT_PANEL, min=0)] = 0,
    types: Annotated[Texts, option("NAME=TYPE", texts.TYPES, "--type", panel=READING_PANEL)] = None,
    delimiter: Annotated[Text, option("TEXT", texts.DELIMITER, panel=READING_PANEL)] = None,
    nulls: Annotated[Texts, option("TEXT", texts.NULLS, panel=READING_PANEL)] = None,
    no_quotes: Annotated[bool, option("", texts.NO_QUOTES, "--no-quotes", panel=READING_PANEL)] = False,
    missing_columns: Annotated[
        MissingColumns | None, typer.Option(help=texts.LACKING, rich_help_panel=READING_PANEL)
    ] = None,
    columns: Annotated[Text, option("NAMES", texts.COLUMNS, panel=READING_PANEL)] = None,
    sql: Annotated[Text, option("QUERY", texts.SQL, "--sql", panel=READING_PANEL)] = None,
) -> None:
    """Score a log in one pass, for several metrics, models, slices and windows.

    LOG, --label and --score suffice; the other options are optional.
    With --unit, values get confidence intervals, and models or arms are
    compared. The exit code is 3 if a guardrail is breached.
    """
    from streammetrics.cli.comparison import ComparisonOptions, parse_directions, parse_margins
    from streammetrics.cli.log_options import build_log_arguments, missing_label_error
    from streammetrics.cli.score import EvalRequest, score_log
    from streammetrics.cli.tasks import TaskSpec, parse_classes, parse_cutoffs, parse_names, read_task_file

    if (sql is None) == (not log):
        raise UsageError(
            "expected a log; name its files, or pass a query with --sql"
            if not log
            else "expected either the files of a log or --sql, found both; leave out one of them"
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
    # The options in the task file. An option on the command line takes precedence over the same option in this file.
    file_options: dict[str, Any] = {}
    if task is not None:
        task_options: dict[str, object] = {
            "label": label,
            "pos-label": pos_label,
            "score": score,
            "pred": pred,
            "value": value,
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
            raise UsageError(
                f"--task cannot be combined with {', '.join(excluded)}; set the value for each task in the task file"
            )
        specs, file_slices, file_options = read_task_file(task, bits)
        sets = sets or file_slices
    elif label is None and value is None and metrics is None:
        raise missing_label_error(log or [f"sql:{sql}"], reading)
    else:
        specs = {
            "": TaskSpec(
                label=label,
                pos_label=pos_label,
                score=tuple(score or ()),
                pred=tuple(pred or ()),
                value=value,
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
        relative=not absolute,
        better=parse_directions(better or file_options.get("better", ())),
        users=users,
        planned=planned,
        final=final,
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
            planned_shares=shares or file_options.get("shares", ()),
            exposures=exposures,
            covariates=covariate or (),
            push=_make_push_target(push, experiment, hour, source, seq),
            task_file=task,
        )
    )
    raise typer.Exit(code)


def _make_push_target(url: str | None, experiment: str | None, hour: str | None, source: str, seq: int) -> Any:
    if url is None:
        if experiment is not None or hour is not None or source != texts.SENDER or seq:
            raise UsageError("--experiment, --hour, --source and --seq need --push; add --push URL")
        return None
    from streammetrics.cli.push import PushTarget

    return PushTarget(url, experiment, hour, source, seq)


@app.command("merge", epilog=texts.MERGE_EXAMPLES, rich_help_panel=STATES_PANEL)
def _merge(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help=texts.SAVED)],
    output: Annotated[str, option("FILE", "File for the merged states.", "-o", "--output")],
    threads: Annotated[
        int | None, option("NUMBER", "Number of threads. The default is the number of CPUs.", min=1)
    ] = None,
) -> None:
    """Merge saved states, in any order.

    The result is the same as that of one pass over all logs, bit for bit.
    """
    from streammetrics.cli.state_files import merge_files

    merge_files(files, output, threads)


@app.command("show", epilog=texts.SHOW_EXAMPLES, rich_help_panel=STATES_PANEL)
def _show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file that --save, merge or sm.save wrote.")],
    metrics: Annotated[Text, option("METRICS", "Show only these metrics, such as auc,log_loss.")] = None,
    by: Annotated[Texts, option("COLUMNS", texts.ROLLUP)] = None,
    sort: Annotated[Text, option("METRIC", texts.SORT)] = None,
    min_rows: Annotated[int, option("NUMBER", texts.FEW, min=0)] = 0,
    report: Annotated[Text, option("FILE", texts.REPORT)] = None,
    shares: Shares = None,
    confidence: Confidence = 0.95,
    printed: Printed = Format.table,
    top: Top = 40,
) -> None:
    """Print the results in a file of saved states.

    Values have confidence intervals if the log was counted with --unit.
    """
    from streammetrics.cli.display_options import DisplayOptions
    from streammetrics.cli.state_files import show_file

    display = DisplayOptions(printed.value, top, sort, min_rows, confidence)
    show_file(file, display, report, metrics=_parse_metric_names(metrics), by=by or (), planned_shares=shares or ())


@app.command("compare", help=texts.GATE, epilog=texts.COMPARE_EXAMPLES, rich_help_panel=STATES_PANEL)
def _compare(
    files: Annotated[list[str], typer.Argument(metavar="CONTROL OTHER...", help=texts.STATES)],
    by: Annotated[Texts, option("COLUMNS", texts.ROLLUP)] = None,
    primary: Primary = None,
    guardrail: Guardrails = None,
    better: Better = None,
    absolute: Absolute = False,
    metrics: Annotated[Text, option("METRICS", "Show only these metrics, such as auc,log_loss.")] = None,
    confidence: Confidence = 0.95,
    independent: Annotated[bool, option("", texts.INDEPENDENT, "--independent")] = False,
    covariate: Annotated[Texts, option("FILE,FILE", texts.COVARIATE_FILES)] = None,
    users: Users = None,
    planned: Planned = None,
    final: Final = False,
    sequential: Sequential = False,
    sort: Annotated[Text, option("METRIC", texts.SORT)] = None,
    min_rows: Annotated[int, option("NUMBER", texts.FEW, min=0)] = 0,
    printed: Printed = Format.table,
    top: Top = 40,
) -> None:
    from streammetrics.cli.comparison import ComparisonOptions, parse_directions, parse_margins
    from streammetrics.cli.display_options import DisplayOptions
    from streammetrics.cli.state_files import compare_files

    options = ComparisonOptions(
        primary=primary,
        guardrails=parse_margins(guardrail or ()),
        relative=not absolute,
        better=parse_directions(better or ()),
        users=users,
        planned=planned,
        final=final,
        sequential=sequential,
        confidence=confidence,
        independent=independent,
    )
    options.check(counts_users=False)
    display = DisplayOptions(printed.value, top, sort, min_rows, confidence)
    names = _parse_metric_names(metrics)
    raise typer.Exit(compare_files(files, options, display, metrics=names, by=by or (), covariates=covariate or ()))


def _parse_metric_names(metrics: str | None) -> list[str] | None:
    from streammetrics.cli.tasks import parse_names

    return None if metrics is None else [*parse_names(metrics)]


@app.command("power", epilog=texts.POWER_EXAMPLES, rich_help_panel=STATES_PANEL)
def _power(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Saved states of a log without a treatment, scored with --unit."),
    ],
    users: Annotated[float, option("NUMBER", "Number of users in the file.", min=1)],
    metric: Annotated[Text, option("METRIC", "Name of the metric. The default is all metrics of the file.")] = None,
    relative: Annotated[float, option("NUMBER", "Relative difference to detect, such as 0.01 for 1 %.")] = 0.01,
    planned: Annotated[float | None, option("NUMBER", texts.SMALLEST, "--planned", min=1)] = None,
    table: Annotated[bool, option("", texts.POWER_TABLE, "--table")] = False,
    guardrail: Annotated[Texts, option("METRIC=MARGIN", texts.HELD, "--guardrail")] = None,
    better: Annotated[Texts, option("METRIC=high|low", texts.BETTER, "--better")] = None,
    per_day: Annotated[float | None, option("NUMBER", texts.PER_DAY, "--per-day", min=0)] = None,
    sequential: Annotated[bool, option("", texts.PLANNED_LOOKS, "--sequential")] = False,
    confidence: Confidence = 0.95,
) -> None:
    """Print the number of users that an experiment needs.

    With --planned, print the smallest difference that the planned number
    of users can detect.
    With --table, print the numbers for several differences and guardrails.
    """
    from streammetrics.cli.comparison import parse_directions, parse_margins
    from streammetrics.cli.experiment_size import show_power, show_power_table

    how: dict[str, Any] = {"users": users, "sequential": sequential, "confidence": confidence}
    if table:
        if planned is not None:
            raise UsageError("--table prints numbers of users, so it takes no --planned; leave out one of them")
        roles = {"guardrails": parse_margins(guardrail or ()), "better": parse_directions(better or ())}
        show_power_table(file, metric, how | roles | {"per_day": per_day})
        return
    if guardrail or better or per_day is not None:
        raise UsageError("--guardrail, --better and --per-day need --table; add --table")
    show_power(file, metric, relative, how | {"planned": planned})


@app.command("catalog", epilog=texts.CATALOG_EXAMPLES, rich_help_panel=REFERENCE_PANEL)
def _catalog(
    metric: Annotated[Text, typer.Argument(metavar="METRIC", help="Name of a metric, such as auc.")] = None,
    of: Annotated[Text, option("LIBRARY", texts.FROM, "--from")] = None,
) -> None:
    """List all metrics, or describe one of them.

    The list gives the formula, the better direction, the bounds and the cost
    of each metric.
    """
    from streammetrics.cli.catalog import list_metrics, show_metric
    from streammetrics.cli.peers import list_names, show_name

    if of is not None:
        list_names(of) if metric is None else show_name(of, metric)
    else:
        list_metrics() if metric is None else show_metric(metric)


@app.command("guide", epilog=texts.GUIDE_EXAMPLES, rich_help_panel=REFERENCE_PANEL)
def _guide(
    page: Annotated[Text, typer.Argument(metavar="PAGE", help="Name of the page, such as logs.")] = None,
    site: Annotated[Path | None, option("FOLDER", texts.SITE, "--site")] = None,
) -> None:
    """Print a page of the guide; without a name, list all pages."""
    from streammetrics.cli.guide import show_page

    if site is None:
        show_page(page)
        return
    from streammetrics.cli.site import build_site

    build_site(site)
    print(f"{site / 'index.html'}")


@app.command("warmup", rich_help_panel=MACHINE_PANEL)
def _warmup() -> None:
    """Compile all kernels ahead of time, so that later runs start faster."""
    from streammetrics.cli.warmup import warm_up

    warm_up()


@app.command("selftest", rich_help_panel=MACHINE_PANEL)
def _selftest() -> None:
    """Check that this machine computes the same bits as other machines, and measure its speed.

    The exit code is 1 if any bits differ.
    """
    from streammetrics.cli.selftest import run_self_test

    raise typer.Exit(0 if run_self_test() else 1)


@app.command("demo", epilog=texts.DEMO_EXAMPLES, rich_help_panel=LOGS_PANEL)
def _demo(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Folder for the log.")] = "demo-log",
    rows: Annotated[int, option("NUMBER", "Number of impressions.", min=1000)] = 1_000_000,
    live: Annotated[bool, option("", "Serve a live dashboard of a simulated experiment.", "--live")] = False,
    port: Annotated[int, option("PORT", "Port for --live; 0 selects a free one.", min=0, max=65535)] = 0,
    slow: Annotated[
        bool, option("", "With --live: simulate a treatment that breaches its guardrail.", "--slow")
    ] = False,
    once: Annotated[bool, option("", "With --live: stop when all parts are posted.", "--once")] = False,
    seconds: Annotated[float | None, option("NUMBER", "With --live: stop after this many seconds.", min=0.1)] = None,
) -> None:
    """Write a realistic click log and score it, or serve a live dashboard of a simulated experiment."""
    if live:
        from streammetrics.cli.live import run_live

        run_live(port, seconds, once, slow)
        return
    from streammetrics.cli.demo import run_demo

    run_demo(folder, rows)


app.add_typer(serve, name="serve", rich_help_panel=DASHBOARD_COMMANDS)
