"""What each field of a manifest may hold: a run may come from anywhere, and everything relies on its manifest."""

from collections.abc import Mapping
from typing import Any

from mile.storage._draws import Layout
from mile.storage._inside import is_listed, is_record

TYPES = {"float32": 4, "float64": 8}  # of draws, and their bytes
_LARGEST = 1 << 62


def wrong_fields(content: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields of a manifest that are not what they should be."""
    files, plan, layout = content["files"], content["plan"], content["layout"]
    right = {
        "seed": is_count(content["seed"]) and content["seed"] < 2**32,
        "fingerprint": isinstance(content["fingerprint"], dict),
        "configuration": isinstance(content["configuration"], dict)
        and is_count(content["configuration"].get("n_chains", 0)),
        "data": isinstance(content["data"], dict),
        "origin": content["origin"] is None or isinstance(content["origin"], dict),
        "plan": plan is None or (isinstance(plan, dict) and all(map(is_count, plan.values()))),
        "layout": layout is None or _is_layout(layout),
        "files": isinstance(files, dict) and all(_is_file(entry) for entry in files.values()),
        "chains": _are_chains(content["chains"], files),
        "previous": _are_chains(content["previous"], files),
        "status": isinstance(content["status"], dict) and _are_words(content["status"].values()),
        "forced": isinstance(content["forced"], list) and _are_words(content["forced"]),
        "finished": isinstance(content["finished"], bool),
    }
    return [name for name, is_right in right.items() if not is_right]


def unknown_files(content: Mapping[str, Any]) -> list[str]:
    """Return the names for which a manifest vouches although no run contains such a file."""
    return [name for name in content["files"] if not is_listed(name)]


def is_count(value: Any) -> bool:
    """Say whether a value is a number that can count something."""
    return type(value) is int and 0 <= value < _LARGEST


def _are_words(values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_file(entry: Any) -> bool:
    is_described = isinstance(entry, dict) and set(entry) == {"bytes", "sha256"}
    return is_described and is_count(entry["bytes"]) and isinstance(entry["sha256"], str)


def _are_chains(chains: Any, files: Any) -> bool:
    is_right = isinstance(chains, dict) and isinstance(files, dict)
    return is_right and all(_is_chain(chain, kinds, files) for chain, kinds in chains.items())


def _is_chain(chain: str, kinds: Any, files: dict[str, Any]) -> bool:
    if not (chain.isascii() and chain.isdigit() and len(chain) < 19 and chain == str(int(chain))):
        return False
    return isinstance(kinds, dict) and all(
        isinstance(name, str) and name in files and is_record(name, int(chain), kind) for kind, name in kinds.items()
    )


def _is_layout(layout: Any) -> bool:
    if not isinstance(layout, dict) or set(layout) != set(Layout._fields):
        return False
    ids, sizes = layout["chain_ids"], [layout[name] for name in ("n_draws", "dimension", "chunk")]
    return (
        isinstance(ids, list)
        and all(map(is_count, ids))
        and len(set(ids)) == len(ids)
        and all(is_count(size) and size > 0 for size in sizes)
        and isinstance(layout["dtype"], str)
        and layout["dtype"] in TYPES
    )
