"""Options that several commands share: values, help texts and panels."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from streammetrics.cli.help_texts import (
    BETTER,
    CONFIDENCE,
    GUARDRAIL,
    PLANNED,
    PRIMARY,
    SEQUENTIAL,
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
    "Confidence",
    "Corrects",
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
    "Text",
    "Texts",
    "Top",
    "Type",
    "Users",
]


# Headings under which --help groups the options.
COLUMNS_PANEL = "Columns"
METRICS_PANEL = "Metrics"
SLICES_PANEL = "Slices and windows"
INTERVALS_PANEL = "Intervals and comparisons"
READING_PANEL = "Reading the log"
OUTPUT_PANEL = "Output"
DASHBOARD_PANEL = "Dashboard"


class Format(StrEnum):
    """Format in which results are printed, for `--format`."""

    table = "table"
    json = "json"
    csv = "csv"


class Corrects(StrEnum):
    """What to correct if the log kept only a sample of the negatives: the scores, the weights of rows, or both."""

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
    """Which slices `--limit` keeps: those with the smallest hash of the key, or those with the most rows."""

    rows = "rows"
    hash = "hash"


Printed = Annotated[
    Format,
    typer.Option(
        "--format", help="table for people; json and csv for programs, on stdout.", rich_help_panel=OUTPUT_PANEL
    ),
]
Top = Annotated[
    int,
    typer.Option(
        min=1,
        help="Number of slices in a table: the largest ones. json and csv have all.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


class Type(StrEnum):
    """Type of a prediction task, for `--task-type`."""

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
    typer.Option("--confidence", "--interval", min=0.5, max=0.9999, help=CONFIDENCE, rich_help_panel=INTERVALS_PANEL),
]
Primary = Annotated[Text, typer.Option(help=PRIMARY, rich_help_panel=INTERVALS_PANEL)]
Guardrails = Annotated[
    Texts,
    typer.Option("--guardrail", metavar="METRIC=MARGIN", help=GUARDRAIL, rich_help_panel=INTERVALS_PANEL),
]
Better = Annotated[
    Texts, typer.Option("--better", metavar="METRIC=high|low", help=BETTER, rich_help_panel=INTERVALS_PANEL)
]
Planned = Annotated[float | None, typer.Option("--planned-users", min=1, help=PLANNED, rich_help_panel=INTERVALS_PANEL)]
Users = Annotated[float | None, typer.Option(min=1, help=USERS, rich_help_panel=INTERVALS_PANEL)]
Sequential = Annotated[bool, typer.Option("--sequential", help=SEQUENTIAL, rich_help_panel=INTERVALS_PANEL)]
