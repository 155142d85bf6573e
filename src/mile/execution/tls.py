"""Certificates for a Dask cluster whose traffic is encrypted."""

import ssl
from pathlib import Path
from typing import cast

from mile.execution.dask_client import Security


def tls_security(ca: str | Path, cert: str | Path, key: str | Path) -> Security:
    """Return what `DaskBackend(security=...)` takes, from files in PEM format.

    Parameters
    ----------
    ca
        Certificate of the authority that has signed those of scheduler and workers.
    cert, key
        Certificate of this process and its private key.

    Raises
    ------
    ValueError
        If one is not such a file, or key and certificate do not belong together.
    """
    try:
        from distributed.security import Security as Certificates
    except ImportError as error:
        raise ImportError("Running on a Dask cluster needs distributed: pip install 'mile-bnn[dask]'.") from error
    files = {"ca": str(ca), "cert": str(cert), "key": str(key)}
    missing = [f"{name} ({path})" for name, path in files.items() if not Path(path).is_file()]
    if missing:
        raise ValueError(f"there is no file for the TLS {', '.join(missing)}.")
    context = ssl.create_default_context()
    for names, read in (
        ("ca", lambda: context.load_verify_locations(files["ca"])),
        ("cert and key", lambda: context.load_cert_chain(files["cert"], files["key"])),
    ):
        try:
            read()
        except (ssl.SSLError, OSError) as error:
            shown = " and ".join(files[name] for name in names.split(" and "))
            raise ValueError(f"the TLS {names} cannot be used: {shown} ({error}); PEM files are needed.") from None
    found = Certificates(
        tls_ca_file=files["ca"],
        tls_client_cert=files["cert"],
        tls_client_key=files["key"],
        require_encryption=True,
    )
    return cast(Security, found)
