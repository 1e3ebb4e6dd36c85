# SPDX-License-Identifier: Apache-2.0
"""Compiling and giving weights in two steps, artifacts in sessions, and stores of them."""

import io
import json

import numpy as np
import pytest

from maxjax import engine, export
from maxjax.dtype import DType
from maxjax.engine import (
    ArtifactBodyMismatch,
    CompiledModel,
    InferenceSession,
    MefStore,
    MissingArtifactError,
)
from maxjax.graph import DeviceRef, Graph, Module, TensorType, Weight, ops

CPU = DeviceRef.CPU()
X = np.float32([1, 2, 3])


def graph(name="g", factor=2.0):
    return Graph(name, lambda x: x * factor, [TensorType(DType.float32, ["n"], CPU)])


def weighted():
    w = Weight("w", DType.float32, ["n"], CPU)
    return Graph("weighted", lambda x: x * w, [TensorType(DType.float32, ["n"], CPU)])


def values(model, *args):
    return model(*args)[0].to_numpy().tolist()


@pytest.fixture
def session():
    return InferenceSession()


def test_compile_then_init(session):
    compiled = session.compile(weighted())
    assert repr(compiled) == "CompiledModel(weighted)"
    for factor in (2, 3):  # an artifact can be used again
        model = session.init(compiled, weights_registry={"w": np.full(3, factor, np.float32)})
        assert values(model, X) == (X * factor).tolist()
    with pytest.raises(ValueError, match="missing: w"):
        session.init(compiled)


def test_several_graphs(session):
    module = Module()
    for name, factor in (("a", 2), ("b", 3)):
        Graph(
            name, lambda x, f=factor: x * f, [TensorType(DType.float32, ["n"], CPU)], module=module
        )
    compiled = session.compile_async(module)
    models = session.init_all(compiled)
    assert {n: values(m, X) for n, m in models.items()} == {"a": [2, 4, 6], "b": [3, 6, 9]}
    with pytest.raises(ValueError, match=r"expected one graph, got 2 \(a, b\)"):
        session.init(compiled)
    with pytest.raises(ValueError, match="an artifact is one graph, and these are 2"):
        compiled.export_mef("never.maxjax")


@pytest.mark.parametrize("source", ["path", "stream"])
def test_artifacts_are_written_and_read(session, tmp_path, source):
    path = tmp_path / "m.maxjax"
    session.compile(weighted()).export_mef(path)
    compiled = engine.read(path if source == "path" else io.BytesIO(path.read_bytes()))
    assert isinstance(compiled, CompiledModel)
    model = session.init(compiled, weights_registry={"w": X})
    assert values(model, X) == [1, 4, 9]
    with pytest.raises(ValueError, match="missing: w"):
        session.init(compiled)


def test_an_artifact_is_a_model_with_its_weights(session, tmp_path):
    path = export.save(weighted(), tmp_path / "m.maxjax", weights_registry={"w": X})
    assert values(session.load(path), X) == [1, 4, 9]
    assert values(session.load(str(path), weights_registry={"w": X * 2}), X) == [2, 8, 18]
    assert values(session.load_all(path)["weighted"], X) == [1, 4, 9]


def test_a_model_from_an_artifact_is_saved_again(session, tmp_path):
    path = export.save(weighted(), tmp_path / "m.maxjax", weights_registry={"w": X})
    again = export.save(session.load(path), tmp_path / "again.maxjax")
    assert values(export.load(again), X) == [1, 4, 9]


def test_what_cannot_be_read(tmp_path):
    (tmp_path / "text").write_text("no artifact")
    for source, text in (
        (tmp_path / "none", "No such file"),
        (tmp_path / "text", "no artifact"),
        (io.BytesIO(b"PK\x03\x04"), "damaged"),
        (3, "expected a path or a binary file, got int"),
    ):
        with pytest.raises(RuntimeError, match=text):
            engine.read(source)


def test_prints_are_left_out_with_a_warning(session, tmp_path):
    def build(x):
        ops.print(x, "x")
        return x * 2

    g = Graph("g", build, [TensorType(DType.float32, ["n"], CPU)])
    with pytest.warns(UserWarning, match="1 ops.print are left out") as warned:
        session.compile(g).export_mef(tmp_path / "m.maxjax")
    assert warned[0].filename == __file__
    assert values(export.load(tmp_path / "m.maxjax"), X) == [2, 4, 6]


# ---------------------------------------------------------------- stores


def test_a_run_takes_what_another_wrote(tmp_path):
    values(InferenceSession(export_mefs=tmp_path / "s").load(graph()), X)
    names = sorted(p.name for p in (tmp_path / "s").iterdir())
    assert len(names) == 2 and names[0].startswith("g-") and names[1] == "manifest.json"
    session = InferenceSession(precompiled_mefs=tmp_path / "s")
    # By name and types alone, the body is not compared: this is the artifact's.
    assert values(session.load(graph(factor=5.0)), X) == [2, 4, 6]
    with pytest.raises(MissingArtifactError, match=r"no artifact for graph 'h' .*which has: g"):
        session.load(graph("h"))


def test_a_store_compares_bodies_when_asked(tmp_path):
    InferenceSession(export_mefs=tmp_path).load(graph())
    store = MefStore.for_import(tmp_path, verify_body=True)
    assert store.claim_import(graph()).is_file()
    with pytest.raises(ArtifactBodyMismatch, match="another graph than this 'g'"):
        store.claim_import(graph(factor=3.0))


def test_the_stores_key(tmp_path):
    store = MefStore.for_export(tmp_path, key=lambda g: f"mine-{g.name}")
    assert store.claim_export(graph()) == store.claim_export(graph()) == tmp_path / "mine-g"
    with pytest.raises(RuntimeError, match="two different graphs have the artifact 'mine-g'"):
        store.claim_export(graph(factor=3.0))
    store.write_manifest()
    declines = MefStore.for_import([tmp_path], key=lambda g: None)
    assert declines.claim_import(graph()) is None
    assert values(InferenceSession(precompiled_mefs=declines).load(graph()), X) == [2, 4, 6]


def test_artifacts_that_are_no_graph(tmp_path):
    store = MefStore.for_export(tmp_path)
    store.claim_export_artifact("all.maxjax").write_bytes(b"content")
    store.write_manifest()
    read = MefStore.for_import(tmp_path)
    assert read.artifact("all.maxjax").read_bytes() == b"content"
    with pytest.raises(MissingArtifactError, match=r"'other'.*which has: all\.maxjax"):
        read.artifact("other")
    with pytest.raises(ValueError, match="the store imports"):
        read.claim_export(graph())


def test_the_process_wide_store(tmp_path, monkeypatch):
    monkeypatch.setattr(InferenceSession, "default_mef_store", MefStore.for_export(tmp_path))
    InferenceSession().load(graph())
    assert (tmp_path / "manifest.json").is_file()


def test_several_folders(tmp_path):
    for i, g in enumerate((graph("a"), graph("b"))):
        InferenceSession(export_mefs=tmp_path / str(i)).load(g)
    store = MefStore.for_import([tmp_path / "0", tmp_path / "1"])
    assert store.claim_import(graph("a")).parent.name == "0"
    assert store.claim_import(graph("b")).parent.name == "1"
    InferenceSession(export_mefs=tmp_path / "2").load(graph("a", 7.0))
    with pytest.raises(RuntimeError, match="have different graphs under"):
        MefStore.for_import([tmp_path / "0", tmp_path / "2"])


def test_stores_that_cannot_be(tmp_path):
    with pytest.raises(FileNotFoundError, match="no store was written there"):
        InferenceSession(precompiled_mefs=tmp_path)
    with pytest.raises(ValueError, match="at least one folder"):
        MefStore.for_import([])
    with pytest.raises(ValueError, match="give one of precompiled_mefs and export_mefs"):
        InferenceSession(precompiled_mefs=tmp_path, export_mefs=tmp_path)
    store = MefStore.for_export(tmp_path)
    for name in ("../up", "", "a/b", "c\0"):
        with pytest.raises(ValueError, match="plain file name"):
            store.claim_export_artifact(name)
    for content in ("{", "[]", json.dumps({"graphs": [{"key": "../x"}], "artifacts": []})):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(ValueError, match="is damaged"):
            MefStore.for_import(tmp_path)
