"""The pages' templates, which stand beside this file."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


@cache
def template(name: str) -> "jinja2.Template":
    """Return a template by the name of its file; what it is filled with is escaped."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mile.report", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(name)
