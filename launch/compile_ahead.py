r"""Compiles a run for machines that are not here; prints one JSON object.

  python -m launch.compile_ahead --config=configs/X.py --topology=v5e:4x4

No weights and no device: every program of a training step from shapes alone.
`fits`, bytes per device and phase, operations, collectives, roofline. Topologies:
v5e, v5p, v6e, tpu7x by the sizes of their torus (v5p:2x2x1 is a v5p-8); H100,
H200, B200 as slices x hosts x GPUs (H200:1x1x8); cpu:8 for a trial. TPUs need the
extra `ahead-tpu`, GPUs `ahead-gpu`, each in an environment of its own. Keys of
the config are set as in launch.train: --config.mesh.tensor=8.
"""

import json
import pathlib

from absl import flags
from ml_collections import config_flags

from launch import command

_CONFIG = config_flags.DEFINE_config_file(
  'config', None, 'configs/NAME.py, or configs/NAME.py:ARG', lock_config=True
)
_TOPOLOGY = flags.DEFINE_string('topology', None, 'As v5e:4x4 or H200:1x1x8.')
_LAYERS = flags.DEFINE_integer(
  'layers', 0, 'Keep so many layers of each model, for a quick look; 0: all.'
)
_ATTENTION = flags.DEFINE_float(
  'attention_utilisation', 0.5, "Share of the chip's rate that attention gets."
)
_ROUNDS = flags.DEFINE_integer(
  'rounds', 0, 'Passes of speculative decoding; 0: one per token.'
)
_ONLY = flags.DEFINE_list(
  'only', [], 'Of decode_copy, rollout, score/NAME, update; empty: all.'
)
_COMPILE = flags.DEFINE_bool(
  'compile', True, 'False: what shapes alone tell, in a second.'
)
_TEXT = flags.DEFINE_string(
  'text', '', 'Directory to leave the compiled texts in; empty: nowhere.'
)


def main():
  from tandem.ahead import targets

  # Before anything imports jax.
  targets.prepare(_TOPOLOGY.value)
  from tandem.ahead import report

  def leave(name: str, text: str) -> None:
    if _TEXT.value:
      path = pathlib.Path(_TEXT.value) / f'{name.replace("/", "_")}.hlo'
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(text)

  found = report.run(
    _CONFIG.value,
    _TOPOLOGY.value,
    layers=_LAYERS.value,
    attention_utilisation=_ATTENTION.value,
    rounds=_ROUNDS.value,
    only=tuple(_ONLY.value),
    compiles=_COMPILE.value,
    leave=leave,
  )
  print(json.dumps(found), flush=True)


if __name__ == '__main__':
  command.run(main, 'config', 'topology')
