"""What is wrong with the settings of discovery that only a look at this machine tells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from router.proxy.worker_tls import NOTHING, tls_faults
from router.sections.discovery import Discovery


def discovery_faults(discovery: Discovery, dialects: Sequence[str]) -> list[str]:
    """Each fault with its setting's path. `dialects`: those there are."""
    kubernetes = discovery.kubernetes
    if kubernetes is None:
        return []
    path, faults = "discovery.kubernetes", []
    if kubernetes.kubeconfig is not None and not Path(kubernetes.kubeconfig).is_file():
        faults.append(f"{path}.kubeconfig: there is no file {kubernetes.kubeconfig}")
    dialect = kubernetes.worker.dialect
    if dialect not in dialects:
        known = ", ".join(dialects)
        faults.append(f"{path}.worker.dialect: there is no dialect {dialect!r}; expected one of {known}")
    return faults + tls_faults(kubernetes.worker.fields()["tls"] or NOTHING, f"{path}.worker.tls")
