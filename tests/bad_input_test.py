"""Bad input to a run: one paragraph with the value and the fix, and no work.

What is refused by limits.py, losses/ and data/ on its own is tested there; here
is what a whole run says, before it touches a device.
"""

import json

import jax
import numpy as np
import pytest
from safetensors import numpy as safetensors

from tandem import train
from tandem import types
from tandem.data import quickstart
from tandem.models import decoder
from tandem.models import weights
from tandem.training import collect
from tandem.training import resume
from tandem.training import sharding
from tests import small_run
from tests.text import small


@pytest.fixture(autouse=True)
def idle(monkeypatch):
  """No grader processes, and any work on a device is a failure."""

  class NoVerifier:
    def __init__(self, *args):
      pass

    def __enter__(self):
      return self

    def __exit__(self, *args):
      pass

  def work(*args, **kwargs):
    raise AssertionError('work before the refusal')

  monkeypatch.setattr(train.verifier_lib, 'Verifier', NoVerifier)
  monkeypatch.setattr(sharding, 'init_sharded', work)
  monkeypatch.setattr(weights, '_place', work)
  monkeypatch.setattr(collect.Collector, '__call__', work)


@pytest.fixture
def refused(tmp_path):
  """values, words -> a run of them is refused in those words."""

  def check(values, *words):
    with pytest.raises(ValueError) as error:
      train.run(small_run.config(**values), tmp_path / 'run')
    for word in words:
      assert word in str(error.value)
    assert len(str(error.value)) < 1000

  return check


def checkpoint(directory, tokenizer, **fields):
  """A saved model that fits the tokenizer; returns its path."""
  cfg = types.ModelConfig(
    **{
      'vocab': len(tokenizer),
      'dim': 8,
      'num_layers': 1,
      'num_heads': 1,
      'num_kv_heads': 1,
      'head_dim': 8,
      'hidden': 8,
      'qk_norm': True,
      'max_position': 128,
      **fields,
    }
  )
  shapes = jax.eval_shape(lambda: decoder.init_params(jax.random.key(0), cfg))
  params = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
  weights.save_params(directory, params, cfg, tokenizer, dtype='float32')
  return str(directory)


@pytest.mark.parametrize(
  'values, words',
  [
    ({'loss.variant': 'grop'}, ("loss.variant='grop'", "'grpo'", "'tandem'")),
    ({'rollout.mode': 'duo'}, ("rollout.mode='duo'", 'tandem, solo')),
    ({'rollout.schedule': 'words'}, ("'words'", 'strict_word')),
    (
      {'rollout.mode': 'solo', 'loss.variant': 'tandem'},
      ("rollout.mode='solo'", 'no authors', "loss.variant='grpo'"),
    ),
    # Case 15.
    ({'rollout.top_p': 0.9}, ('top_p=0.9', 'full law', 'top_p=1')),
    ({'rollout.top_k': 5}, ('top_k=5', 'full law', 'top_k=0')),
    ({'rollout.group': 0}, ('rollout.group=0', 'at least 1')),
    ({'learner.micro_rows': 3}, ('learner.micro_rows=3', '8 rows', 'divisor')),
    ({'loss.kl_coef': 0.1, 'loss.kl_estimator': 'k1'}, ("'k1'", 'k2')),
    ({'optimizer.schedule': 'step'}, ("'step'", 'cosine')),
    ({'log.profile_steps': 'all'}, ("profile_steps='all'", '10-12')),
    ({'loss.variant': 'opd', 'rollout.mode': 'solo'}, ('teacher.source',)),
    ({'teacher.source': 'x'}, ("teacher.source='x'", 'leave it empty')),
    ({'mesh.data': 3}, ('data=3', '8 devices', '[1, 2, 4, 8]')),
    ({'mesh.data': 8, 'rollout.group': 2}, ('group=4', 'mesh.data=8')),
    ({'rollout.max_prompt': 5}, ('max_prompt=5', 'raise max_prompt')),
    (
      {'rollout.max_prompt': 20, 'data.overlong': 'error'},
      ('longer than max_prompt=20', 'Raise max_prompt', "'drop'"),
    ),
    ({'data.kind': 'jsonl'}, ('data.path is empty', '--config.data.path=FILE')),
    ({'model.tokenizer': 'same'}, ('brings no tokenizer', 'quickstart')),
    ({'eval.every_steps': 1, 'data.held_out': 0}, ('data.held_out',)),
  ],
  ids=lambda x: ','.join(x) if isinstance(x, dict) else '',
)
def test_settings(values, words, refused):
  refused(values, *words)


def test_unknown_key_of_the_config():
  with pytest.raises(KeyError, match='grup'):
    small_run.config(**{'rollout.grup': 3})


def test_data_files(refused, tmp_path, caplog):
  path = tmp_path / 'data.jsonl'
  values = {'data.kind': 'jsonl', 'data.path': str(path), 'data.held_out': 0}
  refused(values, str(path), 'does not exist')
  path.write_text('')
  refused(values, f'{path} holds no', 'it is empty', "'problem'", 'data.answer')
  rows = [{'problem': '1 + 1?', 'answer': '2'}, {'problem': '2 + 2?'}]
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  # The good row goes on to where the work begins.
  with pytest.raises(AssertionError, match='work before'):
    train.run(small_run.config(**values), tmp_path / 'run')
  assert '1 bad rows skipped, 1 problems kept: line 2: no answer' in caplog.text


def test_tokenizers_and_checkpoints(refused, tmp_path):
  own = quickstart.tokenizer()
  plain = small.fast(
    small.spelled([*'abcdefghijklmnopqrstuvwxyz', '</s>']), eos_token='</s>'
  )
  plain.save_pretrained(tmp_path / 'plain')
  text = {'data.chat': False, 'data.overlong': 'drop'}
  refused(
    {'model.tokenizer': str(tmp_path / 'plain'), **text},
    *('no boundary ids', '27 tokens', 'token, chunk or alternating'),
  )

  senior = checkpoint(tmp_path / 'senior', own)
  values = {'model.source': senior, 'model.tokenizer': 'same'}
  other = checkpoint(tmp_path / 'other', small.fast(small.byte_bpe()))
  refused(
    {**values, 'junior.source': other},
    *('different vocabularies', f'{len(own)} and', 'id ', 'one family'),
  )
  few = checkpoint(tmp_path / 'few', own, vocab=100)
  refused(
    {'model.source': few, 'model.tokenizer': 'quickstart'},
    *(f'{len(own)} ids', 'the 100 of', 'model.source'),
  )
  refused(
    {**values, 'rollout.max_response': 100},
    *('rollout.max_response=100', '148 positions', "model's 128"),
  )

  file = tmp_path / 'senior' / 'model.safetensors'
  tensors = safetensors.load_file(file)
  norm = tensors.pop('model.norm.weight')
  safetensors.save_file(tensors | {'model.stray': norm}, file)
  refused(values, 'missing model.norm.weight [8]', 'extra model.stray [8]')


def test_a_workdir_of_another_run(refused, tmp_path):
  old = small_run.config(**{'rollout.p': 0.25}).to_dict()
  (tmp_path / 'run' / 'checkpoints' / '3').mkdir(parents=True)
  resume.write(old, tmp_path / 'run')
  refused({'num_steps': 9}, 'rollout.p was 0.25 and is 0.5', 'another')
