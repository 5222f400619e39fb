"""Mutation study: how many random one-line changes of the package does each test level find?

``python tests/mutation_study.py --new HEAD --today eb91a49 --work /tmp/mutation`` compares three levels:

fast
    The tests that pytest runs by default at commit `--new`.
full
    All tests at commit `--new` (`--full-arguments`).
today
    All tests at commit `--today`, an older one, against the package of `--new` (`--today-package own`: against their own
    package with the same change, which is found by its line).

Running all tests for each mutant would take days. The study takes about as long as all tests do once, and half an hour:

1. Reach: the fast level runs once, with a call before each line to be changed that records the test that reaches it.
2. Single: each mutant runs the fast tests that reach it, until one fails. Tests that `today` has unchanged run first, then
   those in files that are named like the module. A mutant that acts on import runs the whole fast level.
3. Together: one run of the full level with all mutants that are not found yet, and one run of the tests that only `today`
   has. Mutants that tests do not reach directly (results kept between tests, other processes) are included.
4. Attribution: each mutant of step 3 alone runs the tests that failed there, unless they fail without any mutant, too.

What the fast level finds, the full level finds, as it contains the fast level. A test of `new` is taken to be in `today`
if its ID and the source of its function are the same; a changed test runs again as it is in `today`. A test that never
ends or crashes counts as failed. Every step continues where it was stopped. The last step runs all tests that found
something on unchanged sources, and marks those that fail there as doubtful.
"""

from __future__ import annotations

import argparse
import ast
import collections
import concurrent.futures
import functools
import hashlib
import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from mutation.changes import FOLDERS, Mutant, find_same, sample_mutants
from mutation.instrument import instrument
from mutation.runs import Result, StoppedError, Tree, copy_tree, end_all, make_tree, plugins, read_log, usual_seconds

REPOSITORY = Path(__file__).resolve().parent.parent
ALL_DAY = 24 * 3600.0
MOST_FAILURES = 400  # tests that attribution runs for one mutant
LEVEL_MARKS = {"pytest.mark.slow", "pytest.mark.full_matrix"}
MOST_TODAY = 300  # tests of `today` that are tried after another test has found a mutant


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def append(path: Path, record: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def read_records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Study:
    """The steps of the study, and the files that they leave in the folder `work`."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.work: Path = options.work.resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.new, self.today = (_commit(c) for c in (options.new, options.today))
        self._check_same_study()
        fast, full = (shlex.split(a) for a in (options.fast_arguments, options.full_arguments))
        self.arguments = {"fast": fast, "full": full, "today": []}
        self.clean = make_tree(REPOSITORY, self.new, self.work / "trees" / "clean")
        package = self.clean if options.today_package == "new" else None
        self.clean_today = make_tree(REPOSITORY, self.today, self.work / "trees" / "clean-today", package)
        self.mutants = sample_mutants(self.clean, options.seed, options.count, options.folders)
        if options.only:
            self.mutants = [m for m in self.mutants if m.number in options.only]
        self.singles = self.work / "singles.jsonl"
        self.attributed = self.work / "attributed.jsonl"
        self.times = self.work / "times.json"

    def _check_same_study(self) -> None:
        o = self.options
        fixed = {
            "new": self.new,
            "today": self.today,
            "today_package": o.today_package,
            "seed": o.seed,
            "count": o.count,
        }
        fixed |= {"folders": list(o.folders), "only": list(o.only), "files": list(o.files)}
        file = self.work / "study.json"
        if file.exists() and json.loads(file.read_text()) != fixed:
            sys.exit(
                f"{self.work} holds another study, {file.read_text()}: repeat its options, or choose another --work"
            )
        file.write_text(json.dumps(fixed))

    # -- checkouts -------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def trees(self) -> list[Tree]:
        return [self._tree(self.clean, f"new{k}") for k in range(self.options.jobs)]

    @functools.cached_property
    def today_trees(self) -> list[Tree]:
        return [self._tree(self.clean_today, f"today{k}") for k in range(self.options.jobs)]

    def _tree(self, clean: Path, name: str) -> Tree:
        return Tree(copy_tree(clean, self.work / "trees" / name), clean, self.work, self.options.cache.resolve())

    def own(self, mutant: Mutant) -> Mutant | None:
        """Return the mutant as it is in the package that the tests of `today` run against."""
        if self.options.today_package == "new":
            return mutant
        there = self.clean_today / mutant.path
        return (
            find_same(mutant, (self.clean / mutant.path).read_bytes(), there.read_bytes()) if there.exists() else None
        )

    def parallel(self) -> list[str]:
        return ["-n", str(self.options.jobs)] if self.options.jobs > 1 else []

    # -- step 0: which tests there are -----------------------------------------------------------------------------------

    @functools.cached_property
    def full_tests(self) -> list[str]:
        return self._collect("full", self.trees[0])

    @functools.cached_property
    def today_tests(self) -> set[str]:
        return set(self._collect("today", self.today_trees[0]))

    def _collect(self, level: str, tree: Tree) -> list[str]:
        file = self.work / f"collected-{level}.json"
        if not file.exists():
            say(f"collecting the tests of {level}")
            log = self.work / "logs" / f"collect-{level}.jsonl"
            log.unlink(missing_ok=True)
            tree.restore()
            result = tree.pytest([*self.arguments[level], "--collect-only", *self.options.files], log, limit=1800)
            if result.failed:
                say(f"{len(result.failed)} files of {level} cannot be collected: {', '.join(result.failed)}")
            found = [t for t, outcome in result.outcomes.items() if outcome == "collected"]
            if not found:
                sys.exit(f"no tests collected: see {log.with_suffix('.out')}")
            file.write_text(json.dumps(found))
        return json.loads(file.read_text())

    def in_today(self, test: str) -> bool:
        """Whether `today` has the test with the same ID and the same source."""
        if test not in self.today_tests:
            return False
        file, _, name = test.partition("::")
        name = name.partition("[")[0]
        here, there = (_functions(root / file).get(name) for root in (self.clean, self.clean_today))
        return here is not None and here == there

    # -- step 1: reach ---------------------------------------------------------------------------------------------------

    @functools.cached_property
    def fast(self) -> Result:
        """The run of the fast level with instrumented lines, less the tests that fail on unchanged sources, too."""
        log, again = (self.work / "logs" / f"{name}.jsonl" for name in ("reach", "reach-again"))
        if not (self.work / "reached.json").exists():
            say("running the fast level with instrumented lines")
            for file in (log, again, self.work / "hits.txt"):
                file.unlink(missing_ok=True)
            shutil.rmtree(self.work / "trees" / "reach", ignore_errors=True)
            tree = self._tree(self.clean, "reach")
            kernels = self.work / "kernels.json"
            kernels.write_text(json.dumps(instrument(tree.root, self.mutants, plugins(self.work))))
            environment = {"MUTATION_HITS": str(self.work / "hits.txt"), "MUTATION_KERNELS": str(kernels)}
            arguments = [*self.arguments["fast"], *self.parallel()]
            first = tree.pytest([*arguments, *self.options.files], log, limit=ALL_DAY, environment=environment)
            if first.killed or not first.outcomes:
                sys.exit(f"the fast level does not run to its end: see {log.with_suffix('.out')}")
            say(
                f"fast level: {len(first.outcomes)} tests, {first.wall:.0f} s, {len(first.failed)} failed if instrumented"
            )
            if first.failed:
                self.trees[0].restore()
                self.trees[0].pytest(arguments, again, tests=[*first.failed], limit=ALL_DAY)
            self.times.write_text(json.dumps(first.seconds | read_log(again).seconds))
            (self.work / "reached.json").write_text(json.dumps(self._hits()))
        first, second = read_log(log), read_log(again)
        # a test that only the instrumentation fails (it reads the sources, say) is run for every mutant
        self.sensitive = {t for t, outcome in second.outcomes.items() if outcome == "passed"}
        first.outcomes |= dict.fromkeys(self.sensitive, "passed")
        for test in second.failed:
            first.outcomes.pop(test, None)
        first.seconds |= second.seconds
        first.failed = second.failed
        return first

    def _hits(self) -> dict[int, list[str]]:
        reached = collections.defaultdict(list)
        file = self.work / "hits.txt"
        for line in sorted(set(file.read_text().splitlines())) if file.exists() else ():
            number, _, test = line.partition("\t")
            reached[int(number)].append(test)
        return reached

    @functools.cached_property
    def reached(self) -> dict[int, list[str]]:
        _ = self.fast
        found = json.loads((self.work / "reached.json").read_text())
        return {m.number: found.get(str(m.number), []) for m in self.mutants}

    def acts_on_import(self, mutant: Mutant) -> bool:
        kernels = json.loads((self.work / "kernels.json").read_text()).values()
        return not mutant.scope and not any(mutant.number in numbers for numbers in kernels)

    def selected(self, mutant: Mutant) -> list[str]:
        """Return the fast tests that may find the mutant, the likeliest first."""
        passing = self.fast.outcomes
        reached = set(passing) if self.acts_on_import(mutant) else set(self.reached[mutant.number]) | self.sensitive
        return self.in_order(mutant, [t for t in passing if t in reached and passing[t] == "passed"])

    def in_order(self, mutant: Mutant, tests: Iterable[str]) -> list[str]:
        seconds: dict[str, float] = collections.defaultdict(float)
        tests = list(tests)
        for test in tests:
            seconds[test.partition("::")[0]] += self.fast.seconds.get(test, 1.0)

        def place(test: str) -> tuple[Any, ...]:
            file = test.partition("::")[0]
            return not self.in_today(test), -_likeness(mutant.path, self.clean / file), seconds[file], file

        return sorted(tests, key=place)

    # -- step 2: each mutant alone, by the fast level --------------------------------------------------------------------

    def run_singles(self) -> None:
        done = {r["number"] for r in read_records(self.singles)}
        waiting = [m for m in self.mutants if m.number not in done]
        if waiting:
            _ = self.only_today, self.today_trees, self.fast, self.reached
            say(f"{len(waiting)} mutants, each with the fast tests that reach it")
            self.share_out(waiting, self.run_single)

    def run_single(self, mutant: Mutant, slot: int) -> None:
        tests = self.selected(mutant)
        record: dict[str, Any] = {
            "number": mutant.number,
            "selected": len(tests),
            "seconds": 0.0,
            "fast": None,
            "today": None,
        }
        if tests:
            with self.trees[slot].changed([mutant]):
                result = self._run(self.trees[slot], "fast", f"single-{mutant.number}", tests)
            record |= {"seconds": round(result.wall, 1), "ran": len(result.outcomes)}
            if failure := result.first_failure():
                record["fast"], record["message"] = failure
                record |= self._check_today(mutant, failure[0], slot)
        append(self.singles, record)
        say(
            f"{mutant.number}: {describe(mutant)}: "
            + (f"found by {record['fast']}" if record["fast"] else f"not found by {len(tests)} tests")
        )

    def _check_today(self, mutant: Mutant, test: str, slot: int) -> dict[str, Any]:
        """Say whether tests of `today` find the mutant, too, which this test finds.

        If `today` does not have this test, the tests that only `today` has run: those of the same file and case first.
        """
        if "::" not in test or self.in_today(test):
            return {"today": test}
        own = self.own(mutant)
        if own is None:
            return {}
        file, case = test.partition("::")[0], test.partition("[")[2]

        def place(other: str) -> tuple[Any, ...]:
            path = other.partition("::")[0]
            likeness = _likeness(mutant.path, self.clean_today / path)
            return other != test, path != file, other.partition("[")[2] != case, -likeness, path

        tests = sorted(self.only_today, key=place)[:MOST_TODAY]
        tree = self.today_trees[slot]
        for attempt in range(5):
            name = f"single-{mutant.number}-today-{attempt}"
            with tree.changed([own]):
                failure = self._run(tree, "today", name, tests).first_failure() if tests else None
            if failure is None:
                return {}
            if "::" not in failure[0]:
                return {"today": failure[0]}
            unchanged = self._run(tree, "today", f"{name}-clean", [failure[0]])
            if unchanged.outcomes.get(failure[0]) == "passed":
                return {"today": failure[0]}
            tests.remove(failure[0])
        return {}

    @functools.cached_property
    def only_today(self) -> list[str]:
        """The tests of `today` that the full level does not have, or has with another source."""
        full = set(self.full_tests)
        return sorted(t for t in self.today_tests if t not in full or not self.in_today(t))

    def _run(self, tree: Tree, level: str, name: str, tests: Sequence[str]) -> Result:
        """Run tests in one process until one fails."""
        log = self.work / "logs" / f"{name}.jsonl"
        for file in (log, log.with_suffix(".out")):
            file.unlink(missing_ok=True)
        limit = usual_seconds(tests, self.fast.seconds)
        return tree.pytest([*self.arguments[level], "-x"], log, tests=tests, times=self.times, limit=limit)

    def share_out(self, mutants: Iterable[Mutant], work: Callable[[Mutant, int], None]) -> None:
        """Let `jobs` threads work on mutants, each in a checkout of its own."""
        slots: queue.SimpleQueue[int] = queue.SimpleQueue()
        for slot in range(self.options.jobs):
            slots.put(slot)

        def one(mutant: Mutant) -> None:
            slot = slots.get()
            try:
                work(mutant, slot)
            finally:
                slots.put(slot)

        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            futures = [pool.submit(one, m) for m in mutants]
            try:
                for future in concurrent.futures.as_completed(futures):
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                end_all()
                raise

    # -- step 3: all that are left, together -----------------------------------------------------------------------------

    def run_together(self) -> None:
        pending = [m for m in self.mutants if not self._single(m)["fast"] or not self._single(m)["today"]]
        if not pending:
            return
        full = [t for t in self.full_tests if t not in self.fast.failed]
        self.failures = self._together("full", self.trees[0], pending, full)
        own = [found for m in pending if (found := self.own(m)) is not None]
        self.today_failures = self._together("today", self.today_trees[0], own, self.only_today)
        done = {r["number"] for r in read_records(self.attributed)}
        waiting = [m for m in pending if m.number not in done]
        say(f"{len(waiting)} mutants, each with tests that failed")
        self.share_out(waiting, self.attribute)

    def _single(self, mutant: Mutant) -> dict[str, Any]:
        return next(r for r in read_records(self.singles) if r["number"] == mutant.number)

    def _together(self, level: str, tree: Tree, mutants: list[Mutant], tests: list[str]) -> list[str]:
        """Run tests with all these mutants, and return those that fail and pass without them."""
        key = hashlib.sha256(repr([m.number for m in mutants]).encode()).hexdigest()[:8]
        log, clean = (self.work / "logs" / f"{name}-{level}-{key}.jsonl" for name in ("together", "clean"))
        arguments = [*self.arguments[level], *self.parallel()]
        for _ in range(3):  # a run that a mutant ends goes on behind the test that ended it
            before = read_log(log)
            left = [t for t in tests if t not in before.outcomes and t not in before.unfinished]
            if left:
                say(f"{level}: {len(left)} tests with {len(mutants)} mutants together")
                with tree.changed(mutants):
                    tree.pytest(arguments, log, tests=left, times=self.times, limit=ALL_DAY)
        result = read_log(log)
        failed = list(dict.fromkeys([*(t for t in result.failed if "::" in t), *result.unfinished]))
        known = read_log(clean).outcomes
        if left := [t for t in failed if t not in known]:
            say(f"{level}: {len(left)} failed; running them without mutants")
            tree.restore()
            tree.pytest(arguments, clean, tests=left, times=self.times, limit=ALL_DAY)
        known = read_log(clean).outcomes
        return [t for t in failed if known.get(t) == "passed"]

    # -- step 4: attribution ---------------------------------------------------------------------------------------------

    def attribute(self, mutant: Mutant, slot: int) -> None:
        """Run the tests that failed together with this mutant alone: fast tests first, and those of `today` first."""
        found = {level: self._single(mutant)[level] for level in ("fast", "today")}
        record: dict[str, Any] = {"number": mutant.number, "full": found["fast"], **found}
        groups: dict[tuple[bool, bool], list[str]] = collections.defaultdict(list)
        for test in self.in_order(mutant, self.failures):
            groups[test in self.fast.outcomes, self.in_today(test)].append(test)
        began, cut = time.monotonic(), 0
        for fast, today in ((True, True), (True, False), (False, True), (False, False)):
            tests = groups[fast, today][:MOST_FAILURES]
            cut += len(groups[fast, today]) - len(tests)
            for level in ("fast", "full") if fast else ("full",):
                wanted = [n for n in ("fast", "full", "today") if not record[n]]
                wanted = [n for n in wanted if n in ("full", level) or (n == "today" and today)]
                if not wanted or not tests:
                    continue
                with self.trees[slot].changed([mutant]):
                    name = f"attribute-{mutant.number}-{int(today)}-{level}-of-{'fast' if fast else 'full'}"
                    failure = self._run(self.trees[slot], level, name, tests).first_failure()
                if failure:
                    record |= dict.fromkeys(wanted, failure[0]) | {"message": failure[1]}
                    if not record["today"]:
                        record |= self._check_today(mutant, failure[0], slot)
        own = self.own(mutant)
        record["comparable"] = own is not None
        if not record["today"] and own is not None and self.today_failures:
            tests = self.in_order(mutant, self.today_failures)
            cut += max(0, len(tests) - MOST_FAILURES)
            with self.today_trees[slot].changed([own]):
                name = f"attribute-{mutant.number}-today"
                result = self._run(self.today_trees[slot], "today", name, tests[:MOST_FAILURES])
            if failure := result.first_failure():
                record["today"], record["message"] = failure
        record |= {"seconds": round(time.monotonic() - began, 1), "left_out": cut}
        append(self.attributed, record)
        names = [n for n in ("fast", "full", "today") if record[n]]
        say(f"{mutant.number}: {describe(mutant)}: found by {', '.join(names) or 'none'}")

    # -- the result ------------------------------------------------------------------------------------------------------

    def verify(self) -> set[str]:
        """Return the tests that found a mutant but fail on unchanged sources, too."""
        doubtful = set()
        for level in ("fast", "full"):
            log = self.work / "logs" / f"verify-{level}.jsonl"
            found = {r[level] for r in self.records() if r.get(level) and "::" in r[level]}
            if level == "full":
                found -= {r["fast"] for r in self.records()}
            if left := sorted(found - set(read_log(log).outcomes)):
                say(f"{level}: running the {len(left)} tests that found something on unchanged sources")
                arguments = [*self.arguments[level], *self.parallel()]
                self.trees[0].restore()
                self.trees[0].pytest(arguments, log, tests=left, times=self.times, limit=ALL_DAY)
            doubtful |= {t for t in read_log(log).failed if t in found}
        return doubtful

    def records(self) -> list[dict[str, Any]]:
        """Return one record for each mutant: which tests found it, or None; `full` is missing while it is not known."""
        later = {r["number"]: r for r in read_records(self.attributed)}
        found = []
        for record in read_records(self.singles):
            merged = dict(record)
            if record["fast"]:
                merged["full"] = record["fast"]
            if record["number"] in later:
                seconds = record["seconds"] + later[record["number"]]["seconds"]
                merged |= later[record["number"]] | {"seconds": round(seconds, 1)}
            found.append(merged)
        return sorted(found, key=lambda r: r["number"])

    def report(self, doubtful: set[str]) -> str:
        records = {r["number"]: r for r in self.records()}
        lines = [
            f"Mutation study: seed {self.options.seed}, new {self.new[:10]}, today {self.today[:10]}",
            "",
            "number  fast full today  seconds  where and what: first failing test",
        ]
        levels = ("fast", "full", "today")
        counts: collections.Counter[str] = collections.Counter()
        survivors = []
        for mutant in self.mutants:
            record = records.get(mutant.number)
            if record is None:
                lines.append(f"{mutant.number:6}  not run: {describe(mutant)}")
                continue
            attributed = "comparable" in record
            marks = ["yes" if record.get(n) else "no" if attributed or n == "fast" else "?" for n in levels]
            if marks[2] == "no" and not record.get("comparable", True):
                marks[2] = "n/a"
            counts.update(n for n, mark in zip(levels, marks, strict=True) if mark == "yes")
            counts["today, not fast"] += marks[2] == "yes" and marks[0] == "no"
            counts["today and fast"] += marks[2] == "yes" and marks[0] == "yes"
            counts["today, not full"] += marks[2] == "yes" and marks[1] == "no"
            test = next((record[n] for n in levels if record.get(n)), None)
            doubt = " DOUBTFUL: fails on unchanged sources" if test in doubtful else ""
            how = test or f"(the fast level has {record['selected']} tests that may find it)"
            cut = f" ({record['left_out']} failing tests left out)" if record.get("left_out") else ""
            lines.append(
                f"{mutant.number:6}  {marks[0]:>4} {marks[1]:>4} {marks[2]:>5}  {record['seconds']:7.1f}  "
                f"{describe(mutant)}: {how}{doubt}{cut}"
            )
            if "no" in marks or "?" in marks:
                survivors.append((mutant, ", ".join(f"{n} {mark}" for n, mark in zip(levels, marks, strict=True))))
        run = len(records)
        lines += ["", *(f"{n}: {counts[n]} of {run} found" for n in levels)]
        both, today = counts["today and fast"], counts["today"]
        share = f" ({both / today:.1%})" if today else ""
        lines.append(f"fast finds {both} of the {today} that today's tests find{share}")
        lines.append(f"today's tests find {counts['today, not full']} that full does not")
        lines += ["", "Mutants that a level does not find:"]
        for mutant, marks_ in survivors:
            lines += ["", f"{mutant.number}: {marks_}", mutant.diff((self.clean / mutant.path).read_bytes()).rstrip()]
        return "\n".join(lines)


@functools.cache
def _likeness(changed: str, tests: Path) -> int:
    """Say how likely a file of tests is to find a change in a module: by the file's name, imports and folder."""
    module, folder = Path(changed).stem, Path(changed).parts[1]
    text = tests.read_text() if tests.exists() else ""
    if module in tests.stem:
        return 3
    if f"{folder}.{module}" in text or f"{folder} import {module}" in text:
        return 2
    return int(tests.parent.name == folder)


def describe(mutant: Mutant) -> str:
    return f"{mutant.path}:{mutant.line} {mutant.kind} {shorten(mutant.old)} to {shorten(mutant.new)}"


def shorten(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


@functools.cache
def _functions(path: Path) -> dict[str, str]:
    """Return the source of each test function of a file, without comments, layout and the marks of levels."""
    if not path.exists():
        return {}
    found = {}
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = [d for d in node.decorator_list if ast.unparse(d) not in LEVEL_MARKS]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = ast.dump(node)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{f.name}": ast.dump(f) for f in node.body if isinstance(f, ast.FunctionDef)}
    return found


def _commit(name: str) -> str:
    command = ["git", "-C", str(REPOSITORY), "rev-parse", "--verify", f"{name}^{{commit}}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--new", default="HEAD", help="commit with the package and the levels fast and full")
    parser.add_argument("--today", default="eb91a49", help="commit with the tests to compare with")
    parser.add_argument(
        "--today-package", choices=("new", "own"), default="new", help="what the tests of today run against"
    )
    parser.add_argument("--fast-arguments", default="", help="arguments of pytest for the fast level")
    parser.add_argument(
        "--full-arguments", default='-m "" --cpu-limit 0', help="arguments of pytest for the full level"
    )
    parser.add_argument("--seed", type=int, default=40)
    parser.add_argument("--count", type=int, default=60, help="number of mutants")
    parser.add_argument("--folders", nargs="+", default=FOLDERS, help="folders of the package, which get equal shares")
    parser.add_argument("--only", nargs="+", type=int, default=(), help="numbers of mutants, to try the study out")
    parser.add_argument("--files", nargs="+", default=(), help="files of tests, to try the study out")
    parser.add_argument("--jobs", type=int, default=2, help="processes, and checkouts")
    parser.add_argument(
        "--work", type=Path, default=Path("/tmp/mutation-study"), help="folder for checkouts and results"
    )
    parser.add_argument("--cache", type=Path, default=Path("/tmp/mutation-kernels"), help="NUMBA_CACHE_DIR of all runs")
    parser.add_argument("--until", choices=("list", "singles", "end"), default="end", help="stop after this step")
    options = parser.parse_args()
    os.nice(5)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    study = Study(options)
    if options.until == "list":
        for mutant in study.mutants:
            print(f"# {mutant.number}: {mutant.kind} in {mutant.scope or 'the module'}")
            print(mutant.diff((study.clean / mutant.path).read_bytes()))
        return
    try:
        study.run_singles()
        if options.until == "end":
            study.run_together()
        doubtful = study.verify()
    except (KeyboardInterrupt, StoppedError):
        end_all()
        sys.exit("stopped; the same command goes on from here")
    text = study.report(doubtful)
    (study.work / "report.txt").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
