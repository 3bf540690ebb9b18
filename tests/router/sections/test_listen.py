"""Where clients come in: whoever may name a client's address is named first."""

import pytest
from pydantic import ValidationError

from router.sections.listen import Listen


@pytest.mark.parametrize("network", ["10.0.0.0/8", "10.1.2.3", "fd00::/8", "::1", "10.1.2.3/8"])
def test_a_trusted_proxy_is_an_address_or_a_network(network: str) -> None:
    assert Listen(trusted_proxies=(network,)).trusted_proxies == (network,)


@pytest.mark.parametrize("nonsense", ["", "proxy", "10.0.0.0/40", "10.0.0", "*"])
def test_anything_else_is_refused(nonsense: str) -> None:
    with pytest.raises(ValidationError, match=r"expected an address or a network such as 10\.0\.0\.0/8"):
        Listen(trusted_proxies=(nonsense,))


def test_the_proxy_protocol_needs_somebody_to_trust() -> None:
    with pytest.raises(ValidationError, match="proxy_protocol needs trusted_proxies"):
        Listen(proxy_protocol=True)
    assert Listen(proxy_protocol=True, trusted_proxies=("127.0.0.1",)).proxy_protocol


@pytest.mark.parametrize("origin", ["*", "https://app.example", "http://localhost:3000", "https://[::1]:8443"])
def test_an_origin_is_written_as_browsers_write_it(origin: str) -> None:
    assert Listen(cors_origins=(origin,)).cors_origins == (origin,)


@pytest.mark.parametrize(
    "origin", ["", "app.example", "https://", "https://a/", "https://A.example", "null", "ftp://a", "https://*"]
)
def test_what_no_browser_would_write_is_refused(origin: str) -> None:
    with pytest.raises(ValidationError, match=r"expected \* or an origin such as https://app\.example"):
        Listen(cors_origins=(origin,))
