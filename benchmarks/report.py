"""Tables on a terminal, and the verdicts in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.timing import pace, paced

NOISE = 1.1
"""What two rounds of one call differ by on two cores that others use: times are missed beyond it, sizes not."""
SIZES, TIMES = ("bytes", "MiB"), ("s", "ms", "us", "ns/row", "us a key")

_failures: list[str] = []


def verdict(name: str, passed: bool) -> str:
    """Say PASS or FAIL, and remember a failure for the exit code."""
    if not passed:
        _failures.append(name)
    return "PASS" if passed else "FAIL"


def in_time(name: str, measured: float, limit: float) -> str:
    """Judge a time, or a ratio of two."""
    return verdict(name, measured <= limit * NOISE)


def failures() -> list[str]:
    return _failures


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    print(f"\n## {title}\n")
    for row in (head, ["-" * width for width in widths], *rows):
        first, *others = (
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *others]))
    print(flush=True)


class Sheet:
    """Lines of a table: what was measured, its limit, the verdict."""

    def __init__(self) -> None:
        self.rows: list[list[str]] = []

    def line(self, name: str, measured: float, limit: float, unit: str = "", asked: float | None = None) -> None:
        """Add a line; `limit` in seconds is multiplied by the pace; `asked` is the issue's figure where it is another."""
        self._line(name, measured, limit * (pace() if unit in TIMES else 1), unit, asked)

    def short(self, name: str, call: Callable[[], object], limit: float, asked: float | None = None) -> None:
        """Add a line of a call of less than some milliseconds, of which the limit is one."""
        seconds, slower = paced(call, 50)
        self._line(name, seconds * 1e3, limit * slower, "ms", asked)

    def _line(self, name: str, measured: float, limit: float, unit: str, asked: float | None) -> None:
        passed = verdict(name, measured <= limit) if unit in SIZES else in_time(name, measured, limit)
        said = "" if asked is None else _written(asked)
        self.rows.append([name, _written(measured), _written(limit), unit, said, passed])

    def show(self, title: str) -> None:
        table(title, ["", "measured", "limit", "", "asked for", ""], self.rows)


def _written(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"
