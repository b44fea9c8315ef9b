"""Documents that pydantic models describe. All problems of a document are reported at once, each with its location."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from tilewright.base.document_values import format_value
from tilewright.base.errors import FileFormatError, FileProblem, find_nearest_name

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

    M = TypeVar("M", bound=BaseModel)


def validate_document(path: object, model: type[M], raw: Any, *, strict: bool | None = None) -> M:
    """Validate a document's value. Raises `FileFormatError` with every problem in it."""
    from pydantic import ValidationError  # noqa: PLC0415  (heavy, and few callers need it)

    try:
        return model.model_validate(raw, strict=strict)
    except ValidationError as error:
        raise FileFormatError(path, list_problems(error, model)) from error


def list_problems(error: ValidationError, model: type[BaseModel]) -> list[FileProblem]:
    """Pydantic's errors as file problems. For an unknown key, the nearest known key is suggested."""
    problems = []
    for item in error.errors():
        # For an invalid key of a table, pydantic adds the marker "[key]".
        loc = tuple(part for part in item["loc"] if part != "[key]")
        where = ".".join(str(part) for part in loc)
        what = item["msg"]
        if item["type"] == "extra_forbidden":
            known = _list_known_keys(model, loc[:-1])
            nearest = find_nearest_name(str(loc[-1]), known)
            hint = f" Did you mean '{nearest}'?" if nearest else ""
            what = f"unknown key.{hint} Known: {', '.join(known)}."
        elif item["type"] == "missing":
            what = "missing"
        elif not isinstance(item["input"], dict):
            what = f"{what}, got {format_value(item['input'])}"
        problems.append(FileProblem(where, what))
    return problems


def _list_known_keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    from pydantic import BaseModel  # noqa: PLC0415

    for part in loc:
        field = model.model_fields.get(str(part))
        annotation = field.annotation if field else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return sorted(field.alias or name for name, field in model.model_fields.items())
