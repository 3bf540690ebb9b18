"""What every section is made of."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _absent(cls, given: Any) -> Any:
        """A known name without a value, as in an empty section, is one left out."""
        if not isinstance(given, dict):
            return given
        return {name: value for name, value in given.items() if value is not None or name not in cls.model_fields}


def _not_yet(value: Any) -> Any:
    if value:
        raise ValueError("this is not supported yet; leave it empty")
    return value


Later = Annotated[Any, BeforeValidator(_not_yet)]  # names that the contract reserves; only empty values are taken
