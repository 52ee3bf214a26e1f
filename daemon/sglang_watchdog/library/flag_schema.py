"""The body of a `flag` signature: what one launch flag of SGLang does, and when it does nothing.

Kept apart from the other kinds because triage, not the engine, reads it.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class FlagBody(BaseModel):
    """Facts about one flag. Keys beyond these are handed on to triage as they stand."""

    model_config = ConfigDict(extra="allow", frozen=True)

    flag: str = Field(description="The flag as it is typed: --num-continuous-decode-steps")
    field: str = Field(default="", description="Its name in the args dump; default: the flag without dashes")

    def compiled(self) -> dict[str, Any]:
        """Plain data for `model.signature.Signature.flag`."""
        return self.model_dump()
