"""Prediction logs of any size in batches: Parquet, ORC, Avro, CSV, JSON lines, Arrow IPC; on disk or elsewhere; tables."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Literal, cast

import pyarrow as pa

from streammetrics.io.avro import AvroReader
from streammetrics.io.column_types import Uses, data_type
from streammetrics.io.json_lines import JsonReader
from streammetrics.io.parts import LogPart
from streammetrics.io.pipes import STDIN, standard_input
from streammetrics.io.readers import FileFacts, FileReader, IpcReader, OrcReader, ParquetReader
from streammetrics.io.remote import find_urls, is_url
from streammetrics.io.sources import LogError, LogFile, PathLike, find_files, is_delta, is_integer, key_values, log_file
from streammetrics.io.tables import TABLES, open_table, shown
from streammetrics.io.text import DEFAULT_NULLS, TextFormat, TextReader, compared_types, settle_types

__all__ = ["DEFAULT_NULLS", "Log", "LogError", "LogPart"]


def find_sources(paths: Iterable[PathLike], as_text: bool = False) -> list[LogFile]:
    """List the files behind files, folders, patterns and URLs, in a fixed order; or tables.

    Parameters
    ----------
    paths : iterable of path
        What the user named.
    as_text : bool
        Whether files whose suffix says nothing are text files.

    Raises
    ------
    LogError
        Nothing matches, a suffix is unknown, a file is named twice, or formats are mixed.
    """
    sources: list[LogFile] = []
    before: set[str] = set()
    for path in paths:
        mine = list(_behind(os.fspath(path), as_text))  # links within a folder are partitions of their own
        for source in mine:
            if _place(source) in before:
                # Counting rows twice is hardly ever meant and never visible in the result.
                raise LogError(f"{source.file}: named twice")
        sources += mine
        before.update(map(_place, mine))
    if not sources:
        raise LogError("no log file was named")
    _check_one_format(sources)
    return sources


def _place(source: LogFile) -> str:
    """Where a file really is, by whatever link and name."""
    return source.file if is_url(source.file) or source.table else os.path.realpath(source.file)


def _behind(path: str, as_text: bool) -> Iterator[LogFile]:
    """Return what one argument names; what is there is a file, whatever it is called."""
    kind, colon, _ = path.partition(":")
    if colon and kind in TABLES and not os.path.exists(path):
        yield LogFile(shown(path), kind, None, "", 0, {}, table=path)
    elif is_url(path) and not os.path.exists(path):
        yield from (log_file(*one, as_text=as_text) for one in find_urls(path))
    elif is_delta(path):
        yield LogFile(f"delta:{path}", "delta", None, "", 0, {}, table=f"delta:{path}")
    else:
        yield from (log_file(file, as_text=as_text) for file in find_files(path))


def _check_one_format(sources: Sequence[LogFile]) -> None:
    first = sources[0]
    for source in sources:
        if source.format != first.format:
            raise LogError(
                f"{first.file} and {source.file} are of different formats: score each format by itself with --save, then "
                f"merge the files. If a key is an integer in one format, give types={{'KEY': 'string'}} for both."
            )


_LISTED = 40  # names in an error message
_FOOTERS_AT_ONCE = 8
_TEXT_OPTIONS = {"delimiter": "delimiter", "nulls": "nulls", "quotes": "quotes", "names": "columns"}
_PLAIN = TextFormat()


class Log:
    """A prediction log: one or many files of one format, never held in memory.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, folders and patterns (`"log/**/*.parquet"`); "-" is standard input, as an Arrow IPC stream, CSV or JSON
        lines. Folders are read recursively; names that start with `.` or
        `_` are left out. Folders named like `country=US` on the way to a file are columns of its rows (as keys text as
        it is spelled, otherwise integers where all values are), unless the file has a column of that name. URLs of
        files, folders and patterns, such as `"s3://bucket/log/*.parquet"`, are read by fsspec; keys and addresses are
        those that it finds (see there).
        A folder with a `_delta_log` is a Delta table; `"delta:s3://bucket/table"` names one elsewhere,
        `"iceberg:catalog/namespace.table"` or `"iceberg:path/v3.metadata.json"` an Iceberg table, and `"sql:select ..."`
        a query for DuckDB: all are read as they were when they were opened (a query as often as it is asked), by one
        thread.
    delimiter : str, optional
        What separates the values of a text file, one character or several; default a tab for `.tsv` and a comma for
        `.csv`. With it, or with `names`, files with any other suffix, such as `.dat`, are text files.
    nulls : sequence of str
        Spellings of null in text files, where they are not quoted.
    types : mapping of str to str or pyarrow.DataType, optional
        Types of columns: "string", "int", "float", "bool", "date", "timestamp", or an alias of Arrow, such as "uint64".
        They are the same in every file, whatever its format. Otherwise columns of Parquet, Arrow and JSON have their own
        types. In CSV and partitions keys are text as it is spelled, and other numbers float64.
    quotes : bool
        Whether quotation marks enclose values in CSV and TSV files.
    names : sequence of str, optional
        Names of the columns of CSV and TSV files without a header.
    missing_columns : {"raise", "null"}
        Whether a file that lacks a column that others have is refused, or its rows have null there.

    Examples
    --------
    >>> from streammetrics.io.logs import Log
    >>> log = Log(["clicks/day=*/"])  # doctest: +SKIP
    >>> for part in log.parts(["click", "pctr"], keys=["country"]):  # doctest: +SKIP
    ...     for batch in part.batches():
    ...         metrics.update(batch)
    """

    def __init__(
        self,
        paths: PathLike | Sequence[PathLike],
        *,
        delimiter: str | None = None,
        nulls: Sequence[str] = DEFAULT_NULLS,
        types: Mapping[str, str | pa.DataType] | None = None,
        quotes: bool = True,
        names: Sequence[str] = (),
        missing_columns: Literal["raise", "null"] = "raise",
    ) -> None:
        if isinstance(names, str) or isinstance(nulls, str):
            raise LogError("names= and nulls= take a list of texts, such as ['NA']")
        if delimiter is not None and (not delimiter or any(mark in delimiter for mark in '\r\n"')):
            raise LogError(
                f"delimiter={delimiter!r}: expected one or several characters, without quotation marks and line breaks"
            )
        alone = cast("Sequence[PathLike]", [paths] if isinstance(paths, (str, os.PathLike)) else paths)
        if STDIN in alone and len(alone) > 1:
            raise LogError(f"{STDIN}: standard input is a log of its own; name it alone")
        self._sources = (
            [standard_input()]
            if STDIN in alone
            else find_sources(alone, as_text=delimiter is not None or len(names) > 0)
        )
        self._is_text = self._sources[0].format in ("text", "json")
        self._types = {name: data_type(name, kind) for name, kind in (types or {}).items()}
        format_ = TextFormat(delimiter, tuple(nulls), quotes, tuple(names))
        self._check_format(format_)
        if missing_columns not in ("raise", "null"):
            raise LogError(f'missing_columns must be "raise" or "null", not {missing_columns!r}')
        self._fills = missing_columns == "null"
        self._asked = repr((format_, missing_columns))
        self._readers = [self._reader(source, format_) for source in self._sources]

    def __repr__(self) -> str:
        return f"Log({len(self.files):,} files, {self.bytes:,} bytes)"

    @property
    def files(self) -> list[str]:
        """The files, in the order in which they are read."""
        return [source.file for source in self._sources]

    @property
    def once(self) -> bool:
        """Whether it can be read only once, as standard input."""
        return self._sources[0].pipe is not None

    @property
    def bytes(self) -> int:
        """Size of all files together, as they lie on the disk."""
        return sum(source.bytes for source in self._sources)

    @property
    def table(self) -> bool:
        """Whether it is a table or a query: one part, whose rows come in the order that its engine likes."""
        return bool(self._sources[0].table)

    @property
    def stamps(self) -> list[str]:
        """What changes when a file is written again, for each."""
        return [source.stamp for source in self._sources]

    @property
    def reading(self) -> list[str]:
        """How text is read: what was asked for, as text."""
        return [self._asked, *(f"{name}: {kind}" for name, kind in sorted(self._types.items()))]

    @property
    def rows(self) -> int | None:
        """Rows of all files together, or None where that takes reading them (text, Arrow streams)."""
        rows = [facts.rows for facts in self._facts]
        return None if None in rows else sum(n for n in rows if n is not None)

    @property
    def columns(self) -> list[str]:
        """Names of the columns that every file has, or any with `missing_columns="null"`; partition keys included."""
        return list(self.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """Columns that every file has, with the types that `types` names, or else those in the first file.

        Types of text files are guessed from the first rows.

        With `missing_columns="null"` columns that any file has, with their types in the first that has them.
        """
        names = [self._names(i) for i in range(len(self._sources))]
        if not self._fills:
            everywhere = set.intersection(*map(set, names))
            return pa.schema([(name, self._stored_type(0, name)) for name in names[0] if name in everywhere])
        first = {name: i for i in reversed(range(len(names))) for name in names[i]}
        return pa.schema([(n, self._stored_type(first[n], n)) for n in dict.fromkeys(n for one in names for n in one)])

    def parts(self, columns: Sequence[str], keys: Sequence[str] = (), uses: Uses | None = None) -> list[LogPart]:
        """Split the log into ranges that threads or processes can read independently.

        Parameters
        ----------
        columns : sequence of str
            The columns wanted; no others are read.
        keys : sequence of str
            Columns that slice or group: string columns among them come dictionary-encoded, and in text files they
            stay integers or text. They need not be named in `columns` as well.
        uses : Uses, optional
            What all columns are read for that are read together, in this pass or another; by default keys are keys.

        Returns
        -------
        list of Part
            In the order of the rows. Parquet: row groups, small ones together; Arrow files: ranges of record batches;
            text and Arrow streams: files. Parts pickle.

        Raises
        ------
        LogError
            A file is broken or lacks a column.
        """
        wanted = tuple(dict.fromkeys([*columns, *keys]))
        uses = Uses(keys) if uses is None else uses
        for i in range(len(self._sources)):
            self._check_columns(i, [*wanted, *self._types])
        readers = self._typed_readers(wanted, uses) if self._is_text else self._readers
        types = self._types_of(wanted, readers)
        casts = {name: kind for name, kind in self._types.items() if name in wanted}
        return [
            LogPart(
                reader,
                span,
                wanted,
                frozenset(keys),
                self._constants(i, wanted, uses, types),
                self._read(reader, facts, wanted),
                (facts.names or [""])[0],
                casts,
                frozenset(uses.times) - casts.keys(),
                frozenset(uses.numbers) - casts.keys(),
            )
            for i, (reader, facts) in enumerate(zip(readers, self._facts, strict=True))
            for span in facts.spans
        ]

    def compared_types(self, columns: Sequence[str], uses: Uses) -> dict[str, pa.DataType]:
        """Return what columns that are read as text, as only their spelling counts, are compared as."""
        stored = {name for facts in self._facts for name in facts.types}
        folders = [n for n in columns if n in self._key_values and n not in stored and uses.spells(n)]
        found = {n: pa.int64() for n in folders if n not in self._types and self._has_integers(n)}
        if not self._is_text:
            return found
        both = [n for n in columns if n in {*uses.keys, *uses.exact} and all(n in facts.types for facts in self._facts)]
        return found | compared_types(cast("list[TextReader]", self._readers), self._facts, both, uses)

    def _check_format(self, format_: TextFormat) -> None:
        """Raise where options are about text files, and there are none."""
        first = self._sources[0]
        changed = [
            f"{option}=" for option, name in _TEXT_OPTIONS.items() if getattr(format_, name) != getattr(_PLAIN, name)
        ]
        if changed and first.format == "json":
            raise LogError(f"{first.file}: only CSV and TSV files take {', '.join(changed)}; JSON lines have none")
        if changed and first.format != "text":
            raise LogError(f"{first.file}: only CSV and TSV files take {', '.join(changed)}; found {first.format}")

    def _reader(self, source: LogFile, format_: TextFormat) -> FileReader:
        if source.format == "json":
            return JsonReader(source, self._types)
        if source.format == "text":
            return TextReader(source, format_, self._types)
        if source.table:
            return open_table(source.table)
        if source.format == "parquet":
            return ParquetReader(source.file, source.stamp)
        if source.format == "orc":
            return OrcReader(source.file)
        if source.format == "avro":
            return AvroReader(source.file)
        return IpcReader(source.file, source.pipe)

    @cached_property
    def _facts(self) -> list[FileFacts]:
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            facts = list(pool.map(lambda reader: reader.facts(), self._readers))
        # Thousands of files with the same thousand columns are to share one schema.
        shared: dict[pa.Schema, FileFacts] = {}
        first = [shared.setdefault(one.schema, one) for one in facts]
        return [replace(alike, rows=one.rows, spans=one.spans) for alike, one in zip(first, facts, strict=True)]

    @cached_property
    def _key_values(self) -> dict[str, dict[str, str | None]]:
        return key_values(self._sources)

    @cached_property
    def _anywhere(self) -> set[str]:
        """Columns that any file has."""
        shared = {id(one.types): one.types for one in self._facts}
        return {*(name for types in shared.values() for name in types), *self._key_values}

    def _names(self, i: int) -> dict[str, None]:
        """Columns of a file, its own first."""
        return dict.fromkeys([*self._facts[i].types, *self._sources[i].keys])

    def _stored_type(self, i: int, name: str) -> pa.DataType:
        found = self._types.get(name, self._facts[i].types.get(name))
        return self._constant(i, name, Uses()).type if found is None else found

    def _has_integers(self, name: str) -> bool:
        """Whether all values of a partition key are integers."""
        texts = [text for text in self._key_values[name].values() if text is not None]
        return bool(texts) and all(map(is_integer, texts))

    def _read(self, reader: FileReader, facts: FileFacts, wanted: Sequence[str]) -> tuple[str, ...]:
        """Return what a file is read for: for a field of a struct the struct, where its reader reads it as a whole."""
        stored = [name for name in wanted if name in facts.types]
        whole = set(stored) if reader.reads_paths else set(facts.names)
        return tuple(dict.fromkeys(name if name in whole else name.partition(".")[0] for name in stored))

    def _types_of(self, wanted: Sequence[str], readers: Sequence[FileReader]) -> dict[str, pa.DataType]:
        """Return the types of columns that some files have: those of the first, or of all where they are text."""
        stored = {name: one.types[name] for one in reversed(self._facts) for name in wanted if name in one.types}
        return stored | (dict(cast("TextReader", readers[0]).types) if self._is_text else {})

    def _constants(
        self, i: int, wanted: Sequence[str], uses: Uses, types: Mapping[str, pa.DataType]
    ) -> dict[str, pa.Array]:
        """Return the columns of a file that all its rows have in common: partition keys, and nulls where it lacks one.

        A column of its own goes before, as what was logged is nearer to the truth.
        """
        own, keys = self._facts[i].types, self._sources[i].keys
        return {
            name: self._constant(i, name, uses) if name in keys else pa.nulls(1, types.get(name, pa.string()))
            for name in wanted
            if name not in own
        }

    def _constant(self, i: int, name: str, uses: Uses) -> pa.Array:
        text = self._key_values[name][self._sources[i].file]
        spelled = name in uses.times or (uses.spells(name) and not self._stores_integers(name))
        numbers = self._has_integers(name) and not spelled and name not in self._types
        value = text if text is None or not numbers else int(text)
        index = pa.array([None if value is None else 0], pa.int32())
        values = pa.array([] if value is None else [value], pa.int64() if numbers else pa.string())
        return pa.DictionaryArray.from_arrays(index, values)

    def _stores_integers(self, name: str) -> bool:
        """Whether files of a typed format have a column of integers where others have a partition of that name."""
        return not self._is_text and any(pa.types.is_integer(one.types.get(name, pa.null())) for one in self._facts)

    def _typed_readers(self, wanted: Sequence[str], uses: Uses) -> list[FileReader]:
        stored = [name for name in wanted if any(name in facts.types for facts in self._facts)]
        partly = [(i, n) for n in stored for i, facts in enumerate(self._facts) if n not in facts.types]
        in_folders = [(i, name) for i, name in partly if name in self._sources[i].keys]
        folders = {name: self._constant(i, name, uses).type.value_type for i, name in in_folders}
        return list(settle_types(cast("list[TextReader]", self._readers), self._facts, stored, uses, folders))

    def _check_columns(self, i: int, wanted: Sequence[str]) -> None:
        names, repeated = self._names(i), self._facts[i].repeated
        for name in wanted:
            if name not in names and not (self._fills and name in self._anywhere):
                raise LogError(self._missing(i, name))
            if name in repeated:
                raise LogError(f"{self._sources[i].file}: column {name!r} is there {repeated[name]} times")

    def delimiter_hint(self, i: int = 0) -> str:
        """Say what probably separates the values of a text file whose header is read as one column; empty for others."""
        stored = self._facts[i].names
        found = next((mark for mark in (";", "\t", "|", ",") if len(stored) == 1 and mark in stored[0]), None)
        if found is None or self._sources[i].format != "text":
            return ""
        return f"its header is read as one column, {stored[0]!r}; if these are several, give delimiter={found!r}"

    def _missing(self, i: int, name: str) -> str:
        names = list(self._names(i))
        if hint := self.delimiter_hint(i):
            return f"{self._sources[i].file}: no column {name!r}; {hint}"
        lower = {known.lower(): known for known in names}
        close = difflib.get_close_matches(name.lower(), lower, n=1)
        hint = f"; did you mean {lower[close[0]]!r}?" if close else ""
        have = sum(name in self._names(j) for j in range(len(self._sources)))
        some = f" ({have:,} of {len(self._sources):,} files have it)" if have else ""
        hint = '; missing_columns="null" reads null there' if have else hint
        return f"{self._sources[i].file}: no column {name!r}{some}{hint}; there are: {listed(names)}"


def listed(names: Sequence[str]) -> str:
    """Names of columns as a message lists them."""
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
