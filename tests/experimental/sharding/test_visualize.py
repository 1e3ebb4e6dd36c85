# SPDX-License-Identifier: Apache-2.0
"""Drawings of meshes and layouts."""

from types import SimpleNamespace

import pytest

from maxjax.experimental.sharding import DeviceMapping, visualize
from tests.experimental.sharding.simulated import P, R, S, U, layout, mesh

line, m = mesh(2), mesh(2, 2)


def drawn(capsys, *args, **kwargs):
    assert visualize(*args, **kwargs) is None
    return capsys.readouterr().out.split("\n")[:-1]


def test_a_mesh(capsys):
    assert drawn(capsys, m) == [
        "DeviceMesh(dp=2, tp=2)",
        "┌────────────┬────────────┐   ├── dp=0",
        "│  device 0  │  device 1  │   │   ├── tp=0  device 0",
        "│ dp=0, tp=0 │ dp=0, tp=1 │   │   └── tp=1  device 1",
        "├────────────┼────────────┤   └── dp=1",
        "│  device 2  │  device 3  │       ├── tp=0  device 2",
        "│ dp=1, tp=0 │ dp=1, tp=1 │       └── tp=1  device 3",
        "└────────────┴────────────┘",
    ]
    assert drawn(capsys, mesh(2, 2, 2), title="t")[:2] == [
        "t: DeviceMesh(dp=2, tp=2, pp=2)", "├── dp=0",
    ]  # fmt: skip
    assert len(drawn(capsys, mesh(2, 2, 2))) == 1 + 2 + 4 + 8


def test_a_grid(capsys):
    text = drawn(capsys, layout([8, 6], m, S(0), S(1)))
    assert text == [
        "DType.float32 [8, 6] with DeviceMapping(DeviceMesh(dp=2, tp=2), "
        "[Sharded(axis=0), Sharded(axis=1)])",
        "┌──────────┬──────────┐   tensor[:, :]",
        "│ device 0 │ device 1 │   ├── dp=0 - tensor[:4, :]",
        "│ [:4, :3] │ [:4, 3:] │   │   ├── tp=0  device 0 - tensor[:4, :3]",
        "├──────────┼──────────┤   │   └── tp=1  device 1 - tensor[:4, 3:]",
        "│ device 2 │ device 3 │   └── dp=1 - tensor[4:, :]",
        "│ [4:, :3] │ [4:, 3:] │       ├── tp=0  device 2 - tensor[4:, :3]",
        "└──────────┴──────────┘       └── tp=1  device 3 - tensor[4:, 3:]",
    ]
    assert drawn(capsys, SimpleNamespace(layout=layout([8, 6], m, S(0), S(1)))) == text


@pytest.mark.parametrize(
    ("shape", "on", "placements", "table"),
    [
        ([10], m, (S(0), S(0)), ["  [:3]   │  [3:6]   │  [6:8]   │   [8:]   "]),
        ([8, 6], m, (S(0), P), ["devices 0,1", "[:4, :] partial", "devices 2,3"]),
        ([8, 6], m, (U, P), ["devices 0,1,2,3", "[:, :] unknown"]),
        ([8, 6], m, (S(1), S(0)), ["device 0 │ device 2", "[:4, :3] │ [:4, 3:]"]),
    ],
)
def test_tables(capsys, shape, on, placements, table):
    text = "\n".join(drawn(capsys, layout(shape, on, *placements), tree=False))
    assert "tensor" not in text
    assert all(words in text for words in table), text


def test_more_than_two_split_axes_have_no_table(capsys):
    text = drawn(capsys, layout([2, 2, 2], mesh(2, 2, 2), S(0), S(1), S(2)), tree=False)
    assert text[1] == "tensor[:, :, :]" and text[-1].endswith("device 7 - tensor[1:, 1:, 1:]")


@pytest.mark.parametrize(
    ("shape", "placement", "leaves"),
    [
        ([5, 4], S(0), ["tensor[:3, :]", "tensor[3:, :]"]),
        (["n", 4], S(0), ["tensor[:n_tp_0, :]", "tensor[n_tp_0:, :]"]),
        ([0], S(0), ["tensor[:0]", "tensor[0:]"]),
        ([1], S(0), ["tensor[:1]", "tensor[1:]"]),
        ([4], P, ["partial sum of tensor[:]"] * 2),
        ([4], U, ["unknown tensor[:]"] * 2),
        ([], R, ["tensor[]"] * 2),
    ],
)
def test_leaves(capsys, shape, placement, leaves):
    text = drawn(capsys, layout(shape, line, placement), blocks=False)[2:]
    assert [t.split(" - ")[1] for t in text] == leaves


def test_branches_say_what_devices_have_together(capsys):
    text = drawn(capsys, layout([10, 6], m, S(0), S(0)), blocks=False)
    assert "├── dp=0 - tensor[:6, :]" in text and "└── dp=1 - tensor[6:, :]" in text
    text = drawn(capsys, layout([8, 6], m, P, S(1)), blocks=False)
    assert "├── dp=0 - partial sum of tensor[:, :]" in text


def test_several_side_by_side(capsys):
    both = {"x": layout([4], line, S(0)), "y": layout([4], m)}
    text = drawn(capsys, both, title="both", blocks=False)
    assert text[0] == "both"
    assert text[1].split("y: ")[0].rstrip() == "x: [4] Sharded(axis=0)"
    assert text[1].endswith("y: [4] Replicated(), Replicated()")
    assert text[3].startswith("├── tp=0  device 0 - tensor[:2]") and text[3].endswith(
        "dp=0 - tensor[:]"
    )
    assert drawn(capsys, {"a": line})[0] == "a: DeviceMesh(tp=2)"


@pytest.mark.parametrize("value", [DeviceMapping(line, (R,)), 3, None, [line], {"a": 3}])
def test_nothing_that_can_be_drawn(value):
    with pytest.raises(TypeError, match="expected a DeviceMesh, a TensorLayout or a Tensor, got"):
        visualize(value)


def test_nothing_to_draw():
    with pytest.raises(ValueError, match="the dict is empty"):
        visualize({})
    with pytest.raises(ValueError, match="leave blocks or tree on"):
        visualize(line, blocks=False, tree=False)
