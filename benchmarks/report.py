"""Tables on a terminal, and the verdicts in them."""

from __future__ import annotations

from collections.abc import Sequence

_failures: list[str] = []


def verdict(name: str, passed: bool) -> str:
    """Say PASS or FAIL, and remember a failure for the exit code."""
    if not passed:
        _failures.append(name)
    return "PASS" if passed else "FAIL"


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
