"""What JSON can hold, as a type. It stands alone because reading a file needs it and must not need JAX."""

from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
