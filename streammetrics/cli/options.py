"""Command-line options that several commands share, with their values, help texts and headings."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from streammetrics.cli.help_texts import (
    ABSOLUTE,
    BETTER,
    CONFIDENCE,
    FINAL,
    GUARDRAIL,
    PLANNED,
    PRIMARY,
    SEQUENTIAL,
    SHARES,
    USERS,
)

__all__ = [
    "COLUMNS_PANEL",
    "DASHBOARD_PANEL",
    "INTERVALS_PANEL",
    "METRICS_PANEL",
    "OUTPUT_PANEL",
    "READING_PANEL",
    "SLICES_PANEL",
    "Better",
    "CommandApp",
    "Confidence",
    "Corrects",
    "Final",
    "Format",
    "Guardrails",
    "Keep",
    "MissingColumns",
    "MissingUnits",
    "OnInvalid",
    "Planned",
    "Primary",
    "Printed",
    "ScoreScale",
    "Sequential",
    "Shares",
    "Text",
    "Texts",
    "Top",
    "Type",
    "Users",
    "option",
]


F = TypeVar("F", bound=Callable[..., Any])

# Headings under which --help groups the options.
COLUMNS_PANEL = "Columns"
METRICS_PANEL = "Metrics"
SLICES_PANEL = "Slices and windows"
INTERVALS_PANEL = "Intervals and comparisons"
READING_PANEL = "Reading the log"
OUTPUT_PANEL = "Output"
DASHBOARD_PANEL = "Dashboard"


class _UntypedHelp:
    """Mixin that shows `--help` without a type; by default, typer shows <bool>, as if the option took a value."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the `--help` option; None if the command has none."""
        found = super().get_help_option(ctx)  # type: ignore[misc]
        if found is not None:
            found.metavar = ""
        return found


class _Command(_UntypedHelp, TyperCommand):
    """A command whose help text shows `--help` without a type."""


class _Group(_UntypedHelp, TyperGroup):
    """A command with subcommands, whose help text shows `--help` without a type."""


class CommandApp(typer.Typer):
    """A group of commands whose help texts show `--help` without a type."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=_Group, **settings)

    def command(self, name: str, **settings: Any) -> Callable[[F], F]:  # type: ignore[override]
        """Return a decorator that adds a command."""
        return super().command(name, cls=_Command, **settings)


def option(metavar: str, text: str, *names: str, panel: str | None = None, **settings: Any) -> Any:
    """Return the declaration of an option, for use in `Annotated`.

    Parameters
    ----------
    metavar : str
        The word that stands for the value in `--help`, such as COLUMN; empty for an option without a value.
    text : str
        The help text.
    *names : str
        The names of the option, such as "--output"; by default the name of the parameter.
    panel : str, optional
        The heading under which `--help` shows the option.
    **settings
        Further arguments of `typer.Option`, such as `min`.
    """
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel=panel, **settings)


class Format(StrEnum):
    """Format of printed results, for `--format`."""

    table = "table"
    json = "json"
    csv = "csv"


class Corrects(StrEnum):
    """What to correct if the log contains only a sample of the negatives: the scores, the row weights, or both."""

    score = "score"
    rows = "rows"
    both = "both"


class ScoreScale(StrEnum):
    """Scale of the scores in the log: probabilities, log odds (logits), or other real numbers."""

    probability = "probability"
    logit = "logit"
    real = "real"


class OnInvalid(StrEnum):
    """What to do with invalid rows: raise an error, or drop them."""

    stop = "raise"
    drop = "drop"


class MissingColumns(StrEnum):
    """What to do with files that lack a column: raise an error, or read nulls."""

    stop = "raise"
    null = "null"


class Keep(StrEnum):
    """Which slices `--limit` keeps: those whose keys have the smallest hashes, or those with the most rows."""

    rows = "rows"
    hash = "hash"


Printed = Annotated[
    Format,
    typer.Option("--format", help="Format of the results on standard output.", rich_help_panel=OUTPUT_PANEL),
]
Top = Annotated[
    int,
    option(
        "NUMBER",
        "Number of slices in a table: the largest, or the first in the order of --sort. json and csv contain all.",
        panel=OUTPUT_PANEL,
        min=1,
    ),
]


class Type(StrEnum):
    """Type of the prediction task, for `--task-type`."""

    binary = "binary"
    multiclass = "multiclass"
    multilabel = "multilabel"
    regression = "regression"
    ranking = "ranking"


Text = str | None
Texts = list[str] | None


class MissingUnits(StrEnum):
    """What to do with rows whose unit (such as the user ID) is missing: raise an error, or skip them."""

    stop = "raise"
    skip = "skip"


Confidence = Annotated[
    float,
    option("NUMBER", CONFIDENCE, "--confidence", "--interval", panel=INTERVALS_PANEL, min=0.5, max=0.9999),
]
Primary = Annotated[Text, option("METRIC", PRIMARY, panel=INTERVALS_PANEL)]
Guardrails = Annotated[
    Texts,
    option("METRIC=MARGIN", GUARDRAIL, "--guardrail", panel=INTERVALS_PANEL),
]
Absolute = Annotated[bool, option("", ABSOLUTE, "--absolute", panel=INTERVALS_PANEL)]
Better = Annotated[Texts, option("METRIC=high|low", BETTER, "--better", panel=INTERVALS_PANEL)]
Shares = Annotated[Texts, option("ARM=SHARE,...", SHARES, panel=INTERVALS_PANEL)]
Planned = Annotated[float | None, option("NUMBER", PLANNED, "--planned", panel=INTERVALS_PANEL, min=1)]
Final = Annotated[bool, option("", FINAL, "--final", panel=INTERVALS_PANEL)]
Users = Annotated[float | None, option("NUMBER", USERS, panel=INTERVALS_PANEL, min=1)]
Sequential = Annotated[bool, option("", SEQUENTIAL, "--sequential", panel=INTERVALS_PANEL)]
