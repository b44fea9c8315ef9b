"""The C struct of an op's calls: one declaration gives its ctypes class, its values, its addresses and its header.

A kernel's C functions take a pointer to one struct of arguments: sizes and options of the problem, and addresses of its
tensors. Members are declared in the order of the struct, which only ever grows at its end. Their values and comments
come from the problem's declared fields. `call_header` writes the header.
"""

from __future__ import annotations

import ctypes
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.ops.fields import ChoiceType
from tilewright.ops.problem_field import list_declared_fields

if TYPE_CHECKING:
    from tilewright.ops.execution import Tensor

_NUMBERS: Mapping[str, Any] = {"int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "double": ctypes.c_double}
# Fills a member from a problem: the name of a field, or a function.
Value = str | Callable[[Any], Any]
_WORD = 8


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a struct.

    `length` names the constant with the number of elements of an array. `value` is None for addresses, for values
    that follow from tensors, and for members that the launch sets. Without a `doc`, a number has that of its problem
    field.
    """

    name: str
    c_type: str
    doc: str = ""
    length: str = ""
    value: Value | None = None


def declare_number(
    name: str, doc: str = "", *, value: Value | None = None, c_type: str = "int64_t", length: str = ""
) -> Member:
    """A number of the problem: its field of the same name, or another `value`. A field with names is their index."""
    return Member(name, c_type, doc, length, name if value is None else value)


def declare_numbers(*names: str, c_type: str = "int64_t") -> tuple[Member, ...]:
    """Fields of the problem under their own names."""
    return tuple(declare_number(name, c_type=c_type) for name in names)


def declare_pointer(name: str, doc: str = "", *, c_type: str = "const void", length: str = "") -> Member:
    """The address of a tensor, or of each tensor of an array."""
    return Member(name, f"{c_type}*", doc, length)


# Set by the launch: the kernel's S_workspace_size returns the size.
WORKSPACE = (
    Member("workspace", "void*"),
    Member("workspace_size", "uint64_t", "in bytes; S_workspace_size returns the required size"),
)


@dataclass(frozen=True, slots=True)
class TensorStruct:
    """A struct for a tensor with strides: its address, `data`, and numbers."""

    name: str  # without the prefix
    doc: str
    numbers: tuple[str, ...]


@dataclass(frozen=True)
class CallStruct:
    """The struct tw_<op>_args, and the header tilewright_<op>.h.

    `title` and `doc` describe the op in the header. `constants` are macros, by their names without the prefix. Members
    of type `tensor.name` are tensors. `tensors` are those of a problem, and `tensor_values` returns the numbers that
    follow from one of them, by member. `places` returns the members for the addresses of a problem's tensors, in
    their order: `a`, or `d[1]`.
    """

    op: str
    title: str
    doc: str
    problem_type: type
    members: tuple[Member, ...]
    places: Callable[[Any], Sequence[str]]
    constants: Mapping[str, int] = field(default_factory=dict)
    tensor: TensorStruct | None = None
    tensors: Callable[[Any], Sequence[Tensor]] = lambda _: ()
    tensor_values: Callable[[Any, Tensor], Mapping[str, int | Sequence[int]]] = lambda _, __: {}
    abi_version: int = 1

    @property
    def name(self) -> str:
        return f"tw_{self.op}_args"

    @functools.cached_property
    def type(self) -> Any:
        """The ctypes class of the struct."""
        tensor = self._make_tensor_type()
        found: list[tuple[str, Any]] = [("size", ctypes.c_uint64)]
        for member in self.members:
            kind = ctypes.c_void_p if member.c_type.endswith("*") else _NUMBERS.get(member.c_type, tensor)
            found.append((member.name, kind * self.constants[member.length] if member.length else kind))
        return type(self.name, (ctypes.Structure,), {"_fields_": found, "__doc__": self.title})

    def _make_tensor_type(self) -> Any:
        if self.tensor is None:
            return None
        numbers = [(name, ctypes.c_int64) for name in self.tensor.numbers]
        name = f"tw_{self.op}_{self.tensor.name}"
        return type(name, (ctypes.Structure,), {"_fields_": [("data", ctypes.c_void_p), *numbers]})

    def is_tensor(self, member: Member) -> bool:
        """Whether a member is the struct of a tensor."""
        return self.tensor is not None and member.c_type == self.tensor.name

    def make_arguments(self, problem: Any) -> Any:
        """The struct for a problem, without addresses."""
        args = self.type(size=ctypes.sizeof(self.type))
        for name, get_value in self._getters:
            value = get_value(problem)
            if isinstance(value, (tuple, list)):
                getattr(args, name)[: len(value)] = value
            else:
                setattr(args, name, value)
        for tensor in self.tensors(problem):
            for name, found in self.tensor_values(problem, tensor).items():
                setattr(args, name, found if isinstance(found, int) else (None, *found))
        return args

    @functools.cached_property
    def _getters(self) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
        return tuple(
            (member.name, self._make_getter(member.value)) for member in self.members if member.value is not None
        )

    def _make_getter(self, value: Value) -> Callable[[Any], Any]:
        if not isinstance(value, str):
            return value
        get_field = operator.attrgetter(value)
        names = self.list_names(value)
        return (lambda problem: names.index(get_field(problem))) if names else get_field

    def list_names(self, field_name: str) -> tuple[str, ...]:
        """The values of a field that takes names; empty for numbers, and for properties of the problem."""
        declared = list_declared_fields(self.problem_type).get(field_name)
        return declared.kind.values if declared is not None and isinstance(declared.kind, ChoiceType) else ()

    def make_address_setter(self, problem: Any) -> Callable[[Any, Sequence[int]], None]:
        """The function that writes the addresses of a problem's tensors, in their order, into the struct."""
        words = [self.get_offset(place) // _WORD for place in self.places(problem)]
        all_words = ctypes.c_uint64 * (ctypes.sizeof(self.type) // _WORD)

        def set_addresses(args: Any, addresses: Sequence[int]) -> None:
            view = all_words.from_buffer(args)
            for word, address in zip(words, addresses, strict=True):
                view[word] = address

        return set_addresses

    def get_offset(self, place: str) -> int:
        """The offset in bytes of an address: of `a`, `d[1]`, or a tensor's data, which is its first member."""
        name, _, index = place.partition("[")
        offset: int = getattr(self.type, name).offset
        return offset + (int(index.removesuffix("]")) * _WORD if index else 0)
