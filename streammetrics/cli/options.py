"""Options that several commands share: their values, help and panels."""

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


# Groups of options in --help.
COLUMNS_PANEL = "Columns"
METRICS_PANEL = "Metrics"
SLICES_PANEL = "Slices and windows"
INTERVALS_PANEL = "Intervals and comparisons"
READING_PANEL = "Reading the log"
OUTPUT_PANEL = "Output"
DASHBOARD_PANEL = "Dashboard"


class Format(StrEnum):
    """How results are printed."""

    table = "table"
    json = "json"
    csv = "csv"


class Corrects(StrEnum):
    """What of a down-sampled log is brought back."""

    score = "score"
    rows = "rows"
    both = "both"


class ScoreScale(StrEnum):
    """What scores are."""

    probability = "probability"
    logit = "logit"
    real = "real"


class OnInvalid(StrEnum):
    """What happens to a bad row."""

    stop = "raise"
    drop = "drop"


class MissingColumns(StrEnum):
    """What happens where a file lacks a column that others have."""

    stop = "raise"
    null = "null"


class Keep(StrEnum):
    """Which slices a limit keeps."""

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
        min=1, help="Slices a table shows: those with most rows. json and csv have all.", rich_help_panel=OUTPUT_PANEL
    ),
]


class Type(StrEnum):
    """What a task predicts."""

    binary = "binary"
    multiclass = "multiclass"
    multilabel = "multilabel"
    regression = "regression"
    ranking = "ranking"


Text = str | None
Texts = list[str] | None


class MissingUnits(StrEnum):
    """What happens to rows without a unit."""

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
