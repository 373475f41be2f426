"""What a rehearsal found: each thing that was tried, how it came out, and which settings would mend it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Outcome(str, Enum):
    """How a part of a rehearsal came out."""

    PASSED = "passed"
    WARNING = "warning"
    FAILED = "failed"
    NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Finding:
    """One thing that was tried.

    Args:
        part: What was tried, in a word: "update", "evaluation", "generation", "saving", "disk", "trackers".
        outcome: How it came out.
        text: What was done and seen, or what is wrong.
        settings: What to change, the most likely first; empty where all is well.
    """

    part: str
    outcome: Outcome
    text: str
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = f"{self.outcome.value.upper()}  {self.part}: {self.text}"
        return f"{lines}\n  change: {', '.join(self.settings)}" if self.settings else lines


@dataclass
class CheckReport:
    """All that `Trainer.check()` found; `print` shows it."""

    findings: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.of(Outcome.FAILED)

    def of(self, outcome: Outcome) -> list[Finding]:
        """The findings that came out like this."""
        return [finding for finding in self.findings if finding.outcome is outcome]

    def about(self, part: str) -> list[Finding]:
        """The findings of one part."""
        return [finding for finding in self.findings if finding.part == part]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        findings = [
            {**vars(finding), "outcome": finding.outcome.value, "settings": list(finding.settings)}
            for finding in self.findings
        ]
        return {"ok": self.ok, "seconds": round(self.seconds, 3), "findings": findings}

    def __str__(self) -> str:
        counts = [f"{len(self.of(outcome))} {outcome.value}" for outcome in Outcome if self.of(outcome)]
        passed = [f"{finding.part} ({finding.text})" for finding in self.of(Outcome.PASSED)]
        wanted = [name for finding in self.findings for name in finding.settings]
        lines = [
            f"rehearsed {', '.join(counts) or 'nothing'}, in {self.seconds:.1f} s",
            f"passed    {'; '.join(passed) or 'nothing'}",
            f"change    {', '.join(dict.fromkeys(wanted)) or 'nothing'}",
        ]
        problems = [finding for finding in self.findings if finding.outcome is not Outcome.PASSED]
        return "\n".join([*lines, *map(str, problems)])


def passed(part: str, text: str) -> Finding:
    """A part that came out well."""
    return Finding(part, Outcome.PASSED, text)


def warned(part: str, text: str, settings: Sequence[str] = ()) -> Finding:
    """A part that works, but perhaps not as it was meant."""
    return Finding(part, Outcome.WARNING, text, tuple(settings))


def failed(part: str, text: str, settings: Sequence[str] = ()) -> Finding:
    """A part that would end the run, or lose what it made."""
    return Finding(part, Outcome.FAILED, text, tuple(settings))


def not_tried(part: str, text: str, settings: Sequence[str] = ()) -> Finding:
    """A part that could not be tried."""
    return Finding(part, Outcome.NOT_TRIED, text, tuple(settings))
