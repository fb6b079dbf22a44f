"""How fast a chip could run what was counted: bounds, and which one binds."""

from collections.abc import Sequence
import dataclasses
import math

from tandem import types
from tandem.ahead import collectives as collectives_lib
from tandem.ahead import count as count_lib
from tandem.ahead import shapes as shapes_lib
from tandem.ahead import targets


@dataclasses.dataclass(frozen=True)
class Seconds:
  """Of one run of a program, on each device.

  `total` lets memory hide behind products or the reverse, and hides nothing of
  the network; `overlapped` hides the network too.
  """

  compute: float
  memory: float
  network: float

  @property
  def total(self) -> float:
    return max(self.compute, self.memory) + self.network

  @property
  def overlapped(self) -> float:
    return max(self.compute, self.memory, self.network)

  @property
  def bound(self) -> str:
    """The largest of the three."""
    return max(('compute', 'memory', 'network'), key=lambda x: getattr(self, x))


def seconds(
  chip: targets.Chip,
  devices: int,
  counted: count_lib.Count,
  moved: float,
  sent: Sequence[collectives_lib.Collective],
  *,
  attention_utilisation: float = 1.0,
  of_host: int = 0,
) -> Seconds:
  """A program's bounds.

  Args:
    chip: its rates.
    devices: that share the operations evenly.
    counted: operations of all devices.
    moved: bytes of one device between memory and chip.
    sent: its collectives.
    attention_utilisation: the share of the chip's rate that products between
      activations reach; the others are taken at all of it.
    of_host: see Collective.seconds.
  """
  rest = counted.flops - counted.attention_flops
  work = rest + counted.attention_flops / attention_utilisation
  return Seconds(
    compute=work / devices / chip.flops,
    memory=moved / chip.bandwidth,
    network=sum(one.seconds(chip, of_host) for one in sent),
  )


def model_flops(
  cfg: types.ModelConfig, tokens: float, width: int, scored: float
) -> float:
  """Operations that training needs, recomputation and waste not counted.

  Six per weight and token, as is the custom; attention's are causal.

  Args:
    cfg: the model.
    tokens: positions of all rows.
    width: positions of a row.
    scored: positions that the head reads.
  """
  heads = cfg.num_heads * cfg.head_dim
  keys = cfg.num_kv_heads * cfg.head_dim
  layer = cfg.dim * (2 * heads + 2 * keys + 3 * cfg.hidden)
  forward = 2.0 * tokens * cfg.num_layers * layer
  forward += 2.0 * scored * cfg.dim * cfg.vocab
  # Scores and mix: 2 products of width * heads per token, half of it masked.
  forward += 2.0 * tokens * cfg.num_layers * width * heads
  return 3.0 * forward


@dataclasses.dataclass(frozen=True)
class Decode:
  """Bytes and seconds of one decode step, per device, by what causes them."""

  weights: float
  cache: float
  compute: float
  network: float

  @property
  def bound(self) -> str:
    """What takes longest."""
    parts = dataclasses.asdict(self)
    return max(parts, key=parts.get)


def cache_bytes(
  cfg: types.ModelConfig, section, mesh, itemsize: int = 2, *, read=False
) -> float:
  """Keys and values of one device: rows over data and fsdp, heads over tensor.

  Prompts that do not split over the row shards lie whole on each.

  Args:
    cfg: the model.
    section: config.rollout.
    mesh: of the run.
    itemsize: bytes of a number.
    read: of what a step reads: every slot, filled or not, and of the prompts
      those of the device's rows.
  """
  shards = mesh.shape['data'] * mesh.shape['fsdp']
  tensor = mesh.shape['tensor']
  heads = cfg.num_kv_heads / (tensor if cfg.num_kv_heads % tensor == 0 else 1)
  total = section.prompts * section.group
  rows = (min(section.slots, total) or total) / shards
  prompts = section.prompts / (shards if section.prompts % shards == 0 else 1)
  if read and 0 < section.slots < total:
    prompts = rows  # each row has its own
  elif read:
    prompts = min(prompts, math.ceil(rows / section.group))
  slots = rows * section.max_response + prompts * section.max_prompt
  return 2.0 * cfg.num_layers * heads * cfg.head_dim * slots * itemsize


def decode_step(
  config,
  run: shapes_lib.Run,
  chip: targets.Chip,
  step: count_lib.Count,
  network: float,
) -> Decode:
  """The bounds of one decode step of lockstep.

  Args:
    config: of the run.
    run: its arrays.
    chip: its rates.
    step: operations of one step, all devices.
    network: seconds of the collectives of one step.
  """
  pair = config.rollout.mode == 'tandem'
  roles = ('senior', 'junior') if pair else ('senior',)
  itemsize = 2 if config.rollout.dtype == 'bfloat16' else 4
  read = cached = 0.0
  for role in roles:
    cfg, params = run.cfgs[role], run.frozen[role]
    read += shapes_lib.bytes_per_device(params)
    if not cfg.tied:  # an embedding that is not the head is only looked up
      read -= shapes_lib.bytes_per_device(params['embed'])
    cached += cache_bytes(cfg, config.rollout, run.mesh, itemsize, read=True)
  return Decode(
    weights=read / chip.bandwidth,
    cache=cached / chip.bandwidth,
    compute=step.flops / run.mesh.size / chip.flops,
    network=network,
  )
