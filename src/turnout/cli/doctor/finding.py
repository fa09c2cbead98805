"""What a check of `turnout doctor` found."""

from dataclasses import dataclass

from turnout.cli.formatting import one_line


@dataclass(frozen=True, slots=True)
class Finding:
    """`ok` is None when it is neither good nor bad: not needed, or not there to be checked."""

    what: str
    ok: bool | None
    detail: str
    todo: str = ""

    @property
    def line(self) -> str:
        mark = {True: "✓", False: "✗", None: "–"}[self.ok]
        todo = f"\n               → {self.todo}" if self.todo else ""
        return f"{mark} {self.what.ljust(12)} {one_line(self.detail)}{todo}"
