"""Counts the HTTP answers of one text by second, kind of endpoint and status."""

from dataclasses import replace

from ..model.observation import Access, LogObservation, Position
from ..parse.access import Answer


class AnswerCounts:
    """Puts one Access into the output for each second, kind and status, where the first of them stands."""

    def __init__(self) -> None:
        self._at: dict[tuple[int | None, Answer], int] = {}

    def add(self, out: list[LogObservation], at_s: float | None, position: Position, answer: Answer, count: int) -> None:
        second = None if at_s is None else int(at_s // 1)
        at = self._at.get((second, answer))
        if at is None:
            self._at[second, answer] = len(out)
            when_s = None if second is None else float(second)
            out.append(Access(at_s=when_s, position=position, status=answer.status, kind=answer.kind, count=count))
            return
        before = out[at]
        assert isinstance(before, Access)  # the index was kept when it was put there
        out[at] = replace(before, count=before.count + count)
