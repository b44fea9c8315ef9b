"""A LightGBM text model as flat arrays, and its prediction without LightGBM."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.base.document_values import format_value, is_digits, parse_digits
from tilewright.base.documents import FileProblems, convert_read_errors
from tilewright.base.errors import FileProblem, InvalidValueError

# Objectives that do not transform the sum of the trees; others (binary, poisson, …) do.
_IDENTITY = ("regression", "regression_l1", "huber", "fair", "quantile", "lambdarank", "rank_xendcg")
# Bits of `decision_type` in LightGBM's text models (include/LightGBM/tree.h): 1 = categorical, 2 = missing values go
# left, 4 and 8 = what counts as missing (0 nothing, 1 zero, 2 NaN).
_CATEGORICAL, _MISSING_SHIFT, _MISSING_ZERO = 1, 2, 1
# LightGBM treats values this close to zero as zero (kZeroThreshold, a float).
_ZERO = float(np.float32(1e-35))
# Lanes (trees × rows) that are walked at once: the arrays of a step stay in the L2 cache.
_LANES = 1 << 15


@dataclass(frozen=True, eq=False)
class Forest:
    """The trees of one model. A node goes left if its feature is at most its threshold.

    Nodes of all trees are in one array; a negative child is leaf number -1 - child of all leaves. The prediction is the
    sum of one leaf per tree, added in the same order as in LightGBM, so it has the same bits.
    """

    features: tuple[str, ...]
    feature: np.ndarray  # of each node
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    leaf: np.ndarray  # the value of each leaf
    root: np.ndarray  # of each tree: a node, or a leaf encoded as children are
    leaves: np.ndarray  # number of leaves of each tree
    depth: np.ndarray  # of each tree: most nodes on a path to a leaf

    @property
    def trees(self) -> int:
        return len(self.root)

    @property
    def reach(self) -> float:
        """The largest magnitude of a prediction: the sum over the trees of each one's largest leaf."""
        first = np.cumsum(self.leaves) - self.leaves
        with np.errstate(over="ignore"):
            return float(np.maximum.reduceat(np.abs(self.leaf), first).sum()) if self.trees else 0.0

    def iterate_trees(self) -> Iterator[Tree]:
        """The trees one by one, each with its own node and leaf indices."""
        nodes, leaves = 0, 0
        for count in self.leaves:
            own = slice(nodes, nodes + count - 1)
            left, right = (np.where(c[own] >= 0, c[own] - nodes, c[own] + leaves) for c in (self.left, self.right))
            yield Tree(self.feature[own], self.threshold[own], left, right, self.leaf[leaves : leaves + count])
            nodes, leaves = nodes + count - 1, leaves + count

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """One prediction per row; `rows` has a column per feature and no missing values."""
        table = np.ascontiguousarray(rows, dtype=np.float64)
        if table.ndim != 2 or table.shape[1] != len(self.features):
            raise ValueError(f"rows have the shape {table.shape}, expected (rows, {len(self.features)} features)")
        if not np.isfinite(table).all():
            row, column = np.argwhere(~np.isfinite(table))[0]
            raise ValueError(
                f"feature {self.features[column]} of row {row} is {table[row, column]}: must be finite, missing values "
                "are not supported"
            )
        if not self.trees:
            return np.zeros(len(table))
        step = max(1, _LANES // self.trees)
        return np.concatenate(
            [self._predict_rows(table[i : i + step]) for i in range(0, len(table), step)] or [table[:, 0]]
        )

    def _predict_rows(self, table: np.ndarray) -> np.ndarray:
        """Walk all trees for a few rows, one level per step."""
        walk = self._walk
        holds = table[:, walk.feature] > walk.threshold  # row × condition
        above = holds.reshape(-1).view(np.int8)
        offset = np.arange(len(table)) * len(walk.feature)
        place = np.repeat(walk.start[:, None], len(table), axis=1)  # tree × row; deep trees first
        for active in walk.active:
            lanes = place[:active]
            condition = walk.condition.take(lanes)
            condition += offset
            lanes += above.take(condition)
            walk.next.take(lanes, out=lanes, mode="clip")  # "raise", the default, would make a copy
        values = walk.value.take(place.take(walk.order, axis=0))
        # Not `sum`: NumPy adds in pairs, and the last bits would differ from LightGBM's.
        totals: np.ndarray = np.add.accumulate(values, axis=0)[-1]
        return totals

    @cached_property
    def _walk(self) -> _Walk:
        return _build_walk(self)


@dataclass(frozen=True, eq=False)
class _Walk:
    """A forest arranged for walking all trees at once.

    LightGBM puts features into bins, so many nodes have the same condition: each condition is evaluated once per row.
    A position is twice the index of a node; the result of the condition is added, and `next` has the position that
    follows. Leaves lead to themselves.
    """

    feature: np.ndarray  # of each condition
    threshold: np.ndarray
    condition: np.ndarray  # of each position
    next: np.ndarray
    value: np.ndarray  # of each position; 0 if it is not a leaf
    start: np.ndarray  # position of each tree's root, deep trees first
    order: np.ndarray  # index of each tree in `start`
    active: tuple[int, ...]  # number of trees that are deeper than each level


def _build_walk(forest: Forest) -> _Walk:
    nodes = len(forest.feature)
    pairs = np.stack([forest.feature.astype(np.float64), forest.threshold], axis=1)
    asked, number = np.unique(pairs, axis=0, return_inverse=True) if nodes else (np.zeros((1, 2)), np.zeros(0, int))

    def to_index(child: np.ndarray) -> np.ndarray:
        return 2 * np.where(child >= 0, child, nodes - 1 - child)

    following = np.empty(2 * (nodes + len(forest.leaf)), dtype=np.intp)
    following[: 2 * nodes : 2] = to_index(forest.left)
    following[1 : 2 * nodes : 2] = to_index(forest.right)
    following[2 * nodes :] = 2 * (np.arange(2 * nodes, len(following)) // 2)
    condition = np.zeros(len(following), dtype=np.intp)
    condition[: 2 * nodes] = np.repeat(number.reshape(-1), 2)
    value = np.zeros(len(following))
    value[2 * nodes :: 2] = forest.leaf
    deep_first = np.argsort(-forest.depth, kind="stable")
    return _Walk(
        feature=asked[:, 0].astype(np.intp),
        threshold=np.ascontiguousarray(asked[:, 1]),
        condition=condition,
        next=following,
        value=value,
        start=to_index(forest.root)[deep_first],
        order=np.argsort(deep_first),
        active=tuple(int((forest.depth > level).sum()) for level in range(int(forest.depth.max()))),
    )


def read_forest(text: str, features: Sequence[str], source: str = "LightGBM model") -> Forest:
    """Read a text model with these features, in this order. Raises `FileFormatError` with all problems if it needs more
    than plain comparisons."""
    with convert_read_errors(source):
        head, blocks = _split_sections(text)
        faults = FileProblems()
        faults.found += _check_head(head, features)
        trees = [faults.try_call(f"Tree={i}", _parse_tree, block, len(features)) for i, block in enumerate(blocks)]
        faults.raise_any(source)
        return _join_trees(tuple(features), [tree for tree in trees if tree is not None])


def _split_sections(text: str) -> tuple[Mapping[str, str], list[Mapping[str, str]]]:
    """The lines before the first tree, and those of each tree: key → value. Text after the trees is ignored."""
    body = text.partition("\nend of trees")[0]
    head, *blocks = body.split("\nTree=")
    return _parse_pairs(head), [_parse_pairs(block) for block in blocks]


def _parse_pairs(lines: str) -> Mapping[str, str]:
    return {key: value for line in lines.splitlines() for key, _, value in [line.partition("=")]}


def _check_head(head: Mapping[str, str], features: Sequence[str]) -> Iterator[FileProblem]:
    if "tree" not in head or not head.get("version", "").startswith("v"):
        yield FileProblem("", "is not a LightGBM text model: it does not begin with 'tree' and a version")
        return
    if head["version"] not in ("v3", "v4"):
        yield FileProblem("version", f"is {head['version']}, supported: v3, v4")
    for key in ("num_class", "num_tree_per_iteration"):
        if head.get(key) != "1":
            yield FileProblem(key, f"is {head.get(key, 'missing')}, must be 1: one number is predicted")
    if "average_output" in head:
        yield FileProblem("average_output", "random forests are not supported: train a boosted model")
    objective, *options = head.get("objective", "").split()
    if objective not in _IDENTITY or "sqrt" in options:
        known = ", ".join(_IDENTITY)
        yield FileProblem(
            "objective", f"is '{head.get('objective', '')}', which transforms the sum. Supported: {known}"
        )
    own = head.get("feature_names", "").split()
    if own != list(features):
        yield FileProblem("feature_names", _describe_difference(own, list(features)))


def _describe_difference(own: list[str], wanted: list[str]) -> str:
    unknown = [name for name in own if name not in wanted]
    lacking = [name for name in wanted if name not in own]
    if unknown or lacking:
        return f"unknown: {', '.join(unknown) or '(none)'}; missing: {', '.join(lacking) or '(none)'}"
    return "are in the wrong order"


def _check_tree(block: Mapping[str, str], features: int) -> Iterator[str]:
    if block.get("is_linear", "0") != "0":
        yield "has linear leaves, only constant ones are supported"
    if block.get("num_cat") != "0":
        yield f"has num_cat={block.get('num_cat', '(missing)')} categorical splits, only numerical ones are supported"
        return
    leaves = parse_digits("num_leaves", block["num_leaves"])
    lengths = dict.fromkeys(("split_feature", "threshold", "decision_type", "left_child", "right_child"), leaves - 1)
    for key, length in {**lengths, "leaf_value": leaves}.items():
        if len(block.get(key, "").split()) != length:
            yield f"{key} has {len(block.get(key, '').split())} values, {leaves} leaves need {length}"
            return
    for key in ("leaf_value", "threshold"):
        beyond = [word for word in block.get(key, "").split() if not math.isfinite(float(word))]
        if beyond:
            yield f"{key} has {len(beyond)} values that are not finite, the first is {beyond[0]}"
            return
    if leaves == 1:
        return
    for decision in sorted(set(_parse_integers(block, "decision_type"))):
        if decision & _CATEGORICAL or decision >> 4:
            yield f"decision_type {decision} is not a numerical split '<='"
        elif decision >> _MISSING_SHIFT == _MISSING_ZERO:
            yield f"decision_type {decision} treats 0 as a missing value: train with zero_as_missing=false"
    unknown = [number for number in _parse_integers(block, "split_feature") if not 0 <= number < features]
    if unknown:
        yield f"split_feature {unknown[0]} is not below {features}, the number of features"
    ways = [way for key in ("left_child", "right_child") for way in enumerate(_parse_integers(block, key))]
    # A child comes after its parent, so a walk ends; and each node and leaf has exactly one parent.
    each_once = [*range(-leaves, 0), *range(1, leaves - 1)]
    if any(0 <= child <= node for node, child in ways) or sorted(child for _, child in ways) != each_once:
        yield "left_child and right_child do not form a tree"


def _parse_integers(block: Mapping[str, str], key: str) -> list[int]:
    words = block.get(key, "").split()
    if odd := [word for word in words if not is_digits(word.removeprefix("-"))]:
        raise InvalidValueError(f"{key} must have integers, got {format_value(odd[0])}")
    return [int(word) for word in words]


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree: a child is the index of a node, or -1 - leaf if negative."""

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    leaf: np.ndarray

    @property
    def depth(self) -> int:
        """Most nodes on a path to a leaf."""
        level, deepest = (np.zeros(1, dtype=np.intp) if len(self.feature) else np.zeros(0, dtype=np.intp)), 0
        while len(level):
            deepest += 1
            children = np.concatenate([self.left[level], self.right[level]])
            level = children[children >= 0]
        return deepest


def _parse_tree(block: Mapping[str, str], features: int) -> Tree:
    """Check and parse a tree."""
    if problems := list(_check_tree(block, features)):
        raise InvalidValueError("; ".join(problems))

    def read_integers(key: str) -> np.ndarray:
        return np.array(_parse_integers(block, key), dtype=int)

    def read_floats(key: str) -> np.ndarray:
        return np.array([float(word) for word in block.get(key, "").split()], dtype=np.float64)

    return Tree(
        read_integers("split_feature"),
        _apply_zero_band(read_floats("threshold")),
        read_integers("left_child"),
        read_integers("right_child"),
        read_floats("leaf_value"),
    )


def _apply_zero_band(threshold: np.ndarray) -> np.ndarray:
    """Adjust thresholds near zero: LightGBM rounds features near zero to zero before it compares them."""
    moved = np.where(threshold < 0, np.nextafter(-_ZERO, -np.inf), _ZERO)
    decided: np.ndarray = np.where(np.abs(threshold) <= _ZERO, moved, threshold)
    return decided


def _join_trees(features: tuple[str, ...], trees: Sequence[Tree]) -> Forest:
    """Join all trees in one set of arrays, with consecutive indices of nodes and leaves."""
    first_node = np.cumsum([0, *(len(tree.feature) for tree in trees)])
    first_leaf = np.cumsum([0, *(len(tree.leaf) for tree in trees)])

    def move_child(child: np.ndarray, number: int) -> np.ndarray:
        own: np.ndarray = np.where(child >= 0, child + first_node[number], child - first_leaf[number])
        return own

    def join_arrays(parts: Sequence[np.ndarray], kind: type) -> np.ndarray:
        joined: np.ndarray = np.concatenate([np.zeros(0), *parts]).astype(kind)
        return joined

    roots = [move_child(np.array([0 if len(tree.feature) else -1]), i) for i, tree in enumerate(trees)]
    return Forest(
        features=features,
        feature=join_arrays([tree.feature for tree in trees], int),
        threshold=join_arrays([tree.threshold for tree in trees], float),
        left=join_arrays([move_child(tree.left, i) for i, tree in enumerate(trees)], int),
        right=join_arrays([move_child(tree.right, i) for i, tree in enumerate(trees)], int),
        leaf=join_arrays([tree.leaf for tree in trees], float),
        root=join_arrays(roots, int),
        leaves=np.array([len(tree.leaf) for tree in trees], dtype=int),
        depth=np.array([tree.depth for tree in trees], dtype=int),
    )
