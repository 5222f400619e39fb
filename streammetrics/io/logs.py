"""Read logs of any size in batches: Parquet, ORC, Avro, CSV, JSON lines, Arrow IPC, tables and SQL queries."""

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
from streammetrics.io.column_types import ColumnUses, parse_type
from streammetrics.io.json_lines import JsonReader
from streammetrics.io.parts import LogPart
from streammetrics.io.pipes import STDIN, open_standard_input
from streammetrics.io.readers import FileFacts, FileReader, IpcReader, OrcReader, ParquetReader
from streammetrics.io.remote import find_urls, is_url
from streammetrics.io.sources import (
    LogError,
    LogFile,
    PathLike,
    collect_key_values,
    find_files,
    is_delta_table,
    is_integer,
    make_log_file,
)
from streammetrics.io.tables import TABLES, open_table, shorten_name
from streammetrics.io.text import DEFAULT_NULLS, TextFormat, TextReader, find_comparison_types, resolve_types

__all__ = ["DEFAULT_NULLS", "Log", "LogError", "LogPart"]


def find_sources(paths: Iterable[PathLike], as_text: bool = False) -> list[LogFile]:
    """List the files or tables that paths, folders, patterns and URLs refer to, in a fixed order.

    Parameters
    ----------
    paths : iterable of path
        The paths, folders, patterns and URLs that the user specified.
    as_text : bool
        Whether to read files with an unknown suffix as text files; otherwise, they cause an error.

    Raises
    ------
    LogError
        Nothing matches, a suffix is unknown, a file is named twice, or formats are mixed.
    """
    sources: list[LogFile] = []
    before: set[str] = set()
    for path in paths:
        # Within one argument, such as a folder, two links to the same file may belong to different partitions. An error
        # is therefore raised only if two arguments name the same file.
        path_sources = list(_list_sources(os.fspath(path), as_text))
        for source in path_sources:
            if _real_path(source) in before:
                # Users hardly ever intend to count rows twice, and would not notice a duplicate file in the result.
                raise LogError(f"{source.file}: named twice, so its rows would count twice; name the file once")
        sources += path_sources
        before.update(map(_real_path, path_sources))
    if not sources:
        raise LogError("expected at least one log, found none; pass a file, folder, pattern or URL")
    _check_one_format(sources)
    return sources


def _real_path(source: LogFile) -> str:
    """Return the path of a file with symbolic links resolved, to find files that are named twice.

    Remote files and tables have no links, so their names are returned unchanged.
    """
    return source.file if is_url(source.file) or source.table else os.path.realpath(source.file)


def _list_sources(path: str, as_text: bool) -> Iterator[LogFile]:
    """Yield the files or tables that one argument refers to.

    An argument such as `delta:table` or `s3://bucket/log` is a local path if a file or folder with this name exists.
    """
    kind, colon, _ = path.partition(":")
    if colon and kind in TABLES and not os.path.exists(path):
        yield LogFile(shorten_name(path), kind, None, "", 0, {}, table=path)
    elif is_url(path) and not os.path.exists(path):
        yield from (make_log_file(*one, as_text=as_text) for one in find_urls(path))
    elif is_delta_table(path):
        yield LogFile(f"delta:{path}", "delta", None, "", 0, {}, table=f"delta:{path}")
    else:
        yield from (make_log_file(file, as_text=as_text) for file in find_files(path))


def _check_one_format(sources: Sequence[LogFile]) -> None:
    first = sources[0]
    for source in sources:
        if source.format != first.format:
            raise LogError(
                f"{first.file} and {source.file} have different formats; evaluate each format by itself, save the "
                f"results (--save), and merge the saved files. If a slicing column KEY has integers in only one of the "
                f"formats, pass types={{'KEY': 'string'}} for both."
            )


# The maximum number of column names that an error message lists.
_MAX_LISTED_NAMES = 40
_FOOTERS_AT_ONCE = 8
_TEXT_OPTIONS = {"delimiter": "delimiter", "nulls": "nulls", "quotes": "quotes", "names": "columns"}
_DEFAULT_FORMAT = TextFormat()


class Log:
    """A prediction log: one or more files of the same format, which are never read into memory as a whole.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, folders and patterns (`"log/**/*.parquet"`); "-" is standard input, as an Arrow IPC stream, CSV or JSON
        lines. Folders are read recursively; names that start with `.` or `_` are skipped. A folder named like
        `country=US` in the path of a file adds a column to its rows, unless the file has a column with that name. The
        values of such a column are text if it is only a slicing key; otherwise, they become integers if possible. URLs
        of files, folders and patterns, such as `"s3://bucket/log/*.parquet"`, are read by fsspec, with the credentials
        and endpoints that it finds (see its documentation). A folder with a `_delta_log` is a Delta table, and
        `"delta:s3://bucket/table"` names a remote Delta table. `"iceberg:catalog/namespace.table"` or
        `"iceberg:path/v3.metadata.json"` names an Iceberg table, and `"sql:select ..."` a DuckDB query. A single thread
        reads the table or the result of the query. A table is read at the version that was current when the log was
        opened; a query is run again for each pass.
    delimiter : str, optional
        The separator of values in text files, one or more characters; by default a tab for `.tsv` and a comma for
        `.csv`. With `delimiter` or `names`, files with any other suffix, such as `.dat`, are text files.
    nulls : sequence of str
        Values that are read as null in text files unless they are quoted.
    types : mapping of str to str or pyarrow.DataType, optional
        Types of columns: "string", "int", "float", "bool", "date", "timestamp", or an Arrow alias, such as "uint64". A
        type applies to every file, whatever its format. By default, columns of Parquet, Arrow and JSON files keep their
        types; in CSV files and partition names, keys are read as text, exactly as spelled, and numbers in other columns
        as float64.
    quotes : bool
        Whether quotation marks enclose values in CSV and TSV files.
    names : sequence of str, optional
        Names of the columns of CSV and TSV files without a header.
    missing_columns : {"raise", "null"}
        Whether to raise an error if a file lacks a column that other files have, or to read nulls.

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
        for option, value in (("names", names), ("nulls", nulls)):
            if isinstance(value, str):
                raise LogError(f"{option}=: expected a list of strings, such as ['a', 'b'], found the string {value!r}")
        if delimiter is not None and (not delimiter or any(mark in delimiter for mark in '\r\n"')):
            raise LogError(
                f"delimiter={delimiter!r}: expected one or more characters other than quotation marks and line breaks"
            )
        alone = cast("Sequence[PathLike]", [paths] if isinstance(paths, (str, os.PathLike)) else paths)
        if STDIN in alone and len(alone) > 1:
            raise LogError(
                f"{STDIN}: standard input cannot be combined with other logs; pass {STDIN!r} alone, or only files"
            )
        self._sources = (
            [open_standard_input()]
            if STDIN in alone
            else find_sources(alone, as_text=delimiter is not None or len(names) > 0)
        )
        self._is_text = self._sources[0].format in ("text", "json")
        self._types = {name: parse_type(name, kind) for name, kind in (types or {}).items()}
        format_ = TextFormat(delimiter, tuple(nulls), quotes, tuple(names))
        self._check_format(format_)
        if missing_columns not in ("raise", "null"):
            raise LogError(f'missing_columns must be "raise" or "null", not {missing_columns!r}')
        self._fills_missing = missing_columns == "null"
        self._options = repr((format_, missing_columns))
        self._readers = [self._make_reader(source, format_) for source in self._sources]

    def __repr__(self) -> str:
        return f"Log({len(self.files):,} files, {self.bytes:,} bytes)"

    @property
    def files(self) -> list[str]:
        """The files, in the order in which they are read."""
        return [source.file for source in self._sources]

    @property
    def is_stream(self) -> bool:
        """Whether the log can be read only once, as is the case for standard input."""
        return self._sources[0].pipe is not None

    @property
    def bytes(self) -> int:
        """Total size of all files in bytes; for compressed files, the compressed size."""
        return sum(source.bytes for source in self._sources)

    @property
    def is_table(self) -> bool:
        """Whether the log is a table (Delta, Iceberg) or a SQL query.

        Such a log is a single part, and its rows have no fixed order.
        """
        return bool(self._sources[0].table)

    @property
    def stamps(self) -> list[str]:
        """For each file, a string that changes when the file is rewritten, such as its modification time."""
        return [source.stamp for source in self._sources]

    @property
    def read_options(self) -> list[str]:
        """The options for reading the log, as strings. A checkpoint is valid only for a pass with the same options."""
        return [self._options, *(f"{name}: {kind}" for name, kind in sorted(self._types.items()))]

    @property
    def rows(self) -> int | None:
        """Total number of rows, or None if a file does not store its row count (text, JSON, Arrow streams)."""
        rows = [facts.rows for facts in self._facts]
        return None if None in rows else sum(n for n in rows if n is not None)

    @property
    def columns(self) -> list[str]:
        """Names of the columns that every file has, including partition keys.

        With `missing_columns="null"`, these are the columns that at least one file has.
        """
        return list(self.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """The columns that every file has, with the types set by the user or, by default, those of the first file.

        In text files, types are inferred from the first rows. With `missing_columns="null"`, the schema contains all
        columns that at least one file has, with their types in the first such file.
        """
        names = [self._column_names(i) for i in range(len(self._sources))]
        if not self._fills_missing:
            everywhere = set.intersection(*map(set, names))
            return pa.schema([(name, self._stored_type(0, name)) for name in names[0] if name in everywhere])
        first = {name: i for i in reversed(range(len(names))) for name in names[i]}
        return pa.schema([(n, self._stored_type(first[n], n)) for n in dict.fromkeys(n for one in names for n in one)])

    def parts(self, columns: Sequence[str], keys: Sequence[str] = (), uses: ColumnUses | None = None) -> list[LogPart]:
        """Split the log into parts that threads or processes can read independently.

        Parameters
        ----------
        columns : sequence of str
            The columns to read.
        keys : sequence of str
            Columns that slice or group rows. String columns among them are dictionary-encoded. In text files, keys are
            read as integers or text. They need not be in `columns` as well.
        uses : ColumnUses, optional
            How all passes over the log use the columns, which determines the column types. By default, only the use of
            `keys` is known.

        Returns
        -------
        list of LogPart
            The parts, in row order; they can be pickled. In Parquet files, a part is a row group or several small ones.
            In Arrow files, it is a range of record batches. Text files and Arrow streams are one part each.

        Raises
        ------
        LogError
            A file is broken or lacks a column.
        """
        requested = tuple(dict.fromkeys([*columns, *keys]))
        uses = ColumnUses(keys) if uses is None else uses
        for i in range(len(self._sources)):
            self._check_columns(i, [*requested, *self._types])
        readers = self._typed_readers(requested, uses) if self._is_text else self._readers
        types = self._find_types(requested, readers)
        casts = {name: kind for name, kind in self._types.items() if name in requested}
        return [
            LogPart(
                reader,
                span,
                requested,
                frozenset(keys),
                self._build_constants(i, requested, uses, types),
                self._list_columns_to_read(reader, facts, requested),
                (facts.names or [""])[0],
                casts,
                frozenset(uses.times) - casts.keys(),
                frozenset(uses.numbers) - casts.keys(),
            )
            for i, (reader, facts) in enumerate(zip(readers, self._facts, strict=True))
            for span in facts.spans
        ]

    def find_comparison_types(self, columns: Sequence[str], uses: ColumnUses) -> dict[str, pa.DataType]:
        """Return the types in which filters compare columns that are read as text only to keep the spelling of values.

        For example, a slicing column `hour` is read as text, but `hour>12` compares numbers. The result contains
        only columns of this kind.
        """
        stored = {name for facts in self._facts for name in facts.types}
        folders = [n for n in columns if n in self._key_values and n not in stored and uses.is_only_key(n)]
        types = {n: pa.int64() for n in folders if n not in self._types and self._has_integers(n)}
        if not self._is_text:
            return types
        stored_keys = [
            n
            for n in columns
            if n in {*uses.keys, *uses.exact_integers} and all(n in facts.types for facts in self._facts)
        ]
        return types | find_comparison_types(cast("list[TextReader]", self._readers), self._facts, stored_keys, uses)

    def _check_format(self, format_: TextFormat) -> None:
        """Raise an error if the user set an option for CSV or TSV files but the log has another format."""
        first = self._sources[0]
        changed = [
            f"{option}="
            for option, name in _TEXT_OPTIONS.items()
            if getattr(format_, name) != getattr(_DEFAULT_FORMAT, name)
        ]
        if changed and first.format != "text":
            options = ", ".join(changed)
            found = {"json": "JSON lines", "ipc": "Arrow IPC"}.get(first.format, first.format)
            raise LogError(f"{first.file}: expected CSV or TSV because of {options}, found {found}; remove {options}")

    def _make_reader(self, source: LogFile, format_: TextFormat) -> FileReader:
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
            facts = list(pool.map(lambda reader: reader.read_facts(), self._readers))
        # A log may have thousands of files with the same thousand columns. To save memory, store each distinct schema
        # only once.
        shared: dict[pa.Schema, FileFacts] = {}
        first = [shared.setdefault(one.schema, one) for one in facts]
        return [replace(alike, rows=one.rows, spans=one.spans) for alike, one in zip(first, facts, strict=True)]

    @cached_property
    def _key_values(self) -> dict[str, dict[str, str | None]]:
        return collect_key_values(self._sources)

    @cached_property
    def _all_columns(self) -> set[str]:
        """The names of all columns that at least one file has."""
        shared = {id(one.types): one.types for one in self._facts}
        return {*(name for types in shared.values() for name in types), *self._key_values}

    def _column_names(self, i: int) -> dict[str, None]:
        """Return the column names of a file: stored columns first, then partition keys from its folder names."""
        return dict.fromkeys([*self._facts[i].types, *self._sources[i].keys])

    def _stored_type(self, i: int, name: str) -> pa.DataType:
        dtype = self._types.get(name, self._facts[i].types.get(name))
        return self._build_constant(i, name, ColumnUses()).type if dtype is None else dtype

    def _has_integers(self, name: str) -> bool:
        """Return whether all values of a partition key, except nulls, are integers."""
        texts = [text for text in self._key_values[name].values() if text is not None]
        return bool(texts) and all(map(is_integer, texts))

    def _list_columns_to_read(self, reader: FileReader, facts: FileFacts, requested: Sequence[str]) -> tuple[str, ...]:
        """Return the columns to read from a file.

        If a struct field such as `a.b` is requested, but the reader can only read whole structs, the result contains
        the struct `a` instead.
        """
        stored = [name for name in requested if name in facts.types]
        readable = set(stored) if reader.reads_paths else set(facts.names)
        return tuple(dict.fromkeys(name if name in readable else name.partition(".")[0] for name in stored))

    def _find_types(self, requested: Sequence[str], readers: Sequence[FileReader]) -> dict[str, pa.DataType]:
        """Return the type of each requested column.

        For text files, the type is inferred from all files. Otherwise, it is the type in the first file that has the
        column.
        """
        stored = {name: one.types[name] for one in reversed(self._facts) for name in requested if name in one.types}
        return stored | (dict(cast("TextReader", readers[0]).types) if self._is_text else {})

    def _build_constants(
        self, i: int, requested: Sequence[str], uses: ColumnUses, types: Mapping[str, pa.DataType]
    ) -> dict[str, pa.Array]:
        """Return the columns that are constant in a file: partition keys, and nulls for missing columns.

        A stored column takes precedence over a partition key of the same name. `i` is the index of the file,
        `requested` are the columns to read, `uses` describes how they are used, and `types` contains the types of
        missing columns.
        """
        stored, keys = self._facts[i].types, self._sources[i].keys
        return {
            name: self._build_constant(i, name, uses) if name in keys else pa.nulls(1, types.get(name, pa.string()))
            for name in requested
            if name not in stored
        }

    def _build_constant(self, i: int, name: str, uses: ColumnUses) -> pa.Array:
        text = self._key_values[name][self._sources[i].file]
        spelled = name in uses.times or (uses.is_only_key(name) and not self._stores_integers(name))
        numbers = self._has_integers(name) and not spelled and name not in self._types
        value = text if text is None or not numbers else int(text)
        index = pa.array([None if value is None else 0], pa.int32())
        values = pa.array([] if value is None else [value], pa.int64() if numbers else pa.string())
        return pa.DictionaryArray.from_arrays(index, values)

    def _stores_integers(self, name: str) -> bool:
        """Return whether any file stores integers in a column of this name. The result is False for text files."""
        return not self._is_text and any(pa.types.is_integer(one.types.get(name, pa.null())) for one in self._facts)

    def _typed_readers(self, requested: Sequence[str], uses: ColumnUses) -> list[FileReader]:
        stored = [name for name in requested if any(name in facts.types for facts in self._facts)]
        partly = [(i, n) for n in stored for i, facts in enumerate(self._facts) if n not in facts.types]
        in_folders = [(i, name) for i, name in partly if name in self._sources[i].keys]
        folders = {name: self._build_constant(i, name, uses).type.value_type for i, name in in_folders}
        return list(resolve_types(cast("list[TextReader]", self._readers), self._facts, stored, uses, folders))

    def _check_columns(self, i: int, requested: Sequence[str]) -> None:
        names, repeated = self._column_names(i), self._facts[i].repeated
        for name in requested:
            if name not in names and not (self._fills_missing and name in self._all_columns):
                raise LogError(self._describe_missing(i, name))
            if name in repeated:
                raise LogError(
                    f"{self._sources[i].file}: expected one column {name!r}, found {repeated[name]}; rename the other "
                    f"columns"
                )

    def suggest_delimiter(self, i: int = 0) -> str:
        """Return a hint for an error message if file `i` seems to be read with the wrong delimiter.

        That is the case if the header is read as one column whose name contains a common delimiter. Otherwise, return
        an empty string.
        """
        stored = self._facts[i].names
        delimiter = next((mark for mark in (";", "\t", "|", ",") if len(stored) == 1 and mark in stored[0]), None)
        if delimiter is None or self._sources[i].format != "text":
            return ""
        return f"the header is read as one column, {stored[0]!r}; to split the header, pass delimiter={delimiter!r}"

    def _describe_missing(self, i: int, name: str) -> str:
        names = list(self._column_names(i))
        if hint := self.suggest_delimiter(i):
            return f"{self._sources[i].file}: there is no column {name!r}; {hint}"
        lower = {column.lower(): column for column in names}
        close = difflib.get_close_matches(name.lower(), lower, n=1)
        hint = f"; did you mean {lower[close[0]]!r}?" if close else "."
        have = sum(name in self._column_names(j) for j in range(len(self._sources)))
        coverage = f" (found in {have:,} of {len(self._sources):,} files)" if have else ""
        hint = '; pass missing_columns="null" to read nulls instead.' if have else hint
        file, columns = self._sources[i].file, format_names(names)
        return f"{file}: there is no column {name!r}{coverage}{hint} The columns are: {columns}"


def format_names(names: Sequence[str]) -> str:
    """Format column names for a message: at most 40 names, then the number of names left out, if any."""
    more = f" and {len(names) - _MAX_LISTED_NAMES:,} more" if len(names) > _MAX_LISTED_NAMES else ""
    return ", ".join(names[:_MAX_LISTED_NAMES]) + more
