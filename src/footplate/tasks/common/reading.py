"""From files, folders and names on the Hub to rows."""

from __future__ import annotations

import codecs
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from footplate.tasks.common.problems import TaskError

if TYPE_CHECKING:
    from footplate.tasks.common.flags import DataFlags, ModelFlags

logger = logging.getLogger(__name__)

SPLITS = ("train", "validation", "test")
FORMS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".txt": "text",
    ".text": "text",
    ".parquet": "parquet",
}
TEXT_FORMS = ("csv", "json", "text")


def files_of(flags: DataFlags) -> dict[str, str]:
    """The files that were given, by split."""
    given = {split: getattr(flags, f"{split}_file", None) for split in SPLITS}
    return {split: path for split, path in given.items() if path}


def check_file(path: str, flag: str, encoding: str | None) -> None:
    """Refuse a file that is missing, empty or, if it is text, not in the encoding that was named."""
    file = Path(path)
    if not file.is_file():
        raise TaskError(f"--{flag} {path}: there is no such file.")
    if not file.stat().st_size:
        raise TaskError(f"--{flag} {path}: the file is empty.")
    if encoding is None:
        return
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
    except LookupError:
        raise TaskError(f"--encoding {encoding}: Python knows no such encoding. Try utf-8.") from None
    with file.open("rb") as blocks:
        num_lines = 1
        while block := blocks.read(1 << 20):
            try:
                num_lines += decoder.decode(block).count("\n")
            except UnicodeDecodeError as error:
                line = num_lines + error.object[: error.start].count(b"\n")
                raise TaskError(
                    f"--{flag} {path}: line {line} is not {encoding}. Name the encoding of the file, such as "
                    "--encoding cp1252 or --encoding cp949."
                ) from None


def read_table(
    path: str, split: str, data: DataFlags, model: ModelFlags, form: str | None = None, **options: Any
) -> Any:
    """The rows of a file.

    Args:
        path: The file; its name tells the form.
        split: What the rows are for.
        data: Encoding, and whether to stream.
        model: Where to keep prepared data.
        form: The form of the file, where its name does not tell.
        **options: Passed to `datasets.load_dataset`.
    """
    form = form or FORMS.get(Path(path).suffix.lower())
    if form is None:
        raise TaskError(f"--{split}_file {path}: the name of a file must end in one of {', '.join(FORMS)}.")
    check_file(path, f"{split}_file", data.encoding if form in TEXT_FORMS else None)
    if form == "csv" and Path(path).suffix.lower() == ".tsv":
        options = {"sep": "\t", "quoting": 3, **options}  # quotes in a tsv are characters like others
    if form in TEXT_FORMS and data.encoding.lower().replace("-", "") != "utf8":
        options["encoding"] = data.encoding
    return load_rows(form, path, data, model, data_files={split: str(path)}, split=split, **options)


def load_rows(form: str, source: str, data: DataFlags, model: ModelFlags, **options: Any) -> Any:
    """What `datasets` reads; if it cannot, an error that names the source."""
    load_dataset = import_datasets().load_dataset
    try:
        rows = load_dataset(form, cache_dir=model.cache_dir, streaming=data.streaming, **options)
    except Exception as error:
        cause = error.__cause__ or error
        raise TaskError(
            f"{source} cannot be read: {type(cause).__name__}: {first_line(cause)}. Check that it is a "
            f"{form} file, with the same columns in every row."
        ) from error
    if not data.streaming and not len(rows):
        raise TaskError(f"{source} has no rows.")
    return rows


def read_generated(
    walk: Callable[..., Iterator[Any]], path: str, data: DataFlags, model: ModelFlags, **options: Any
) -> Any:
    """The rows that a generator reads from a file; made anew if the file changes.

    Args:
        walk: Gives rows; it gets `path`, `encoding`, `changed` (when the file was written) and the options.
        path: The file.
        data: Encoding.
        model: Where to keep prepared data.
        **options: Further arguments of the generator.
    """
    status = Path(path).stat()
    settings = {
        "path": str(Path(path).resolve()),
        "encoding": data.encoding,
        "changed": f"{status.st_mtime_ns} {status.st_size}",
        **options,
    }
    make = import_datasets().Dataset.from_generator
    try:
        return make(walk, gen_kwargs=settings, cache_dir=model.cache_dir)
    except Exception as error:
        if isinstance(error.__cause__, TaskError):  # what the generator says itself
            raise error.__cause__ from None
        raise


def read_hub(data: DataFlags, model: ModelFlags, config: str | None = None) -> dict[str, Any]:
    """All splits of a dataset of the Hub, of the configuration that is named here or by a flag."""
    load_dataset = import_datasets().load_dataset
    try:
        found = load_dataset(
            data.dataset_name,
            config or data.dataset_config_name,
            cache_dir=model.cache_dir,
            token=model.token,
            streaming=data.streaming,
        )
    except Exception as error:
        raise TaskError(
            f"--dataset_name {data.dataset_name} cannot be loaded: {first_line(error)}. Check the name and "
            "the network, or give local files with --train_file and --validation_file."
        ) from error
    return dict(found)


def rename_splits(found: dict[str, Any], names: Mapping[str, str | None]) -> dict[str, Any]:
    """The splits of a dataset under the names that tasks use.

    Args:
        found: The splits by their own names.
        names: What the splits train, validation and test are called in the dataset; None if just that.
    """
    for split, name in names.items():
        if name is None:
            continue
        if name not in found:
            raise TaskError(
                f"--{split}_split_name {name}: there is no such split. There are {sorted(found)}."
            )
        found[split] = found.pop(name)
    return found


def split_off(rows: Any, percentage: int, seed: int | None = None) -> tuple[Any, Any]:
    """The rows to learn from, and a share of them that is taken away to evaluate on.

    Args:
        rows: All rows.
        percentage: The share to take away.
        seed: Take rows by chance; None takes the first ones.
    """
    if not 0 < percentage < 100:
        raise TaskError(f"--validation_split_percentage {percentage}: give a number from 1 to 99.")
    if not hasattr(rows, "__len__"):  # a stream does not know its length: take them out of each hundred
        return (
            rows.filter(lambda row, index: index % 100 >= percentage, with_indices=True),
            rows.filter(lambda row, index: index % 100 < percentage, with_indices=True),
        )
    if len(rows) < 2:
        raise TaskError("One row cannot be split in two sets. Give --validation_file, or more rows.")
    num_taken = min(max(1, round(len(rows) * percentage / 100)), len(rows) - 1)
    if seed is not None:
        parts = rows.train_test_split(test_size=num_taken, seed=seed)
        return parts["train"], parts["test"]
    return rows.select(range(num_taken, len(rows))), rows.select(range(num_taken))


def split_first(rows: Any, percentage: int) -> tuple[Any, Any]:
    """The rows to learn from, and the first ones to evaluate on: that share, rounded down."""
    count = len(rows) * percentage // 100
    if not 0 < count < len(rows):
        raise TaskError(
            f"--validation_split_percentage {percentage} of {len(rows)} rows are {count}. Give another "
            "share, or --validation_file."
        )
    return rows.select(range(count, len(rows))), rows.select(range(count))


def limit_rows(rows: Any, count: int | None) -> Any:
    """The first `count` rows, or all."""
    if count is None:
        return rows
    if not hasattr(rows, "__len__"):
        return rows.take(count)
    return rows.select(range(min(count, len(rows))))


def require_columns(rows: Any, names: Iterable[str | None], where: str, flag: str) -> None:
    """Refuse rows that lack a column.

    Args:
        rows: The rows.
        names: The columns that are needed.
        where: The file or split, for the error.
        flag: The flags that name columns.
    """
    present = list(rows.column_names or [])
    missing = [name for name in names if name is not None and name not in present]
    if missing:
        listed = ", ".join(map(repr, missing))
        raise TaskError(f"{where} has no column {listed}. It has {present}. Name yours with {flag}.")


def import_datasets() -> Any:
    """The package `datasets`."""
    try:
        import datasets
    except ImportError:
        raise TaskError("Tasks read data with the package datasets: pip install footplate[tasks]") from None
    return datasets


def first_line(error: BaseException) -> str:
    """The beginning of an error's text."""
    return next(iter(str(error).strip().splitlines()), "")[:300]
