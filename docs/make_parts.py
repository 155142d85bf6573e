"""Write docs/parts.md, the tables of what can be chosen by name, from the registries: python docs/make_parts.py."""

from pathlib import Path

from mile._registry import REGISTRIES, Registry

PAGE = Path(__file__).with_name("parts.md")
_HEAD = """# What can be chosen by name

Made by `python docs/make_parts.py` from the registries, and a test holds it up to date. Every class is a public name,
such as `mile.Laplace`. [Which sampler](choose-a-sampler.md) says what suits which problem,
[CONTRIBUTING](../CONTRIBUTING.md#adding-a-part) how to add a part.
"""
# Title of a kind's table, and the argument that takes the name or an object.
_KINDS = {
    "likelihood": ("Likelihoods", "`likelihood=`"),
    "prior": ("Priors", "`prior=`"),
    "sampler": ("Samplers", "`sampler=`, `--sampler`"),
    "network": ("Networks", "`network=` takes an object"),
    "encoder": ("Encoders", "`encoder=`"),
    "backend": ("Backends", "`backend=`"),
    "exporter": ("Exporters", "the suffix of the file that `model.export` or `mile export` writes"),
}


def page() -> str:
    """Return the whole page."""
    tables = [_table(registry) for registry in REGISTRIES if registry.declared]
    return "\n".join([_HEAD, *tables])


def _table(registry: Registry) -> str:
    title, argument = _KINDS[registry.kind]
    rows = [
        f"| `{name}` | `{known.__name__}` | {(known.__doc__ or '').splitlines()[0].replace('|', chr(92) + '|')} |"
        for name, known in registry.classes.items()
        if name in registry.declared
    ]
    head = [f"## {title}", "", f"Chosen by: {argument}.", "", "| name | class | what it is |", "|---|---|---|"]
    return "\n".join([*head, *rows, ""])


if __name__ == "__main__":
    PAGE.write_text(page())
