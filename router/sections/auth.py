"""Who may ask, for how much."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from router.sections.limits import Rates
from router.sections.part import Part

DIGEST = re.compile(r"[0-9a-f]{64}")


class ApiKey(Part):
    """`key`, or its SHA-256 in hex as `sha256`, so that the file holds no key."""

    tenant: str = Field("default", min_length=1, max_length=128)
    key: SecretStr | None = None
    sha256: str | None = Field(None, repr=False)
    priority: bool = Field(False, description="may set the priority of its requests")
    weight: float = Field(1.0, gt=0, le=1000, description="its tenant's share when requests wait")
    rates: Rates | None = Field(None, description="instead of limits.caller")

    @model_validator(mode="after")
    def _one_of_both(self) -> ApiKey:
        if (self.key is None) is (self.sha256 is None):
            raise ValueError("expected key or sha256, one of both")
        if self.key is not None and not self.key.get_secret_value():
            raise ValueError("an empty key would let everybody in")
        if self.sha256 is not None and not DIGEST.fullmatch(self.sha256.lower()):
            raise ValueError("sha256: expected 64 hexadecimal digits")
        return self

    def digest(self) -> bytes:
        """The SHA-256 of the key."""
        if self.key is None:
            return bytes.fromhex(self.sha256 or "")
        return sha256(self.key.get_secret_value().encode()).digest()


class Auth(Part):
    tenant_salt: bool = True
    api_keys: tuple[Annotated[ApiKey, BeforeValidator(lambda v: {"key": v} if isinstance(v, str) else v)], ...] = ()

    @field_validator("api_keys")
    @classmethod
    def _all_differ(cls, keys: tuple[ApiKey, ...]) -> tuple[ApiKey, ...]:
        digests = [key.digest() for key in keys]
        if len(set(digests)) < len(digests):
            raise ValueError("the same key is there twice")
        return keys
