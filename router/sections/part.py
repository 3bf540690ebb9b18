"""What every section is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

URL_SECRET = re.compile(r"(?<=//)[^/@\s]*(?=@)|(?<=[?&]password=)[^&\s]*")

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Part(BaseModel):
    """Its text shows no secret: neither keys nor what stands before the @ of a URL."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, URL_SECRET.sub("********", value) if isinstance(value, str) else value

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
