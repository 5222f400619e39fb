"""Run the benchmarks: `python -m benchmarks` for all of them, `python -m benchmarks kernels eval` for some.

`python -m benchmarks.coverage`, which simulates how often intervals cover, is apart: it takes half an hour.

Each runs in a process of its own, so that none finds the memory or the caches of another; the exit code is 1 if a
target was missed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib import import_module

from benchmarks.report import failures

BENCHMARKS = (
    "accuracy", "startup", "kernels", "regression", "ranking", "classes", "groups", "eval", "memory", "frames", "core",
    "peers", "sizes", "hooks", "shards", "slices", "small", "spark", "engines",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(BENCHMARKS)}; all by default")
    names = parser.parse_args().names or BENCHMARKS
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"no benchmark called {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    if len(names) > 1:
        codes = [subprocess.run([sys.executable, "-m", "benchmarks", name], check=False).returncode for name in names]
        return int(any(codes))
    import_module(f"benchmarks.{names[0]}").main()
    if failures():
        print(f"missed: {', '.join(failures())}")
    return int(bool(failures()))


if __name__ == "__main__":
    sys.exit(main())
