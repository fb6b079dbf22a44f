"""Which machines can be compiled for, and what their chips can do.

No jax at import: the compilers read their variables when jax is imported.
"""

import dataclasses
import importlib.util
import os
import sys


@dataclasses.dataclass(frozen=True)
class Chip:
  """One device as a program sees it. tpu7x has two devices on a chip.

  Rates are the vendors' and never reached; a roofline is a bound, no forecast.
  """

  platform: str  # tpu, cuda, cpu
  flops: float  # bfloat16 matrix operations a second
  memory: float  # bytes that programs may use
  bandwidth: float  # bytes a second between memory and chip
  # Bytes a second out of a chip on one ring: two links of a TPU's torus, all
  # links of a GPU.
  ring: float
  between: float = 0.0  # bytes a second and GPU between hosts; 0: as `ring`


_GIB = 2.0**30
# TPU memory is what the compiler says is left for a program (its refusals name
# it); GPU memory is .9 of the card, which jax preallocates less of by default.
CHIPS = {
  'v5e': Chip('tpu', 197e12, 15.75 * _GIB, 819e9, 2 * 45e9),
  'v5p': Chip('tpu', 459e12, 95.74 * _GIB, 2765e9, 2 * 90e9),
  'v6e': Chip('tpu', 918e12, 31.25 * _GIB, 1640e9, 2 * 90e9),
  'tpu7x': Chip('tpu', 1153e12, 94.75 * _GIB, 3690e9, 2 * 90e9),
  'H100': Chip('cuda', 989e12, 0.9 * 80e9, 3350e9, 450e9, 50e9),
  'H200': Chip('cuda', 989e12, 0.9 * 141e9, 4800e9, 450e9, 50e9),
  'B200': Chip('cuda', 2250e12, 0.9 * 180e9, 8000e9, 900e9, 50e9),
  # Round numbers, so that a report of fake devices has all its fields.
  'cpu': Chip('cpu', 1e11, 16 * _GIB, 1e10, 1e10),
}
# Of every process that compiles for TPUs without having one. The type is read
# and then unused; a second process would abort on the library's lock file.
_TPU = {
  'TPU_SKIP_MDS_QUERY': '1',
  'TPU_WORKER_HOSTNAMES': 'localhost',
  'TPU_ACCELERATOR_TYPE': 'v5p-8',
  'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
}
_NEEDS = {
  'tpu': ('libtpu', 'ahead-tpu'),
  'cuda': ('jax_cuda13_plugin', 'ahead-gpu'),
}


def parse(topology: str) -> tuple[str, Chip, tuple[int, ...]]:
  """('v5p', its chip, (2, 2, 1)) of 'v5p:2x2x1'.

  Raises:
    ValueError: an unknown kind, or sizes that are no sizes.
  """
  kind, _, text = topology.partition(':')
  try:
    sizes = tuple(int(part) for part in text.split('x'))
  except ValueError:
    sizes = ()
  known = kind in CHIPS and sizes and min(sizes) >= 1
  rank = {'cpu': (1,), 'cuda': (3,), 'tpu': (2, 3)}
  if not known or len(sizes) not in rank[CHIPS[kind].platform]:
    raise ValueError(
      f'topology={topology!r} is not understood; give KIND:SIZES as v5e:4x4, '
      'v5p:2x2x1, H200:1x1x8 (slices, hosts, GPUs of a host) or cpu:8; kinds: '
      f'{", ".join(CHIPS)}.'
    )
  return kind, CHIPS[kind], sizes


def prepare(topology: str) -> None:
  """Sets what the compilers read; before jax is imported, once a process.

  Raises:
    ValueError: a topology that is not understood, or no compiler for it here.
    RuntimeError: jax was imported before.
  """
  _, chip, sizes = parse(topology)
  if 'jax' in sys.modules:
    raise RuntimeError(
      'jax is imported already and has read its variables; call prepare first.'
    )
  module, extra = _NEEDS.get(chip.platform, ('jax', ''))
  if importlib.util.find_spec(module) is None:
    raise ValueError(
      f'{topology} needs the compiler in {module}, which is not installed; in '
      f"an environment of its own: pip install '.[{extra}]'."
    )
  os.environ['JAX_PLATFORMS'] = 'cpu'
  if chip.platform == 'cpu':
    os.environ['JAX_NUM_CPU_DEVICES'] = str(sizes[0])
  if chip.platform == 'tpu':
    os.environ.update(_TPU)
  if chip.platform == 'cuda':
    os.environ['JAX_SKIP_CUDA_CONSTRAINTS_CHECK'] = '1'
    # Where no card can be timed, XLA cuts products over k unasked. Their parts, of
    # a few MB, stay in a card's second-level cache, and would count as memory.
    flags = (
      os.environ.get('XLA_FLAGS', ''),
      '--xla_gpu_experimental_force_split_k=1',
    )
    os.environ['XLA_FLAGS'] = ' '.join(filter(None, flags))


def devices(topology: str) -> list:
  """The devices described; they can be compiled for and hold nothing."""
  import jax
  from jax.experimental import topologies

  kind, chip, sizes = parse(topology)
  if chip.platform == 'cpu':
    found = jax.devices()
    if len(found) != sizes[0]:
      raise ValueError(
        f'topology={topology!r}, but jax has {len(found)} devices here.'
      )
    return found
  if chip.platform == 'tpu':
    described = topologies.get_topology_desc(topology, 'tpu')
    return list(described.devices)
  from tandem.kernels.compile_table import targets as cards

  described = topologies.get_topology_desc(
    platform='cuda',
    topology_name=kind,
    target_config=cards.gpu_config(cards.GPUS[kind]),
    topology='x'.join(map(str, sizes)),
  )
  return list(described.devices)
