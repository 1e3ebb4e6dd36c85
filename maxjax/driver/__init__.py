# SPDX-License-Identifier: Apache-2.0
"""Devices and the memory on them: ``CPU``, ``Accelerator``, ``Buffer``, virtual devices."""

from maxjax.driver.buffer import Buffer
from maxjax.driver.contents import Usage
from maxjax.driver.device import (
    CPU,
    Accelerator,
    Device,
    accelerator_api,
    accelerator_architecture_name,
    accelerator_count,
    enable_all_peer_access,
)
from maxjax.driver.interchange import DLPackArray
from maxjax.driver.queue import CompletionFlag, DeviceEvent, DeviceQueue
from maxjax.driver.spec import (
    DeviceSpec,
    calculate_virtual_device_count,
    calculate_virtual_device_count_from_cli,
    devices_exist,
    load_devices,
    scan_available_devices,
)
from maxjax.driver.tracing import (
    HostHazardError,
    LaunchTraceEntry,
    SymmetricPool,
    begin_launch_trace,
    launch_trace,
    take_launch_trace,
)
from maxjax.driver.transfers import (
    batch_inplace_copy,
    copy_pinned_to_destinations,
    load_max_buffer,
)
from maxjax.driver.virtual import (
    get_virtual_cpu_target,
    get_virtual_device_api,
    get_virtual_device_count,
    get_virtual_device_target_arch,
    is_virtual_device_mode,
    set_virtual_cpu_target,
    set_virtual_device_api,
    set_virtual_device_count,
    set_virtual_device_target_arch,
)

__all__ = [
    "CPU",
    "Accelerator",
    "Buffer",
    "CompletionFlag",
    "DLPackArray",
    "Device",
    "DeviceEvent",
    "DeviceQueue",
    "DeviceSpec",
    "HostHazardError",
    "LaunchTraceEntry",
    "SymmetricPool",
    "Usage",
    "accelerator_api",
    "accelerator_architecture_name",
    "accelerator_count",
    "batch_inplace_copy",
    "begin_launch_trace",
    "calculate_virtual_device_count",
    "calculate_virtual_device_count_from_cli",
    "copy_pinned_to_destinations",
    "devices_exist",
    "enable_all_peer_access",
    "get_virtual_cpu_target",
    "get_virtual_device_api",
    "get_virtual_device_count",
    "get_virtual_device_target_arch",
    "is_virtual_device_mode",
    "launch_trace",
    "load_devices",
    "load_max_buffer",
    "scan_available_devices",
    "set_virtual_cpu_target",
    "set_virtual_device_api",
    "set_virtual_device_count",
    "set_virtual_device_target_arch",
    "take_launch_trace",
]
