"""Trees of decisions as C statements.

Integers are 64-bit and saturate, so that products of huge sizes stay huge; `ARITHMETIC` and `TEXTS` are the C functions
that the statements call. Constants can be left open: statements that differ only in their constants are then equal, and
one C function serves many kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from tilewright.ops.cost_model.expression import format_constant
from tilewright.ops.in_c.trace import CONSTANT, INTEGER, REAL, TRUTH, VARIABLE, Fork, Leaf, TracedNode, TracedRun, Tree
from tilewright.ops.in_c.traced import END, START, Traced

# Marks constants that are still to be written.
_OPEN, _CLOSE = "\x03", "\x04"
_CONSTANT = re.compile(f"{_OPEN}(-?[0-9]+){_CLOSE}")
_PLACEHOLDER = re.compile(f"{START}([0-9]+){END}")
# Numbers in messages, as they are written without separators.
_DIGITS = re.compile(r"(?<![0-9])(0|[1-9][0-9]{0,17})(?![0-9])")
# The only printable characters that C strings must escape; "?" could start a trigraph.
_ESCAPED = {ord('"'): '\\"', ord("\\"): "\\\\", ord("?"): "\\?"}
_TYPES = {INTEGER: "int64_t", REAL: "double", TRUTH: "int"}
_INTEGERS: Mapping[str, str] = {
    "+": "add({}, {})",
    "-": "subtract({}, {})",
    "*": "multiply({}, {})",
    "//": "divide({}, {})",
    "%": "find_remainder({}, {})",
    "negative": "negate({})",
    "maximum": "find_largest({}, {})",
    "minimum": "find_smallest({}, {})",
    "gcd": "find_divisor({}, {})",
    "where": "({} ? {} : {})",
    "round": "(int64_t)nearbyint({})",
}
_REALS: Mapping[str, str] = {
    "+": "({} + {})",
    "-": "({} - {})",
    "*": "({} * {})",
    "/": "({} / {})",
    "//": "floor({} / {})",
    "**": "pow({}, {})",
    "negative": "(-{})",
    "maximum": "find_largest_real({}, {})",
    "minimum": "find_smallest_real({}, {})",
    "where": "({} ? {} : {})",
    "log2": "log2({})",
    "sqrt": "sqrt({})",
    "real": "(double){}",
}

ARITHMETIC = """\
#define LOCAL static __attribute__((unused))

LOCAL int64_t saturate(int negative) { return negative ? INT64_MIN : INT64_MAX; }
LOCAL int64_t add(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? saturate(a < 0) : sum;
}
LOCAL int64_t subtract(int64_t a, int64_t b)
{
    int64_t difference;
    return __builtin_sub_overflow(a, b, &difference) ? saturate(a < 0) : difference;
}
LOCAL int64_t multiply(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? saturate((a < 0) != (b < 0)) : product;
}
LOCAL int64_t negate(int64_t a) { return subtract(0, a); }
/* Rounded down, as in Python. A division by zero is on no way that a problem takes. */
LOCAL int64_t divide(int64_t a, int64_t b)
{
    if(b == 0 || (b == -1 && a == INT64_MIN))
        return saturate(a < 0);
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
LOCAL int64_t find_remainder(int64_t a, int64_t b)
{
    if(b == 0 || b == -1)
        return 0;
    const int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
LOCAL int64_t find_largest(int64_t a, int64_t b) { return a >= b ? a : b; }
LOCAL int64_t find_smallest(int64_t a, int64_t b) { return a <= b ? a : b; }
LOCAL double find_largest_real(double a, double b) { return a >= b ? a : b; }
LOCAL double find_smallest_real(double a, double b) { return a <= b ? a : b; }
LOCAL int64_t find_divisor(int64_t a, int64_t b)
{
    while(b != 0)
    {
        const int64_t rest = a % b;
        a                  = b;
        b                  = rest;
    }
    return a;
}
"""
TEXTS = """\
/* A text that is written part by part, and cut off at the end of its memory. */
typedef struct text {
    char* at;
    char* end; /* the last byte */
} text;

LOCAL void say(text* out, const char* part)
{
    while(*part != '\\0' && out->at < out->end)
        *out->at++ = *part++;
    *out->at = '\\0';
}
/* With a comma between groups of three digits, or without. */
LOCAL void say_integer(text* out, int64_t value, int grouped)
{
    char digits[32];
    char* at      = digits + sizeof(digits) - 1;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    int count     = 0;
    *at           = '\\0';
    do
    {
        if(grouped && count > 0 && count % 3 == 0)
            *--at = ',';
        *--at = (char)('0' + left % 10);
        left /= 10;
        ++count;
    } while(left > 0);
    if(value < 0)
        *--at = '-';
    say(out, at);
}
LOCAL void say_real(text* out, double value)
{
    char digits[32];
    snprintf(digits, sizeof(digits), "%g", value);
    say(out, digits);
}
"""


def write_tree(tree: Tree, write_leaf: Callable[[Leaf], list[str]]) -> list[str]:
    """The statements of a tree, whose leaves are written by a function. Ways with equal statements become one."""
    if isinstance(tree, Leaf):
        return write_leaf(tree)
    ways = [write_tree(way, write_leaf) for way in tree.ways]
    if all(way == ways[0] for way in ways):
        return ways[0]
    if tree.decision.values:
        return _write_switch(tree, ways)
    lines, (condition,) = write_values(tree.trace, [tree.decision.node])
    yes, no = ways
    if not yes:
        made = [f"if(!({_strip(condition)}))", *enclose(no)]
    elif not no:
        made = [f"if({_strip(condition)})", *enclose(yes)]
    elif yes[-1].startswith("return "):
        made = [f"if({_strip(condition)})", *enclose(yes), *no]
    elif no[-1].startswith("return "):
        made = [f"if(!({_strip(condition)}))", *enclose(no), *yes]
    else:
        made = [f"if({_strip(condition)})", *enclose(yes), "else", *enclose(no)]
    if not lines:
        return made
    ends = made[-1].startswith("return ")
    # The last statement stays visible as the end of this one.
    return [*enclose([*lines, *made[:-1]]), made[-1]] if ends and _is_constant(made[-1]) else enclose([*lines, *made])


def _is_constant(line: str) -> bool:
    return re.search(r"\bt[0-9]+\b", line) is None


def _write_switch(tree: Fork, ways: Sequence[list[str]]) -> list[str]:
    """One case for all values with the same statements; a value that is none of them does nothing."""
    node = tree.trace.nodes[tree.decision.node]
    cases: list[tuple[list[int], list[str]]] = []
    for value, way in zip(tree.decision.values, ways, strict=True):
        for values, known in cases:
            if known == way:
                values.append(value)
                break
        else:
            cases.append(([value], way))
    lines = [f"switch({node.value})", "{"]
    for values, way in cases:
        lines += [f"case {value}:" for value in values]
        ends = bool(way) and way[-1].startswith("return ")
        lines += enclose([*way, *([] if ends else ["break;"])])
    return [*lines, "default: break;", "}"]


def write_values(trace: TracedRun, nodes: Iterable[int]) -> tuple[list[str], list[str]]:
    """The definitions of variables for values that are used twice, and the C expression of each node."""
    wanted = list(nodes)
    uses: dict[int, int] = {}
    for number in wanted:
        uses[number] = uses.get(number, 0) + 1
    for number in range(len(trace.nodes) - 1, -1, -1):  # operands come before the nodes that use them
        if number in uses:
            for operand in trace.nodes[number].operands:
                uses[operand] = uses.get(operand, 0) + 1
    texts: dict[int, str] = {}
    lines: list[str] = []
    for number in sorted(uses):
        node = trace.nodes[number]
        text = _write_node(node, texts)
        if node.operands and uses[number] > 1:
            lines.append(f"const {_TYPES[node.type]} t{len(lines)} = {_strip(text)};")
            text = f"t{len(lines) - 1}"
        texts[number] = text
    return lines, [texts[number] for number in wanted]


def _write_node(node: TracedNode, texts: Mapping[int, str]) -> str:
    if node.operation == VARIABLE:
        return str(node.value)
    if node.operation == CONSTANT:
        return f"{_OPEN}{node.value}{_CLOSE}" if node.type != REAL else format_constant(node.value)
    operands = [texts[operand] for operand in node.operands]
    if node.operation == "not":
        return f"!{operands[0]}"
    if node.type == TRUTH:
        return f"({operands[0]} {node.operation} {operands[1]})"
    return (_REALS if node.type == REAL else _INTEGERS)[node.operation].format(*operands)


def write_value(trace: TracedRun, value: object) -> tuple[list[str], str]:
    """A value of a leaf, traced or plain, as definitions and an expression."""
    if isinstance(value, Traced):
        lines, (text,) = write_values(trace, [value.node])
        return lines, _strip(text)
    if isinstance(value, float):
        return [], format_constant(value)
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not a number")
    return [], f"{_OPEN}{int(value)}{_CLOSE}"


def write_assignments(trace: TracedRun, values: Mapping[str, object]) -> list[str]:
    """Statements that assign values to the targets that are their keys."""
    traced = {target: value for target, value in values.items() if isinstance(value, Traced)}
    lines, texts = write_values(trace, [value.node for value in traced.values()])
    found = dict(zip(traced, map(_strip, texts), strict=True))
    made = [f"{target} = {found.get(target) or write_value(trace, value)[1]};" for target, value in values.items()]
    return enclose([*lines, *made]) if lines else made


def write_message(trace: TracedRun, message: str, tables: Mapping[tuple[str, ...], str]) -> list[str]:
    """Statements that write a message with its numbers to `out`. `tables` are the C arrays of names."""
    lines: list[str] = []
    for place, part in enumerate(_PLACEHOLDER.split(message)):
        if place % 2 == 0:
            lines += _write_literal(part)
            continue
        held = trace.placeholders[int(part)]
        defined, (text,) = write_values(trace, [held.node])
        type_ = trace.nodes[held.node].type
        if held.names:
            call = f"say(out, {tables[held.names]}[{text} - 1]);"
        elif type_ == TRUTH:
            call = f'say(out, {text} ? "True" : "False");'
        elif type_ == REAL:
            call = f"say_real(out, {_strip(text)});"
        else:
            call = f"say_integer(out, {_strip(text)}, {1 if held.spec == ',' else 0});"
        lines += enclose([*defined, call]) if defined else [call]
    return lines


def _write_literal(text: str) -> list[str]:
    lines = []
    for place, part in enumerate(_DIGITS.split(text)):
        if place % 2:
            lines.append(f"say_integer(out, {_OPEN}{part}{_CLOSE}, 0);")
        elif part:
            lines.append(f"say(out, {quote_c(part)});")
    return lines


def quote_c(text: str) -> str:
    """A text as a C string literal; other characters than printable ASCII become their UTF-8 bytes in octal."""
    plain = (_ESCAPED.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}") for byte in text.encode())
    return f'"{"".join(plain)}"'


def close_constants(lines: Iterable[str]) -> list[str]:
    """Statements with their constants."""
    return [_CONSTANT.sub(lambda found: _format_integer(int(found[1])), line) for line in lines]


def open_constants(lines: Iterable[str], array: str) -> tuple[list[str], list[str]]:
    """Statements that read their constants from an array, and the elements of the array."""
    constants: list[str] = []

    def replace(found: re.Match[str]) -> str:
        constants.append(_format_integer(int(found[1])))
        return f"{array}[{len(constants) - 1}]"

    return [_CONSTANT.sub(replace, line) for line in lines], constants


def _format_integer(value: int) -> str:
    return str(value) if abs(value) < 2**31 else f"INT64_C({value})"


def indent(lines: Iterable[str], depth: int = 1) -> list[str]:
    return [f"{'    ' * depth}{line}" for line in lines]


def enclose(lines: Sequence[str]) -> list[str]:
    """Statements as a block."""
    return ["{", *indent(lines), "}"]


def _strip(text: str) -> str:
    """An expression without its outer parentheses."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and place < len(text) - 1:
            return text
    return text[1:-1]
