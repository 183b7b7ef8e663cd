"""How the fields of a model are read from JSON."""

from __future__ import annotations

import functools
from dataclasses import MISSING, field, fields
from typing import Any, Callable, List, Mapping, Optional, Tuple, Type, TypeVar, cast, get_args, get_type_hints

M = TypeVar("M", bound="Model")
Read = Callable[[Any], Any]
"""Makes a value of what the JSON has."""


def field_of(name: str, default: Any = MISSING, read: Optional[Read] = None) -> Any:
    """A field with another name in the JSON, or with a form of its own. Without a name it is read from the whole."""
    return field(default=default, metadata={"name": name, "read": read})


def raw_field() -> Any:
    """The JSON as it came."""
    return field(default_factory=dict, repr=False, compare=False, metadata={"name": "", "read": None})


class Model:
    """A value that a server tells. Each field is read from the one of its name. One without a default must be there."""

    @classmethod
    def from_json(cls: Type[M], data: Mapping[str, Any]) -> M:
        given = {}
        for name, key, read in _fields_of(cast(Any, cls)):
            value = data.get(key) if key else data
            if value is not None:
                given[name] = value if read is None else read(value)
        return cls(**given)


@functools.lru_cache(maxsize=None)
def _fields_of(cls: Any) -> List[Tuple[str, str, Optional[Read]]]:
    """The fields of a model: their names here and in the JSON, and how they are read."""
    hints = get_type_hints(cls)
    return [
        (one.name, one.metadata.get("name", one.name), one.metadata.get("read") or _reader(hints[one.name]))
        for one in fields(cls)
    ]


def _reader(hint: Any) -> Optional[Read]:
    """How a value of that type is read: models and tuples of them; None is as it came."""
    if isinstance(hint, type) and issubclass(hint, Model):
        return hint.from_json
    args = get_args(hint)
    if type(None) in args:
        return _reader(args[0])
    if args and args[-1] is Ellipsis:
        each = _reader(args[0])
        return tuple if each is None else lambda values: tuple(map(each, values))
    return None
