"""The accelerators that we compile for, described: none of them is here.

A TPU is named by its topology, and libtpu knows the rest. A GPU is described to
XLA in full, as a text proto of `stream_executor.GpuTargetConfigProto`: what a
driver would tell of the card.
"""

import os
from typing import NamedTuple

import jax
from jax.experimental import topologies
import numpy as np


class Gpu(NamedTuple):
  """What differs between cards, from the vendor's data sheets and XLA's specs."""

  name: str
  capability: int  # major compute capability, with its accelerated features
  cores: int  # streaming multiprocessors
  memory_bytes: int
  bytes_per_second: int
  l2_bytes: int
  clock_ghz: float


GPUS = {
  'H100': Gpu(
    'NVIDIA H100 80GB HBM3',
    9,
    132,
    84_942_979_072,
    3_352_320_000_000,
    52_428_800,
    1.98,
  ),
  'H200': Gpu(
    'NVIDIA H200 141GB HBM3e',
    9,
    132,
    151_397_597_184,
    4_800_000_000_000,
    52_428_800,
    1.98,
  ),
  'B200': Gpu(
    'NVIDIA B200',
    10,
    148,
    191_514_411_008,
    7_672_320_000_000,
    132_644_864,
    1.965,
  ),
}
TPUS = {'v5e': 'v5e:2x2', 'v5p': 'v5p:2x2x1', 'v6e': 'v6e:2x2'}
TARGETS = (*TPUS, *GPUS)

# The compilers look for the machine that they are on; there is none.
ENVIRONMENT = {
  'tpu': {
    'JAX_PLATFORMS': 'cpu',
    'TPU_SKIP_MDS_QUERY': '1',
    'TPU_WORKER_HOSTNAMES': 'localhost',
    'TPU_ACCELERATOR_TYPE': 'v5p-8',
    'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
  },
  'gpu': {'JAX_SKIP_CUDA_CONSTRAINTS_CHECK': '1', 'JAX_PLATFORMS': 'cpu'},
}


def platform(target: str) -> str:
  """'tpu' or 'gpu'.

  Raises:
    ValueError: no such target.
  """
  if target not in TARGETS:
    raise ValueError(f'target={target!r} is not one of {", ".join(TARGETS)}.')
  return 'tpu' if target in TPUS else 'gpu'


def mesh(target: str) -> jax.sharding.Mesh:
  """One described device, as a mesh of axis 'data'.

  The process' environment must be ENVIRONMENT's since before jax's import, and
  one process serves one target: Mosaic GPU keeps its first.
  """
  if platform(target) == 'tpu':
    topology = topologies.get_topology_desc(TPUS[target], platform='tpu')
  else:
    topology = topologies.get_topology_desc(
      platform='cuda',
      topology_name=target,
      target_config=gpu_config(GPUS[target]),
      topology='1x1x1',
    )
  return jax.sharding.Mesh(np.array(topology.devices)[:1], ('data',))


def environment(target: str) -> dict[str, str]:
  """The environment of a process that compiles for `target`."""
  return os.environ | ENVIRONMENT[platform(target)]


def gpu_config(gpu: Gpu) -> str:
  """The text proto by which XLA knows a card."""
  return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: {gpu.cores}
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  memory_bandwidth: {gpu.bytes_per_second}
  l2_cache_size: {gpu.l2_bytes}
  clock_rate_ghz: {gpu.clock_ghz}
  device_memory_size: {gpu.memory_bytes}
  cuda_compute_capability {{
    major: {gpu.capability}
    feature_extension: ACCELERATED_FEATURES
  }}
  device_vendor: "NVIDIA Corporation"
  platform_version: "Compute Capability {gpu.capability}.0a"
  name: "{gpu.name}"
  driver_version: "13.0.0"
  runtime_version: "13.0.0"
  compile_time_toolkit_version: "13.0.0"
  dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
device_description_str: "{gpu.name}"
"""
