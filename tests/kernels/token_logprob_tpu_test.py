"""token_logprob compiled by the real TPU compiler, for machines not here.

It needs libtpu, which stays out of the default install. In an environment of
its own: `pip install 'jax==0.10.2' 'libtpu==0.0.42.*' chex`; then run pytest
there, or here with TANDEM_TPU_PYTHON naming that environment's python.

Each target is a process of its own. Run as a program, this file is that
process: it prints one JSON object per compile.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

TARGETS = ('v5p:2x2x1', 'v5e:2x2', 'v6e:2x2')
PYTHON = os.environ.get('TANDEM_TPU_PYTHON', sys.executable)
ROOT = pathlib.Path(__file__).parents[2]
needs_libtpu = pytest.mark.skipif(
  'TANDEM_TPU_PYTHON' not in os.environ
  and importlib.util.find_spec('libtpu') is None,
  reason='no libtpu; see the head of this file',
)


def compiled(target, suite):
  """{case: answer} from a fresh process."""
  env = os.environ | {
    'JAX_PLATFORMS': 'cpu',
    'TPU_SKIP_MDS_QUERY': '1',
    'TPU_WORKER_HOSTNAMES': 'localhost',
    'TPU_ACCELERATOR_TYPE': 'v5p-8',
    'ALLOW_MULTIPLE_LIBTPU_LOAD': '1',
  }
  done = subprocess.run(
    [PYTHON, '-m', 'tests.kernels.token_logprob_tpu_test', target, suite],
    cwd=ROOT,
    env=env,
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr[-3000:]
  answers = [json.loads(line) for line in done.stdout.splitlines()]
  print(done.stdout)
  return {answer['case']: answer for answer in answers}


@needs_libtpu
@pytest.mark.parametrize('target', TARGETS)
def test_kernels_compile_and_one_too_large_is_refused(target):
  answers = compiled(target, 'quick')
  assert 'vmem' in answers.pop('too_large')['refused'].lower()
  assert answers
  for name, answer in answers.items():
    assert answer.get('kernels') == 2, (name, answer)


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize('target', TARGETS)
def test_wide_models_compile(target):
  for name, answer in compiled(target, 'wide').items():
    assert answer.get('kernels') == 2, (name, answer)


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize('target', TARGETS)
def test_real_shapes_compile_in_little_memory(target):
  for name, answer in compiled(target, 'full').items():
    assert answer['temporary_over_logits'] < 1 / 8, name


def main(target, suite):
  import jax
  from jax.experimental import topologies
  import jax.numpy as jnp
  import numpy as np

  from tandem.kernels.token_logprob import api
  from tandem.kernels.token_logprob import pallas_tpu
  from tandem.kernels.token_logprob import shapes

  devices = topologies.get_topology_desc(
    topology_name=target, platform='tpu'
  ).devices
  mesh = jax.sharding.Mesh(np.array(devices)[:1], ('data',))

  def compile_one(case, m, d, v, tied, dtype, implementation):
    def loss(hidden, head):
      stats = api.token_logprob(
        hidden,
        head,
        jnp.zeros(m, jnp.int32),
        temperature=0.6,
        entropy=True,
        vocab_first=tied,
        implementation=implementation,
        mesh=mesh,
      )
      return stats.logp.sum() + stats.entropy.sum()

    everywhere = jax.NamedSharding(mesh, jax.P())
    arguments = [
      jax.ShapeDtypeStruct(shape, dtype, sharding=everywhere)
      for shape in ((m, d), (v, d) if tied else (d, v))
    ]
    answer = {'case': case, 'target': target}
    try:
      f = jax.jit(jax.value_and_grad(loss, (0, 1)))
      done = f.lower(*arguments).compile()
    except jax.errors.JaxRuntimeError as e:
      print(json.dumps(answer | {'refused': str(e)[:400]}), flush=True)
      return
    temporary = done.memory_analysis().temp_size_in_bytes
    answer['temporary_over_logits'] = round(temporary / (m * v * 4), 4)
    answer['kernels'] = done.as_text().count('custom_call_target="tpu_custom')
    print(json.dumps(answer), flush=True)

  # Real widths, a vocabulary of a few blocks and a tail of 163.
  v, kernel = 2048 + 163, 'pallas_tpu'
  if suite == 'wide':
    compile_one('qwen3_4b', 1024, 2560, v, True, jnp.bfloat16, kernel)
    compile_one('qwen3_32b', 1024, 5120, v, False, jnp.bfloat16, kernel)
    return
  if suite == 'full':
    for name, shape in shapes.SHAPES.items():
      for implementation in ('pallas_tpu', 'xla'):
        compile_one(
          f'{name}/{implementation}',
          shapes.ROWS,
          *shape,
          jnp.bfloat16,
          implementation,
        )
    return
  compile_one('smollm2', 1000, 576, v, True, jnp.bfloat16, kernel)
  compile_one('float32', 1024, 1024, v, False, jnp.float32, kernel)
  # 84 MB of head block; its few rows keep the compile short.
  pallas_tpu.blocks = lambda *_, **__: (16, 8192)
  compile_one('too_large', 16, 2560, 8192, True, jnp.bfloat16, kernel)


if __name__ == '__main__':
  main(*sys.argv[1:])
