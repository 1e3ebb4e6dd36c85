# SPDX-License-Identifier: Apache-2.0
"""Graphs that say what each of several devices does, as one graph that all of them run.

A graph over the accelerators 0 to n-1 mostly says the same n times, with collectives between. The
fold groups the ops that are the same on each device: same op, same attributes, operands that are
grouped already. A group is one op of the folded graph, on values of which each device, called a
*lane*, has its own; collectives become ops over the lanes (:mod:`maxjax.lower.lane_ops`). What is
on the host is computed on every lane alike. An op that only some devices have runs on all, and
what the others make of it is not used.

Inputs, weights, constants and what comes from the host are *leaves*: which of them are one value
on all lanes shows by how they are used, so a leaf joins a group when an op that uses it does.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from maxjax.graph.device import DeviceRef
from maxjax.graph.dim import StaticDim
from maxjax.graph.graph import Graph
from maxjax.graph.ir import Block, Node
from maxjax.graph.op import Op, RegionOp, StateOp
from maxjax.graph.ops.buffer import BufferLoad
from maxjax.graph.ops.cast import TransferTo
from maxjax.graph.ops.collective import Allgather, Allreduce, DistributedScatter, Reducescatter
from maxjax.graph.ops.constant import Constant, ConstantExternal
from maxjax.graph.ops.control import Cond, WhileLoop
from maxjax.graph.ops.debug import Print
from maxjax.graph.shape import Shape
from maxjax.graph.type import BufferType, Type
from maxjax.graph.value import Value, make_value
from maxjax.lower.inline import inlined, on_device, op_on, part
from maxjax.lower.lane_ops import (
    LaneConstant,
    LaneGather,
    LaneMove,
    LaneOp,
    LanePick,
    LaneScatter,
    LaneSum,
)
from maxjax.lower.pieces import Piece, Pieces, tiled

__all__ = ["Folded", "NotFolded", "Spread", "accelerators", "fold"]


class NotFolded(Exception):
    """Why a graph is no single program; its text is one sentence."""


@dataclasses.dataclass(frozen=True)
class Spread:
    """Where the values of one input or weight of the folded graph come from.

    Attributes:
        type: The type on one lane.
        everywhere: What all lanes have, if that is the same; else None.
        lanes: What each lane has; lanes without any are not in it.
    """

    type: Type
    everywhere: Any = None
    lanes: Mapping[int, Any] = dataclasses.field(default_factory=dict)

    @property
    def used(self) -> list[Any]:
        """All that is in it."""
        return list(self.lanes.values()) if self.everywhere is None else [self.everywhere]


@dataclasses.dataclass(frozen=True)
class Folded:
    """A graph that all devices run.

    Attributes:
        graph: The graph, of the types of one lane.
        source: What it was folded from.
        devices: The device of each lane.
        inputs: For each input of the graph the numbers of the source's inputs that it stands for.
        weights: For each weight of the graph, by name, the pieces of the source's weights.
        outputs: For each output of the source the number of the graph's output and the lane that
            has it; None for the lane where all have it.
    """

    graph: Graph
    source: Graph
    devices: tuple[DeviceRef, ...]
    inputs: tuple[Spread, ...]
    weights: Mapping[str, Spread]
    outputs: tuple[tuple[int, int | None], ...]

    @property
    def collectives(self) -> list[Node]:
        """The nodes by which lanes hear of each other, in program order."""
        quiet = (LanePick, LaneConstant)
        found = self.graph.body.walk()
        return [n for n in found if isinstance(n.op, LaneOp) and not isinstance(n.op, quiet)]


def accelerators(graph: Graph) -> tuple[DeviceRef, ...]:
    """The accelerators that a graph names, by number; graphs that it calls aside."""
    types = [v.type for v in graph.inputs]
    types += [r.type for node in graph.body.walk() for r in node.results]
    return tuple(sorted({t.device for t in types if t.device.is_gpu()}, key=lambda d: d.id))


@dataclasses.dataclass(eq=False)
class _Leaf:
    """What a lane has to begin with."""

    kind: str
    type: Type  # on the first device
    content: Any


@dataclasses.dataclass(eq=False)
class _Group:
    """A value of the folded graph, and on which lanes it stands for one of the source."""

    value: Value
    lanes: set[int]
    leaves: dict[int, _Leaf] | None = None

    @property
    def kind(self) -> str:
        return next(iter(self.leaves.values())).kind if self.leaves else ""


@dataclasses.dataclass(eq=False)
class _Entry:
    """A node of the folded graph that more lanes may join."""

    node: Node
    operands: tuple[_Group, ...]
    versions: tuple[int, ...]
    lanes: set[int]
    results: list[_Group]


# A value is in a group, on one lane or, for None, on all.
_Place = tuple[_Group, int | None]


def fold(graph: Graph) -> Folded:
    """The one graph that all devices run.

    Args:
        graph: A finished graph over several accelerators.

    Raises:
        NotFolded: If there is none, or it would waste more than it saves.
    """
    return _Fold(graph).run()


class _Fold:
    """One folding of a graph."""

    def __init__(self, source: Graph) -> None:
        self.origin = source
        self.source = inlined(source, lambda call: True, regions=True, parallel=True)
        self.devices = accelerators(self.source)
        self.lane_of = {d: i for i, d in enumerate(self.devices)}
        self.graph = part(self.source, (), (), ())
        self.block = self.graph.body
        self.head: list[Node] = []  # what leaves become
        self.places: dict[int, _Place] = {}
        self.loose: dict[int, tuple[_Leaf, int]] = {}
        self.pieces = Pieces()
        self.root: dict[Any, list[_Entry]] = {}
        self.entries = self.root
        self.leaf_groups: list[_Group] = []
        self.hosted: dict[int, _Group] = {}  # leaves on the host
        self.early: set[int] = set()  # groups on the host that stand before all others
        self.idle: set[int] = set()  # groups of inputs that nothing uses
        # How often each buffer was written: on a lane of the source, and in the folded graph.
        self.written: dict[tuple[int, int | None], int] = {}
        self.emitted: dict[int, int] = {}
        self.writes: list[tuple[_Group, _Entry | None, Node]] = []

    # ------------------------------------------------------------ the whole

    def run(self) -> Folded:
        for i, value in enumerate(self.source.inputs):
            lane = self.lane_of.get(value.type.device)
            leaf = _Leaf("input", self.local(value.type), i)
            if lane is None:
                self.places[id(value)] = self.host_leaf(leaf), None
            else:
                self.loose[id(value)] = leaf, lane
        self.nodes(self.source.body)
        outputs, numbers = [], {}
        found: list[tuple[int, int | None]] = []
        for value in self.source.inputs:
            if id(value) in self.loose:
                self.unused(value)
        for value in self.source.outputs:
            group, lane = self.place(value)
            if id(group) not in numbers:
                numbers[id(group)] = len(outputs)
                outputs.append(group.value)
            found.append((numbers[id(group)], lane))
        self.check_writes()
        inputs, weights = self.leaves()
        self.graph.body.nodes[:0] = self.head
        self.graph.body.outputs = tuple(outputs)
        self.check_waste(weights)
        return Folded(self.graph, self.origin, self.devices, tuple(inputs), weights, tuple(found))

    def leaves(self) -> tuple[list[Spread], dict[str, Spread]]:
        """Turns the groups of leaves into arguments, weights and nodes at the head."""
        inputs: list[tuple[Value, Spread]] = []
        weights: dict[str, Spread] = {}
        declared: list[Node] = []
        picked: list[Node] = []
        for group in [*self.hosted.values(), *self.leaf_groups]:
            leaves = group.leaves or {}
            contents = {lane: leaf.content for lane, leaf in leaves.items()}
            type_, value = group.value.type, group.value
            every = -1 in contents
            kind = group.kind
            if kind == "input":
                spread = Spread(type_, contents[-1]) if every else Spread(type_, None, contents)
                inputs.append((value, spread))
            elif kind == "weight":
                same = every or (
                    len(contents) == len(self.devices) and len(set(contents.values())) == 1
                )
                content = next(iter(contents.values()))
                parts = [content] if same else [contents.get(i) for i in range(len(self.devices))]
                name = _named(parts, weights)
                weights[name] = Spread(type_, content) if same else Spread(type_, None, contents)
                declared.append(self.made(ConstantExternal(name, type_), (), value))
            elif kind == "constant":
                arrays = list(contents.values())
                if every or all(_equal(a, arrays[0]) for a in arrays):
                    device = self.devices[0]
                    picked.append(self.made(Constant(arrays[0], device), (), value))
                else:
                    rows = [contents.get(i, arrays[0]) for i in range(len(self.devices))]
                    picked.append(self.made(LaneConstant(np.stack(rows), type_), (), value))
            else:
                self.picked(group, contents)
        inputs.sort(key=lambda pair: min(pair[1].used))
        self.graph.body.arguments = tuple(v for v, _ in inputs)
        self.head = [*declared, *picked, *self.head]
        return [s for _, s in inputs], weights

    def picked(self, group: _Group, contents: Mapping[int, _Group]) -> None:
        """Makes what the lanes have of the host from what the host has."""
        op, operands = self.choice(contents)
        node = self.made(op, [g.value for g in operands], group.value)
        # Before its first use and after its operands, which are all on the host.
        self.head.append(node)

    def choice(self, groups: Mapping[int, _Group]) -> tuple[Op, list[_Group]]:
        """The op that has on each lane what its group has, and the groups."""
        found = list({id(g): g for g in groups.values()}.values())
        number = {id(g): k for k, g in enumerate(found)}
        n = len(self.devices)
        which = tuple(number[id(groups[i])] if i in groups else 0 for i in range(n))
        return LanePick(which), found

    def made(self, op: Op, operands: Iterable[Value], result: Value) -> Node:
        node = Node(op, tuple(operands))
        node.results = (result,)
        return node

    # ------------------------------------------------------------ what is refused

    def check_writes(self) -> None:
        for group, entry, node in self.writes:
            missing = group.lanes - (entry.lanes if entry else group.lanes)
            if missing:
                raise NotFolded(
                    f"{node.op.mnemonic}{_at(node)} writes a buffer that {self.names(missing)} "
                    "has too, where it is not written"
                )

    def check_waste(self, weights: Mapping[str, Spread]) -> None:
        """Refuses what would cost the lanes much that they do not need."""
        whole = part_ = 0
        worst = ""
        for name, spread in weights.items():
            size = _bytes(spread.type)
            if spread.everywhere is None and len(spread.lanes) < len(self.devices):
                part_ += size
                worst = worst or f"weight {name!r} is on {self.names(spread.lanes)} only"
            else:
                whole += size
        if part_ > max(whole // 4, 1 << 20):
            raise NotFolded(f"{worst}, and would take as much memory on every device")
        own: dict[int, int] = {}
        shared = 0
        for entries in self.all_entries():
            for entry in entries:
                for lane in entry.lanes:
                    own[lane] = own.get(lane, 0) + 1
                shared += 1
        most = max(own.values(), default=0)
        if shared > 2 * most + 16:
            raise NotFolded(
                f"the devices do different things: {shared} ops are on some only, and the device "
                f"with the most has {most}"
            )

    def all_entries(self) -> Iterator[list[_Entry]]:
        yield from self.entries.values()

    def names(self, lanes: Iterable[int]) -> str:
        return ", ".join(str(self.devices[i]) for i in sorted(lanes))

    # ------------------------------------------------------------ places

    def local(self, type_: Type) -> Type:
        """A type on the first device, as the folded graph has it."""
        if type_.device in self.lane_of:
            return on_device(type_, type_.device, self.devices[0])
        return type_

    def lane(self, value: Value) -> int | None:
        return self.lane_of.get(value.type.device)

    def host_leaf(self, leaf: _Leaf) -> _Group:
        group = self.hosted.get(id(leaf))
        if group is None:
            value = make_value(leaf.type, self.graph.body)
            group = _Group(value, set(range(len(self.devices))), {-1: leaf})
            self.hosted[id(leaf)] = group
            self.early.add(id(group))
        return group

    def leaf_group(self, leaf: _Leaf, lane: int) -> _Group:
        group = _Group(make_value(leaf.type, self.graph.body), set(), {})
        self.leaf_groups.append(group)
        self.join_leaf(group, leaf, lane)
        return group

    def unused(self, value: Value) -> None:
        """Puts an input that nothing uses beside others that are like it on other lanes."""
        leaf, lane = self.loose[id(value)]
        for group in self.leaf_groups:
            alike = (group.kind, group.value.type) == (leaf.kind, leaf.type)
            if alike and lane not in group.lanes and id(group) in self.idle:
                del self.loose[id(value)]
                self.join_leaf(group, leaf, lane)
                self.places[id(value)] = group, lane
                return
        self.idle.add(id(self.place(value)[0]))

    def join_leaf(self, group: _Group, leaf: _Leaf, lane: int) -> None:
        assert group.leaves is not None
        group.leaves[lane] = leaf
        group.lanes.add(lane)

    def ready(self, value: Value) -> None:
        """Sees to it that a value has a place or is loose: pieces of weights become leaves."""
        key = id(value)
        if key in self.places or key in self.loose:
            return
        piece = self.pieces.cut(value)
        if piece is None:
            # Looking at a weight in another way costs nothing where it is used.
            node = self.pieces.node(value)
            for operand in node.operands:
                self.ready(operand)
            # Not within a branch or loop that happens to be the first to use it.
            inside = self.block, self.entries
            self.block, self.entries = self.graph.body, self.root
            self.plain(node)
            self.block, self.entries = inside
            return
        leaf = _Leaf("weight", self.local(value.type), piece)
        lane = self.lane(value)
        if lane is None:
            known = [g for g in self.hosted.values() if g.leaves and _same(g.leaves[-1], leaf)]
            self.places[key] = (known[0] if known else self.host_leaf(leaf)), None
        else:
            self.loose[key] = leaf, lane

    def place(self, value: Value) -> _Place:
        """Where a value is; a loose one becomes a group."""
        value = self.pieces.same(value)
        self.ready(value)
        if id(value) in self.loose:
            leaf, lane = self.loose.pop(id(value))
            self.places[id(value)] = self.leaf_group(leaf, lane), lane
        return self.places[id(value)]

    # ------------------------------------------------------------ nodes

    def nodes(self, source: Block) -> None:
        """Folds the nodes of a block into the current one."""
        later = []
        for node in source.nodes:
            if self.pieces.note(node):
                continue
            if self.block is not self.graph.body or not self.first(node):
                later.append(node)
        if self.block is self.graph.body:
            # Before what lanes pick from it.
            self.head, self.block.nodes = self.block.nodes, []
        for node in later:
            self.node(node)

    def first(self, node: Node) -> bool:
        """Folds a node that the host alone can do, before all others; whether it did."""
        if node.regions or isinstance(node.op, Print) or not node.results:
            return False
        if any(r.type.device in self.lane_of for r in node.results):
            return False
        values = (*node.operands, *node.results)
        if any(isinstance(v.type, BufferType) for v in values):
            return False
        for value in node.operands:
            if value in self.pieces and self.lane(value) is None:
                continue
            place = self.places.get(id(value))
            if place is None or place[1] is not None or id(place[0]) not in self.early:
                return False
        for value in node.operands:
            self.ready(value)
        self.plain(node)
        self.early.update(id(self.places[id(r)][0]) for r in node.results)
        return True

    def node(self, node: Node) -> None:
        op = node.op
        if isinstance(op, Print):
            raise NotFolded(f"{op.mnemonic}{_at(node)} prints what one device has")
        if isinstance(op, Constant):
            leaf = _Leaf("constant", self.local(node.results[0].type), op.value)
            lane = self.lane(node.results[0])
            if lane is None:
                self.plain(node)
            else:
                self.loose[id(node.results[0])] = leaf, lane
            return
        for value in node.operands:
            self.ready(value)
        if isinstance(op, TransferTo):
            self.transfer(node)
        elif isinstance(op, WhileLoop):
            self.loop(node)
        elif isinstance(op, Cond):
            self.branch(node)
        elif node.regions:
            raise NotFolded(f"{op.mnemonic}{_at(node)} has a body of its own")
        elif len({r.type.device for r in node.results}) > 1:
            self.crossing(node)
        elif isinstance(op, (Allreduce, Allgather, Reducescatter, DistributedScatter)):
            self.alone(node)
        else:
            self.plain(node)

    def plain(self, node: Node) -> None:
        """A node that is on one lane, or on the host."""
        devices = [r.type.device for r in node.results] or [v.type.device for v in node.operands]
        lanes = {self.lane_of[d] for d in devices if d in self.lane_of}
        lane = lanes.pop() if lanes else None
        loose: dict[int, tuple[_Leaf, int]] = {}
        operands: list[_Group | None] = []
        for value in node.operands:
            own = self.loose.get(id(value))
            if own is not None and own[1] == lane:
                loose[id(value)] = own
                operands.append(None)
            else:
                operands.append(self.visible(self.place(value), lane))
        op = op_on(node.op, self.devices[lane], self.devices[0]) if lane is not None else node.op
        entry = self.joined(op, node, operands, loose, lane)
        if entry is None:
            groups = tuple(
                self.place(v)[0] if g is None else g
                for v, g in zip(node.operands, operands, strict=True)
            )
            entry = self.emit(op, node, groups, lane)
        for value, group in zip(node.results, entry.results, strict=True):
            group.lanes |= entry.lanes
            self.places[id(value)] = group, lane
        self.count_writes(node, entry, lane)

    def visible(self, place: _Place, lane: int | None) -> _Group:
        """A value as a group that has it on a lane, or everywhere."""
        group, home = place
        if home is None or home == lane:
            return group
        return self.broadcast(group, home)

    def key(self, op: Op, node: Node, operands: Sequence[_Group | None]) -> Any:
        same = [id(g) if g is not None and g.leaves is None else 0 for g in operands]
        types = [self.local(v.type) for v in node.operands]
        made = [self.local(v.type) for v in node.results]
        fields = tuple(_hashable(getattr(op, name)) for name in op._names)
        key = (type(op), fields, tuple(same), tuple(types), tuple(made), node.scope)
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def joined(
        self,
        op: Op,
        node: Node,
        operands: Sequence[_Group | None],
        loose: Mapping[int, tuple[_Leaf, int]],
        lane: int | None,
    ) -> _Entry | None:
        """The node of the folded graph that this one is on its lane, if there is one."""
        key = self.key(op, node, operands)
        if lane is None:
            return None if isinstance(op, (RegionOp, StateOp)) else self.again(key, operands)
        for entry in self.entries.get(key, ()) if key is not None else ():
            if lane in entry.lanes or entry.versions != self.versions(node, entry.operands, lane):
                continue
            found = self.fits(entry, node, operands, loose, lane)
            if found is None:
                continue
            for value, group in found.items():
                leaf, _ = self.loose.pop(value)
                self.join_leaf(group, leaf, lane)
                self.places[value] = group, lane
            entry.lanes.add(lane)
            return entry
        return None

    def again(self, key: Any, operands: Sequence[_Group | None]) -> _Entry | None:
        """A node on the host that computes the same of the same."""
        for entry in self.entries.get(key, ()) if key is not None else ():
            if all(a is b for a, b in zip(entry.operands, operands, strict=True)):
                return entry
        return None

    def fits(
        self,
        entry: _Entry,
        node: Node,
        operands: Sequence[_Group | None],
        loose: Mapping[int, tuple[_Leaf, int]],
        lane: int,
    ) -> dict[int, _Group] | None:
        """Which groups the loose operands would join; None if the node is not that of the entry."""
        found: dict[int, _Group] = {}
        for value, own, theirs in zip(node.operands, operands, entry.operands, strict=True):
            if own is not None:
                if own is not theirs:
                    return None
                continue
            leaf = loose[id(value)][0]
            if found.get(id(value)) is theirs:
                continue
            taken = theirs.leaves is None or lane in theirs.lanes or -1 in theirs.leaves
            if taken or id(value) in found or any(g is theirs for g in found.values()):
                return None
            if theirs.kind != leaf.kind or theirs.value.type != leaf.type:
                return None
            found[id(value)] = theirs
        return found

    def emit(self, op: Op, node: Node, groups: tuple[_Group, ...], lane: int | None) -> _Entry:
        """A new node of the folded graph."""
        versions = self.versions(node, groups, lane)
        for group, version in zip(
            [g for g in groups if isinstance(g.value.type, BufferType)], versions, strict=True
        ):
            if self.emitted.get(id(group), 0) != version:
                raise NotFolded(
                    f"{node.op.mnemonic}{_at(node)} uses a buffer in another order than on the "
                    "other devices"
                )
        new = Node(op, tuple(g.value for g in groups), node.location, node.scope)
        new.results = tuple(make_value(self.local(r.type), self.block) for r in node.results)
        self.block.nodes.append(new)
        lanes = set(range(len(self.devices))) if lane is None else {lane}
        results = [_Group(v, set(lanes)) for v in new.results]
        entry = _Entry(new, groups, versions, lanes, results)
        key = self.key(op, node, groups)
        if key is not None:
            self.entries.setdefault(key, []).append(entry)
        if not isinstance(op, BufferLoad):
            for group in groups:
                if isinstance(group.value.type, BufferType):
                    self.emitted[id(group)] = self.emitted.get(id(group), 0) + 1
        return entry

    def versions(self, node: Node, groups: Sequence[_Group], lane: int | None) -> tuple[int, ...]:
        """How often the buffers among the operands were written so far, on this lane."""
        buffers = [g for g in groups if isinstance(g.value.type, BufferType)]
        return tuple(self.written.get((id(g), lane), 0) for g in buffers)

    def count_writes(self, node: Node, entry: _Entry, lane: int | None) -> None:
        if isinstance(node.op, BufferLoad):
            return
        for group in entry.operands:
            if isinstance(group.value.type, BufferType):
                key = id(group), lane
                self.written[key] = self.written.get(key, 0) + 1
                self.writes.append((group, entry if lane is not None else None, node))

    def append(self, op: Op, operands: Sequence[Value], result: Type, like: Node) -> Value:
        """A node that no other joins; gives its result."""
        node = Node(op, tuple(operands), like.location, like.scope)
        node.results = (make_value(result, self.block),)
        self.block.nodes.append(node)
        return node.results[0]

    # ------------------------------------------------------------ between devices

    def broadcast(self, group: _Group, lane: int) -> _Group:
        """A value that every lane has as this one has it."""
        key = "everywhere", id(group), lane
        found = self.entries.get(key)
        if found is None:
            if isinstance(group.value.type, BufferType):
                raise NotFolded("a device uses the buffer of another")
            op = LaneMove(((lane, lane),), everywhere=True)
            like = Node(op, ())
            value = self.append(op, [group.value], group.value.type, like)
            whole = _Group(value, set(range(len(self.devices))))
            found = self.entries[key] = [
                _Entry(self.block.nodes[-1], (group,), (), whole.lanes, [whole])
            ]
        return found[0].results[0]

    def transfer(self, node: Node) -> None:
        (value,), (result,) = node.operands, node.results
        there = self.lane(result)
        if id(value) in self.loose and there is not None:
            leaf, here = self.loose[id(value)]
            if here == there or leaf.kind == "constant":
                self.loose[id(result)] = leaf, there
                return
        group, here = self.place(value)
        if here is None and there is not None:
            if id(group) in self.early:
                leaf = _Leaf("host", self.local(result.type), group)
                self.loose[id(result)] = leaf, there
            else:
                self.places[id(result)] = group, there
        elif here == there or here is None:
            self.places[id(result)] = group, here
        elif there is None:
            self.places[id(result)] = self.broadcast(group, here), None
        else:
            self.moved(node, group, here, there)

    def moved(self, node: Node, group: _Group, here: int, there: int) -> None:
        """What one lane has, on another."""
        value, result = node.operands[0], node.results[0]
        if group.lanes <= {here}:
            # Only one device has it: it is handed out, and the device's own is part of that.
            whole = self.broadcast(group, here)
            self.places[id(result)] = whole, there
            self.places[id(value)] = whole, here
            return
        key = "move", id(group), node.scope
        for entry in self.entries.get(key, ()):
            op = entry.node.op
            assert isinstance(op, LaneMove)
            sources, targets = zip(*op.pairs, strict=True)
            if here not in sources and there not in targets:
                entry.node.op = LaneMove((*op.pairs, (here, there)))
                entry.results[0].lanes.add(there)
                self.places[id(result)] = entry.results[0], there
                return
        op = LaneMove(((here, there),))
        value = self.append(op, [group.value], group.value.type, node)
        made = _Group(value, {there})
        entry = _Entry(self.block.nodes[-1], (group,), (), {there}, [made])
        self.entries.setdefault(key, []).append(entry)
        self.places[id(result)] = made, there

    def crossing(self, node: Node) -> None:
        """An op over several devices."""
        op = node.op
        lanes = [self.lane(r) for r in node.results]
        if isinstance(op, (Allreduce, Allgather, Reducescatter)) and None not in lanes:
            operands = node.operands[: len(lanes)]
            types = {self.local(v.type) for v in operands}
            made = {self.local(r.type) for r in node.results}
            if len(types) == len(made) == 1 and [self.lane(v) for v in operands] == lanes:
                group = self.together(operands, node)
                self.collective(node, group, [i for i in lanes if i is not None])
                return
        self.everywhere(node, lanes)

    def alone(self, node: Node) -> None:
        """An op over several devices of which there is one only."""
        if len(node.results) == 1:
            self.everywhere(node, [self.lane(node.results[0])])
        else:
            self.crossing(node)

    def everywhere(self, node: Node, lanes: Sequence[int | None]) -> None:
        """Every lane has all operands and makes all results, of which it keeps its own."""
        scattered = isinstance(node.op, DistributedScatter)
        operands = [self.visible(self.place(v), None) for v in node.operands]
        if scattered:
            each = -(-len(node.results) // len(node.operands))
            results = [operands[i // each].value for i in range(len(node.results))]
        else:
            new = Node(node.op, tuple(g.value for g in operands), node.location, node.scope)
            new.results = tuple(make_value(self.local(r.type), self.block) for r in node.results)
            self.block.nodes.append(new)
            results = list(new.results)
        groups = [_Group(v, set(range(len(self.devices)))) for v in results]
        types = {self.local(r.type) for r in node.results}
        own = {i: g for i, g in zip(lanes, groups, strict=True) if i is not None}
        if len(types) == 1 and len(own) == len(lanes) > 1:
            whole = groups[0] if len({id(v) for v in results}) == 1 else self.pick(own, node)
            for result, lane in zip(node.results, lanes, strict=True):
                self.places[id(result)] = whole, lane
            if scattered and len(node.operands) == 1:
                # The device that had it has what the others have.
                group, home = self.place(node.operands[0])
                if home is not None and group.lanes <= {home}:
                    self.places[id(node.operands[0])] = whole, home
            return
        for result, group, lane in zip(node.results, groups, lanes, strict=True):
            self.places[id(result)] = group, lane

    def pick(self, groups: Mapping[int, _Group], like: Node) -> _Group:
        """One value that on each lane is that of a group."""
        op, found = self.choice(groups)
        if len(found) == 1:
            return found[0]
        value = self.append(op, [g.value for g in found], found[0].value.type, like)
        return _Group(value, set(groups))

    def together(self, values: Sequence[Value], node: Node) -> _Group:
        """One group of values of several lanes."""
        target: _Group | None = None
        for value in values:
            if id(value) in self.places:
                group = self.places[id(value)][0]
                if group.leaves is not None and -1 not in group.leaves:
                    target = group
                    break
        for value in values:
            if id(value) in self.loose:
                leaf, lane = self.loose[id(value)]
                if target is None:
                    target = self.place(value)[0]
                elif (
                    target.leaves is not None
                    and lane not in target.lanes
                    and (target.kind, target.value.type) == (leaf.kind, leaf.type)
                ):
                    del self.loose[id(value)]
                    self.join_leaf(target, leaf, lane)
                    self.places[id(value)] = target, lane
        groups = {}
        for value in values:
            group, lane = self.place(value)
            assert lane is not None
            groups[lane] = group
        return self.pick(groups, node)

    def collective(self, node: Node, group: _Group, lanes: list[int]) -> None:
        op: Any = node.op
        size, n = op.group_size, len(self.devices)
        parts = tuple(tuple(lanes[i : i + size]) for i in range(0, len(lanes), size))
        axis: Any = getattr(op, "axis", None)
        key = "collective", type(op), axis, id(group), size, node.scope
        for entry in self.entries.get(key, ()):
            if not entry.lanes & set(lanes):
                known: Any = entry.node.op
                entry.node.op = dataclasses.replace(known, groups=(*known.groups, *parts))
                self.shared(node, entry, lanes)
                return
        if isinstance(op, Allreduce):
            new: Op = LaneSum(parts, n)
        else:
            if (n - len(lanes)) % size:
                self.everywhere(node, [self.lane(r) for r in node.results])
                return
            kind = LaneGather if isinstance(op, Allgather) else LaneScatter
            new = kind(axis, parts, n)
        value = self.append(new, [group.value], self.local(node.results[0].type), node)
        made = _Group(value, set(lanes))
        entry = _Entry(self.block.nodes[-1], (group,), (), set(lanes), [made])
        self.entries.setdefault(key, []).append(entry)
        self.shared(node, entry, lanes)

    def shared(self, node: Node, entry: _Entry, lanes: Sequence[int]) -> None:
        entry.lanes.update(lanes)
        entry.results[0].lanes.update(lanes)
        for result, lane in zip(node.results, lanes, strict=True):
            self.places[id(result)] = entry.results[0], lane

    # ------------------------------------------------------------ branches and loops

    def region(
        self, source: Block, slots: Sequence[_Slot], arguments: Sequence[Value]
    ) -> tuple[Block, list[_Place]]:
        """A block of the source, folded; its arguments are those of slots."""
        outer = self.block, self.entries
        self.block, self.entries = Block(self.graph, outer[0]), {}
        try:
            values = []
            for slot in slots:
                value = make_value(slot.type, self.block)
                values.append(value)
                group = _Group(value, set(slot.lanes or range(len(self.devices))))
                for lane, k in slot.members.items():
                    self.places[id(arguments[k])] = group, lane
            self.block.arguments = tuple(values)
            self.nodes(source)
            places = [self.place(v) for v in source.outputs or ()]
            return self.block, places
        finally:
            inner = self.entries
            self.block, self.entries = outer
            # For counting how much is done.
            for key, found in inner.items():
                self.entries[("inner", id(found), id(key))] = found

    def filled(self, slots: Sequence[_Slot], places: Sequence[_Place], like: Node) -> list[_Group]:
        """The group of each slot, of what is in it."""
        found = []
        for slot in slots:
            if None in slot.members:
                group, lane = places[slot.members[None]]
                found.append(self.visible((group, lane), None))
            else:
                own = {lane: places[k][0] for lane, k in slot.members.items() if lane is not None}
                found.append(self.pick(own, like))
        return found

    def slots(self, types: Sequence[Type], places: Sequence[_Place] | None) -> list[_Slot]:
        """Which values of different lanes are one."""
        found: list[_Slot] = []
        for k, type_ in enumerate(types):
            lane = self.lane_of.get(type_.device)
            local = self.local(type_)
            free = [s for s in found if lane is not None and s.takes(local, lane)]
            if places is not None:
                group = places[k][0]
                free.sort(key=lambda s: group not in s.groups)
            slot = free[0] if free else _Slot(local, {}, [])
            if not free:
                found.append(slot)
            slot.members[lane] = k
            if places is not None:
                slot.groups.append(places[k][0])
        return found

    def loop(self, node: Node) -> None:
        values = list(node.operands)
        places = [self.place(v) for v in values]
        slots = self.slots([v.type for v in values], places)
        start = self.filled(slots, places, node)
        test, body = node.regions
        test_block, flags = self.region(test, slots, test.arguments)
        body_block, ends = self.region(body, slots, body.arguments)
        self.within(test_block, lambda: [self.visible(flags[0], None)])
        self.within(body_block, lambda: self.filled(slots, ends, node))
        self.regions(node, WhileLoop(), start, slots, (test_block, body_block))

    def branch(self, node: Node) -> None:
        assert isinstance(node.op, Cond)
        predicate = self.visible(self.place(node.operands[0]), None)
        taken = [self.region(r, (), ()) for r in node.regions]
        slots = self.slots([r.type for r in node.results], taken[0][1])
        for block, ends in taken:
            self.within(block, lambda ends=ends: self.filled(slots, ends, node))
        op = Cond(tuple(s.type for s in slots))
        self.regions(node, op, [predicate], slots, tuple(block for block, _ in taken))

    def within(self, block: Block, outputs: Any) -> None:
        """Ends a block with what a function makes in it."""
        outer = self.block, self.entries
        self.block, self.entries = block, {}
        block.outputs = tuple(g.value for g in outputs())
        self.block, self.entries = outer

    def regions(
        self,
        node: Node,
        op: Op,
        operands: Sequence[_Group],
        slots: Sequence[_Slot],
        blocks: tuple[Block, ...],
    ) -> None:
        given = tuple(g.value for g in operands)
        new = Node(op, given, node.location, node.scope, blocks)
        new.results = tuple(make_value(s.type, self.block) for s in slots)
        self.block.nodes.append(new)
        for slot, value in zip(slots, new.results, strict=True):
            group = _Group(value, set(slot.lanes or range(len(self.devices))))
            for lane, k in slot.members.items():
                self.places[id(node.results[k])] = group, lane


@dataclasses.dataclass(eq=False)
class _Slot:
    """A carried value or result of the folded graph, and which of the source's it is."""

    type: Type
    members: dict[int | None, int]
    groups: list[_Group]

    @property
    def lanes(self) -> set[int]:
        return {lane for lane in self.members if lane is not None}

    def takes(self, type_: Type, lane: int) -> bool:
        return self.type == type_ and lane not in self.members and None not in self.members


def _same(a: _Leaf, b: _Leaf) -> bool:
    return a.kind == b.kind and a.type == b.type and a.content == b.content


def _named(pieces: Sequence[Piece | None], known: Mapping[str, Any]) -> str:
    """A name for what is made of pieces: the weight's own if they are all of it, in order."""
    found = [p for p in pieces if p is not None]
    name = next(found[0].names)
    whole = all(p == found[0] and p.name for p in found) or tiled(pieces) is not None
    if whole and name not in known:
        return name
    return next(n for k in itertools.count(2) if (n := f"{name}#{k}") not in known)


def _hashable(field: Any) -> Any:
    """A field of an op as part of a key: shapes are lists, slices have no hash everywhere."""
    if isinstance(field, (list, tuple)):
        return (len(field), *map(_hashable, field))
    if isinstance(field, slice):
        return slice, field.start, field.stop, field.step
    if isinstance(field, np.ndarray):
        return field.dtype, field.shape, field.tobytes()
    if isinstance(field, dict):
        return tuple((k, _hashable(v)) for k, v in field.items())
    return field


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a is b or (a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


def _bytes(type_: Type) -> int:
    """The size of a weight on one lane; 0 where it is not known."""
    if not all(isinstance(d, StaticDim) for d in type_.shape):
        return 0
    shape: Shape = type_.shape
    return math.prod(int(d) for d in shape) * type_.dtype.size_in_bytes


def _at(node: Node) -> str:
    return f" at {node.location}" if node.location else ""
