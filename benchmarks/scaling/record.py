"""The numbers measured on this machine, which simulations start from: one file, one entry for each script."""

import datetime
import json
import platform
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("measured.json")


def read() -> dict[str, Any]:
    """Return all entries."""
    return json.loads(PATH.read_text()) if PATH.exists() else {}


def entry(name: str) -> Any:
    """Return one entry."""
    try:
        return read()[name]
    except KeyError:
        raise SystemExit(f"{PATH.name} has no entry {name!r}: run the script of that name first.") from None


def write(name: str, values: Any) -> None:
    """Replace one entry."""
    found = read() | {name: {"date": f"{datetime.date.today()}", "machine": _processor(), "values": values}}
    PATH.write_text(json.dumps(found, indent=1) + "\n")


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
