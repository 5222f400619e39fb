"""Prediction logs of any size in batches: Parquet, CSV, TSV, JSON lines, Arrow IPC; on disk or elsewhere; tables."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import cast

import pyarrow as pa

from streammetrics.io.json_lines import JsonReader
from streammetrics.io.listing import find_sources
from streammetrics.io.parts import Part
from streammetrics.io.pipes import STDIN, standard_input
from streammetrics.io.readers import Facts, IpcReader, ParquetReader, Reader
from streammetrics.io.sources import LogError, PathLike, Source, key_values
from streammetrics.io.tables import open_table
from streammetrics.io.text import TextReader, Uses, compared_types, settle_types

__all__ = ["DEFAULT_NULLS", "Log", "LogError", "Part"]

DEFAULT_NULLS = ("", "\\N", "NULL", "null")
"""Spellings of null in text files. "NA" is not one of them: it is the code of Namibia."""

_LISTED = 40  # names in an error message
_FOOTERS_AT_ONCE = 8


class Log:
    """A prediction log: one or many files of one format, never held in memory.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, folders and patterns (`"log/**/*.parquet"`); "-" is standard input, as an Arrow IPC stream, CSV or JSON
        lines. Folders are read recursively; names that start with `.` or
        `_` are left out. Folders named like `country=US` on the way to a file are columns of its rows (integers where
        all values of that key are), unless the file has a column of that name. URLs of files, folders and patterns,
        such as `"s3://bucket/log/*.parquet"`, are read by fsspec; keys and addresses are those that it finds (see there).
        A folder with a `_delta_log` is a Delta table; `"delta:s3://bucket/table"` names one elsewhere,
        `"iceberg:catalog/namespace.table"` or `"iceberg:path/v3.metadata.json"` an Iceberg table, and `"sql:select ..."`
        a query for DuckDB: all are read as they were when they were opened (a query as often as it is asked), by one
        thread.
    delimiter : str, optional
        What separates the values of a text file; default a tab for `.tsv` and a comma for `.csv`.
    nulls : sequence of str
        Spellings of null in text files, where they are not quoted.
    types : mapping of str to str or pyarrow.DataType, optional
        Types of columns of text files. Otherwise the first rows of all files decide: integers and text for keys,
        float64 for other numbers.

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
    ) -> None:
        alone = cast("Sequence[PathLike]", [paths] if isinstance(paths, (str, os.PathLike)) else paths)
        if STDIN in alone and len(alone) > 1:
            raise LogError(f"{STDIN}: standard input is a log of its own; name it alone")
        self._sources = [standard_input()] if STDIN in alone else find_sources(alone)
        self._is_text = self._sources[0].format in ("text", "json")
        asked = {name: _data_type(name, kind) for name, kind in (types or {}).items()}
        if not self._is_text and (asked or delimiter is not None):
            raise LogError(f"{self._sources[0].file}: types= and delimiter= are for text files; this one has its own")
        if delimiter is not None and self._sources[0].format == "json":
            raise LogError(f"{self._sources[0].file}: delimiter= is for CSV and TSV files; JSON lines have none")
        self._types, self._asked = asked, (repr(delimiter), repr(tuple(nulls)))
        self._readers = [self._reader(source, delimiter, tuple(nulls)) for source in self._sources]

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
        return [*self._asked, *(f"{name}: {kind}" for name, kind in sorted(self._types.items()))]

    @property
    def rows(self) -> int | None:
        """Rows of all files together, or None where that takes reading them (text, Arrow streams)."""
        rows = [facts.rows for facts in self._facts]
        return None if None in rows else sum(n for n in rows if n is not None)

    @property
    def columns(self) -> list[str]:
        """Names of the columns that every file has, partition keys included."""
        return list(self.schema.names)

    @property
    def schema(self) -> pa.Schema:
        """Columns that every file has, with their types in the first file; of text files as guessed by Arrow."""
        everywhere = set.intersection(*(set(self._names(i)) for i in range(len(self._sources))))
        return pa.schema([(name, self._stored_type(0, name)) for name in self._names(0) if name in everywhere])

    def parts(self, columns: Sequence[str], keys: Sequence[str] = (), uses: Uses | None = None) -> list[Part]:
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
        for i in range(len(self._sources)):
            self._check_columns(i, [*wanted, *self._types])
        readers = self._readers
        if self._is_text:
            readers = self._typed_readers(wanted, Uses(keys) if uses is None else uses)
        return [
            Part(reader, span, wanted, frozenset(keys), self._constants(i, wanted), (facts.names or [""])[0])
            for i, (reader, facts) in enumerate(zip(readers, self._facts, strict=True))
            for span in facts.spans
        ]

    def compared_types(self, columns: Sequence[str], uses: Uses) -> dict[str, pa.DataType]:
        """Return what columns of text files that are read as text whatever they hold are compared as."""
        if not self._is_text:
            return {}
        both = [n for n in columns if n in {*uses.keys, *uses.exact} and all(n in facts.names for facts in self._facts)]
        schemas = [facts.schema for facts in self._facts]
        return compared_types(cast("list[TextReader]", self._readers), schemas, both, uses)

    def _reader(self, source: Source, delimiter: str | None, nulls: tuple[str, ...]) -> Reader:
        if source.format == "json":
            return JsonReader(source, self._types)
        if source.format == "text":
            return TextReader(source, delimiter or source.delimiter, nulls, self._types)
        if source.table:
            return open_table(source.table)
        if source.format == "parquet":
            return ParquetReader(source.file, source.stamp)
        return IpcReader(source.file, source.pipe)

    @cached_property
    def _facts(self) -> list[Facts]:
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            facts = list(pool.map(lambda reader: reader.facts(), self._readers))
        # Thousands of files with the same thousand columns are to share one schema.
        shared: dict[pa.Schema, Facts] = {}
        first = [shared.setdefault(one.schema, one) for one in facts]
        return [Facts(alike.schema, alike.names, one.rows, one.spans) for alike, one in zip(first, facts, strict=True)]

    @cached_property
    def _key_values(self) -> dict[str, dict[str, int | str | None]]:
        return key_values(self._sources)

    def _names(self, i: int) -> dict[str, None]:
        """Columns of a file, its own first."""
        return dict.fromkeys([*self._facts[i].names, *self._sources[i].keys])

    def _stored_type(self, i: int, name: str) -> pa.DataType:
        facts = self._facts[i]
        return facts.schema.types[facts.names.index(name)] if name in facts.names else self._constant(i, name).type

    def _constants(self, i: int, wanted: Sequence[str]) -> dict[str, pa.Array]:
        """Partition keys of a file; a column of its own goes before, as what was logged is nearer to the truth."""
        own = set(self._facts[i].names)
        return {name: self._constant(i, name) for name in wanted if name not in own}

    def _constant(self, i: int, name: str) -> pa.Array:
        values = self._key_values[name]
        kind = pa.int64() if any(isinstance(value, int) for value in values.values()) else pa.string()
        value = values[self._sources[i].file]
        index = pa.array([None if value is None else 0], pa.int32())
        return pa.DictionaryArray.from_arrays(index, pa.array([] if value is None else [value], kind))

    def _typed_readers(self, wanted: Sequence[str], uses: Uses) -> list[Reader]:
        schemas = [facts.schema for facts in self._facts]
        stored = [name for name in wanted if any(name in facts.names for facts in self._facts)]
        partly = [(i, n) for n in stored for i, facts in enumerate(self._facts) if n not in facts.names]
        folders = {name: self._constant(i, name).type.value_type for i, name in partly}
        return list(settle_types(cast("list[TextReader]", self._readers), schemas, stored, uses, folders))

    def _check_columns(self, i: int, wanted: Sequence[str]) -> None:
        names = self._names(i)
        stored = self._facts[i].names
        for name in wanted:
            if name not in names:
                raise LogError(self._missing(i, name))
            if stored.count(name) > 1:
                raise LogError(f"{self._sources[i].file}: column {name!r} is there {stored.count(name)} times")

    def _missing(self, i: int, name: str) -> str:
        names = list(self._names(i))
        lower = {known.lower(): known for known in names}
        close = difflib.get_close_matches(name.lower(), lower, n=1)
        hint = f"; did you mean {lower[close[0]]!r}?" if close else ""
        have = sum(name in self._names(j) for j in range(len(self._sources)))
        some = f" ({have:,} of {len(self._sources):,} files have it)" if have else ""
        return f"{self._sources[i].file}: no column {name!r}{some}{hint}; there are: {listed(names)}"


def listed(names: Sequence[str]) -> str:
    """Names of columns as a message lists them."""
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _data_type(name: str, kind: str | pa.DataType) -> pa.DataType:
    try:
        return pa.type_for_alias(kind) if isinstance(kind, str) else kind
    except ValueError:
        raise LogError(f"types: {kind!r} of column {name!r} is no Arrow type (try 'string' or 'double')") from None
