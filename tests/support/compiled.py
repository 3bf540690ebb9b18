"""Whether the path of a request runs compiled in these tests: `make test-compiled` runs some of them so."""

import pytest

import router.journey

IS_COMPILED = not router.journey.__file__.endswith(".py")
interpreted = pytest.mark.skipif(IS_COMPILED, reason="it puts a method of its own into the house")
