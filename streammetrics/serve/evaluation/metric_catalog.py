"""A catalog of metrics: a file that says, for all experiments, what each metric means and which values are better."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from ...errors import InvalidInputError
from .experiment import Experiment, check_amount

__all__ = ["CatalogEntry", "MetricCatalog", "check_definitions"]

KEYS = ("description", "owner", "better", "margin")


class CatalogEntry(NamedTuple):
    """The entry of a metric in a catalog.

    Parameters
    ----------
    description, owner : str
        What the metric means, and who is responsible for it.
    better : str
        Which values are better, "high" or "low"; empty if the class of the metric defines this.
    margin : float or None
        The largest margin that an experiment may set for the metric as a guardrail; 0.02 means 2 % of the control's
        value.
    """

    description: str
    owner: str = ""
    better: str = ""
    margin: float | None = None


class MetricCatalog(NamedTuple):
    r"""The catalog of the metrics that experiments may use.

    Examples
    --------
    >>> catalog = MetricCatalog.from_toml('[ctr]\ndescription = "Clicks per impression"\nbetter = "high"')
    >>> one = Experiment("new-rank", {"old": 1, "new": 1}, "old", "ctr", "2026-06-01T00")
    >>> catalog.apply(one).better
    {'ctr': 'high'}
    """

    entries: dict[str, CatalogEntry]

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read a catalog: a table for each metric, with `description`, and optionally `owner`, `better` and `margin`.

        Raises
        ------
        InvalidInputError
            The text is not valid TOML, or an entry is invalid; the message names the metric and the key.
        """
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidInputError(f"the catalog is not valid TOML: {error}") from None
        return cls({name: _parse_entry(name, table) for name, table in tables.items()})

    def apply(self, experiment: Experiment) -> Experiment:
        """Check an experiment against the catalog, and return it with the catalog's directions in `better`.

        Raises
        ------
        InvalidInputError
            The experiment uses a metric that is not in the catalog, or a direction or margin that the catalog forbids.
        """
        if unknown := [name for name in experiment.metrics if name not in self.entries]:
            raise InvalidInputError(
                f"{', '.join(unknown)}: expected metrics of the catalog ({', '.join(self.entries)}); add the metric to "
                f"the catalog, or correct its name"
            )
        directions = {name: one.better for name in experiment.metrics if (one := self.entries[name]).better}
        for name, side in experiment.better.items():
            if side != directions.get(name, side):
                raise InvalidInputError(
                    f"better: expected {directions[name]!r} for {name} as in the catalog, found {side!r}; remove it"
                )
        for name, margin in experiment.guardrails.items():
            largest = self.entries[name].margin
            if largest is not None and margin > largest:
                raise InvalidInputError(
                    f"guardrails: expected a margin of at most {largest:g} for {name} as in the catalog, found {margin:g}"
                )
        return replace(experiment, better=directions | experiment.better)


def _parse_entry(name: str, table: Any) -> CatalogEntry:
    if not isinstance(table, Mapping):
        raise InvalidInputError(f"{name}: expected a table of keys and values, found {table!r}")
    if unknown := [key for key in table if key not in KEYS]:
        raise InvalidInputError(f"{name}.{unknown[0]}: expected the keys {', '.join(KEYS)}, found another key")
    for key in ("description", "owner", "better"):
        if not isinstance(table.get(key, ""), str):
            raise InvalidInputError(f"{name}.{key}: expected a string, found {table[key]!r}")
    if not table.get("description"):
        raise InvalidInputError(f"{name}.description: expected a sentence that says what the metric means")
    if table.get("better", "high") not in ("high", "low"):
        raise InvalidInputError(f'{name}.better: expected "high" or "low", found {table["better"]!r}')
    margin = check_amount(f"{name}.margin", table["margin"]) if "margin" in table else None
    return CatalogEntry(table["description"], table.get("owner", ""), table.get("better", ""), margin)


def check_definitions(folder: str | Path, catalog: MetricCatalog | None) -> tuple[list[str], list[str]]:
    """Check the definitions in the `<ID>.toml` files of a folder before a server uses them.

    Return the IDs of the valid definitions, and an error message for each invalid definition.
    """
    valid, errors = [], []
    for path in sorted(Path(folder).glob("*.toml")):
        try:
            experiment = Experiment.from_toml(path.read_text("utf-8"), id=path.stem)
            valid.append((experiment if catalog is None else catalog.apply(experiment)).id)
        # The file is invalid or unreadable. The caller prints the message, and the other files are still checked.
        except (InvalidInputError, OSError, UnicodeDecodeError) as error:
            errors.append(f"{path}: {error}")
    return valid, errors
