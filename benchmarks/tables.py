"""The figures of a benchmark as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping

from measure import Result, summarize

EVALUATED = {"fixed": "512 logits a row", "ragged": "4 to 128 tokens a row, 16 logits each"}


def print_times(title: str, raw: dict[str, list[Result]], key: str, unit: str, scale: float) -> None:
    """A table of best and median times; the first job is the yardstick of the ratios."""
    summaries = {label: summarize(results) for label, results in raw.items()}
    yardstick = next(iter(summaries.values()))
    header = [
        "",
        f"CPU best, {unit}",
        "CPU median",
        "above first",
        "CPU ratio",
        f"wall best, {unit}",
        "wall median",
        "wall ratio",
        "loss",
    ]
    rows = [[label, *format_times(summary, yardstick, key, scale)] for label, summary in summaries.items()]
    print_table(
        title, header if any("loss" in summary for summary in summaries.values()) else header[:-1], rows
    )


def format_times(summary: Result, yardstick: Result, key: str, scale: float) -> list[str]:
    """The cells of one job, or its error in the first of them."""
    if "error" in summary:
        return [describe_error(summary)]
    digits = 0 if scale > 1 else 2
    cpu, wall = summary[f"{key}_cpu"], summary[f"{key}_wall"]
    above = ratio = wall_ratio = "-"
    if "error" not in yardstick:
        first_cpu, first_wall = yardstick[f"{key}_cpu"]["best"], yardstick[f"{key}_wall"]["best"]
        above = f"{(cpu['best'] - first_cpu) * scale:+.{digits}f}"
        ratio, wall_ratio = f"{cpu['best'] / first_cpu:.2f}", f"{wall['best'] / first_wall:.2f}"
    cells = [f"{cpu['best'] * scale:.{digits}f}", f"{cpu['median'] * scale:.{digits}f}", above, ratio]
    cells += [f"{wall['best'] * scale:.{digits}f}", f"{wall['median'] * scale:.{digits}f}", wall_ratio]
    return [*cells, f"{summary['loss']['median']:.4f}"] if "loss" in summary else cells


def format_saves(summary: Result, yardstick: Result) -> list[str]:
    """The cells of one library that saves, or its error in the first of them."""
    if "error" in summary:
        return [describe_error(summary)]
    still, ratios = summary["standstill"], ["-", "-"]
    if "error" not in yardstick:
        ratios = [f"{still[key] / yardstick['standstill'][key]:.2f}" for key in ("best", "median")]
    seconds = [f"{summary[key]['median']:.2f}" for key in ("slowest", "added", "update")]
    sizes = [f"{summary[key]['median'] / 1e6:.0f}" for key in ("peak_bytes", "written_bytes")]
    return [f"{still['best']:.2f}", f"{still['median']:.2f}", *ratios, *seconds, *sizes]


def format_kills(counts: Result) -> list[str]:
    """The cells of one library that was killed, or its error in the first of them."""
    if "error" in counts:
        return [f"failed: {counts['error']}".replace("|", "/")]
    error = (counts["errors"] or ["-"])[0].replace("|", "/")
    return [*(str(counts[key]) for key in ("kills", "failed", "differs")), error]


def format_padding(result: Result) -> str:
    """Padding as a percentage, with the share of batch mates that stayed together."""
    if "error" in result:
        return f"failed: {result['error']}".replace("|", "/")
    return f"{result['padding']:.0%} ({result['shared_mates']:.0%})"


def print_table(title: str, header: list[str], rows: list[list[str]], widest: int = 40) -> None:
    """A Markdown table whose columns also line up in a terminal."""
    # an error is longer than any figure and must not stretch its column
    widths = [
        max(len(row[column]) for row in [header, *rows] if column < len(row) and len(row[column]) <= widest)
        for column in range(len(header))
    ]
    lines = [header, ["-" * max(3, width) for width in widths], *rows]
    print(f"\n### {title}\n")
    for line in lines:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)) + " |")


def print_evaluations(kind: str, num_rows: int, raw: Mapping[str, list[Result]]) -> None:
    """Rows per second and memory of one evaluation; ratios to the hand-written loop, more is better."""
    summaries = {label: summarize(results) for label, results in raw.items()}
    yardstick = next(iter(summaries.values()))
    header = ["", "rows/s, CPU best", "CPU median", "ratio", "rows/s, wall best", "wall median", "ratio"]
    rows = []
    for label, summary in summaries.items():
        if "error" in summary:
            rows.append([label, describe_error(summary)])
            continue
        cells = []
        for clock in ("eval_cpu", "eval_wall"):
            cells += [f"{num_rows / summary[clock][key]:,.0f}" for key in ("best", "median")]
            is_known = "error" not in yardstick
            cells.append(f"{yardstick[clock]['best'] / summary[clock]['best']:.2f}" if is_known else "-")
        size = summary["array_bytes"]["best"]
        rows.append([label, *cells, f"{summary['peak_bytes']['median'] / size:.2f}"])
    title = f"Evaluation: {num_rows:,} rows, {EVALUATED[kind]}, batches of 8"
    print_table(title, [*header, "peak memory / result"], rows)


def print_linearity(kind: str, by_size: Mapping[int, Mapping[str, list[Result]]]) -> None:
    """Whether a row of a large set costs as much as one of a small set."""
    small, large = min(by_size), max(by_size)
    rows = []
    for label, results in by_size[large].items():
        few, many = summarize(by_size[small][label]), summarize(results)
        if "error" not in few and "error" not in many:
            ratio = (few["eval_cpu"]["best"] / small) / (many["eval_cpu"]["best"] / large)
            rows.append([label, f"{ratio:.2f}"])
    if rows and small != large:
        header = ["", f"rows/s at {large:,} over {small:,}, CPU best"]
        print_table(f"Linear in the number of batches: {EVALUATED[kind]}", header, rows)


def print_limits(limit: str, raw: Mapping[str, list[Result]]) -> None:
    """What is in memory at the peak when the result goes to a file."""
    header = ["rows", "result, MB", "peak of anonymous pages, MB", "with the file's pages, MB", "rows/s, CPU"]
    rows = []
    for label, results in raw.items():
        summary = summarize(results)
        if "error" in summary:
            rows.append([label, describe_error(summary)])
            continue
        names = ("array_bytes", "anonymous_bytes", "peak_bytes")
        sizes = [f"{summary[name]['median'] / 1e6:.0f}" for name in names]
        speed = int(label.replace(",", "")) / summary["eval_cpu"]["best"]
        rows.append([label, *sizes, f"{speed:,.0f}"])
    print_table(f"Evaluation by footplate with eval_memory_limit={limit!r}", header, rows)


def print_questions(version: str, runs: Mapping[str, Result]) -> None:
    """The evaluations of both libraries, step by step, and what they have to show."""
    from question_answering import check_runs

    errors = [f"{library}: {result['error']}" for library, result in runs.items() if "error" in result]
    if errors:
        print(f"\nqa {version}: FAIL, {'; '.join(errors)}")
        return
    names = ("eval_loss", "EM", "F1", "F1 where there is an answer")
    names = names[: len(next(iter(runs.values()))["evaluations"][0]) - 1]
    header = ["step", *(f"{library}: {name}" for library in runs for name in names)]
    rows = []
    for evaluations in zip(*(result["evaluations"] for result in runs.values()), strict=True):
        cells = [f"{value:.4g}" for _, *values in evaluations for value in values]
        rows.append([str(evaluations[0][0]), *cells])
    train, evaluate, train_features, eval_features = next(iter(runs.values()))["sizes"][0]
    title = f"{train:,} questions ({train_features:,} features) to train on, {evaluate} ({eval_features})"
    print_table(f"Question answering, SQuAD {version}: {title} to evaluate", header, rows)
    for library, result in runs.items():
        cpu, wall = result["update_cpu"][0], result["update_wall"][0]
        print(f"\n{library}: {cpu:.2f} s CPU, {wall:.2f} s wall per update", end="")
    print("\n")
    for claim, holds in check_runs(runs["footplate"], runs["transformers"]).items():
        print(f"{'PASS' if holds else 'FAIL'}  {claim}")


def print_logging(raw: Mapping[str, list[Result]]) -> None:
    """Time per update of each way to log, and what it adds to the first."""
    summaries = {label: summarize(results) for label, results in raw.items()}
    first = next(iter(summaries.values()))
    header = ["", "CPU best, ms", "added", "CPU median, ms", "added", "wall best, ms", "added"]
    header += ["whole run, CPU median, ms", "added"]
    columns = [("step_cpu", "best"), ("step_cpu", "median"), ("step_wall", "best"), ("run_cpu", "median")]
    rows = []
    for label, summary in summaries.items():
        if "error" in summary or "error" in first:
            rows.append([label, describe_error(summary)])
            continue
        cells = []
        for name, key in columns:
            value, base = summary[name][key], first[name][key]
            cells += [f"{1e3 * value:.3f}", f"{value / base - 1:+.1%}"]
        rows.append([label, *cells])
    print_table("One update with the log", header, rows)


def print_packing(raw: Mapping[str, list[Result]]) -> None:
    """Tokens per second of each way to make batches, beside the first; padding does not count."""
    summaries = {label: summarize(results) for label, results in raw.items()}
    first = next(iter(summaries.values()))
    header = ["", "tokens per CPU second, best", "ratio", "median", "ratio", "wall, median", "ratio"]
    header += ["padding", "updates"]
    columns = [("token_cpu", "best"), ("token_cpu", "median"), ("token_wall", "median")]
    rows = []
    for label, summary in summaries.items():
        if "error" in summary or "error" in first:
            rows.append([label, describe_error(summary)])
            continue
        cells = []
        for name, key in columns:
            value, base = summary[name][key], first[name][key]
            cells += [f"{1e3 / value:,.0f}", f"{base / value:.2f}"]
        cells += [f"{summary['padding']['median']:.0%}", f"{summary['num_updates']['median']:.0f}"]
        rows.append([label, *cells])
    print_table("Training on conversations of uneven length", header, rows)


def print_loading(batch_size: int, raw: Mapping[str, list[Result]]) -> None:
    """Rows per second of each number of workers, and what a row costs in all processes together."""
    summaries = {label: summarize(results) for label, results in raw.items()}
    header = ["", "rows per second, median", "best", "CPU of the main process, µs per row", "of all, µs"]
    header.append("loss")
    rows = []
    for label, summary in summaries.items():
        if "error" in summary:
            rows.append([label, describe_error(summary)])
            continue
        wall = summary["row_wall"]
        cells = [f"{1 / wall['median']:,.0f}", f"{1 / wall['best']:,.0f}"]
        cells += [f"{1e6 * summary[key]['median']:.0f}" for key in ("row_cpu", "row_all_cpu")]
        rows.append([label, *cells, f"{summary['loss']['median']:.6f}"])
    print_table(f"Loading a tokenized table, batches of {batch_size}", header, rows)


def describe_error(summary: Result) -> str:
    """What stands in a table for a job that failed."""
    return f"failed in {summary['num_failed']} round(s): {summary['error']}".replace("|", "/")
