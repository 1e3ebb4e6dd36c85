# SPDX-License-Identifier: Apache-2.0
"""Queues, events and flags: they wait, or say why they cannot."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from maxjax.driver import CPU, CompletionFlag, DeviceEvent, DeviceQueue


def slow() -> jax.Array:
    """An array that takes a while."""
    x = jax.device_put(np.ones((600, 600), np.float32), CPU().jax)
    return jax.jit(lambda x: jax.lax.fori_loop(0, 30, lambda _, c: jnp.sin(c @ x), x))(x)


def test_a_device_has_one_queue():
    queue = DeviceQueue(CPU())
    assert queue == CPU().default_queue and hash(queue) == hash(CPU().default_queue)
    assert queue != CPU()
    assert queue.device == CPU()
    assert queue.native_stream_handle == 0
    assert repr(queue) == "DeviceQueue(cpu:0)"


@pytest.mark.parametrize("kind", [DeviceQueue, DeviceEvent, CompletionFlag])
def test_they_need_a_device(kind):
    with pytest.raises(TypeError, match=r"expected a Device, .* got str 'cpu'"):
        kind("cpu")


def test_synchronize_waits():
    array = slow()
    CPU().default_queue.synchronize()
    assert array.is_ready()


@pytest.mark.parametrize("other", [CPU(), CPU().default_queue])
def test_wait_for_waits(other):
    array = slow()
    DeviceQueue(CPU()).wait_for(other)
    assert array.is_ready()


def test_an_event_is_a_point_in_the_work():
    event = DeviceEvent(CPU())
    assert event.is_ready()
    array = slow()
    assert CPU().default_queue.record_event(event) is event
    assert event.is_ready() == array.is_ready()
    event.synchronize()
    assert array.is_ready() and event.is_ready()
    assert repr(event) == "DeviceEvent(cpu:0)"


def test_an_event_outlives_an_array_that_is_donated():
    array = slow()
    event = CPU().default_queue.record_event()
    jax.jit(lambda x: x + 1, donate_argnums=0)(array).block_until_ready()
    assert array.is_deleted()
    event.synchronize()
    assert event.is_ready()


def test_a_queue_waits_for_its_own_device_alone(gpus):
    array = jax.device_put(np.ones(3, np.float32), gpus[2].jax)
    assert not any(a is array for a in gpus[1].default_queue.record_event()._pending)
    assert any(a is array for a in gpus[2].default_queue.record_event()._pending)


def test_what_jax_does_not_give(gpus):
    with pytest.raises(RuntimeError, match="measures no time between events"):
        DeviceEvent(CPU(), True).elapsed_time(DeviceEvent(CPU(), True))
    with pytest.raises(RuntimeError, match="does not hand out the streams of Device"):
        _ = gpus[0].default_queue.native_stream_handle
    flag = CompletionFlag(CPU())
    with pytest.raises(RuntimeError, match="cannot wait for a value in the host's memory"):
        CPU().default_queue.wait_for_host_value(flag, 1)
    with pytest.raises(RuntimeError, match="has no address"):
        _ = flag.device_ptr


def test_a_flag_holds_a_number():
    flag = CompletionFlag(CPU())
    assert flag.load() == 0
    flag.signal(4)
    assert flag.load() == 4
    flag.reset()
    assert flag.load() == 0
    with pytest.raises(TypeError):
        flag.signal("x")
