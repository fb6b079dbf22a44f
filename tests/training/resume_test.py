"""Which changes of a config a resumed run accepts."""

import json

import pytest

from configs import common
from tandem import train
from tandem.training import resume
from tests import small_run


def config(**values):
  out = common.base()
  out.update_from_flattened_dict(values)
  return out.to_dict()


@pytest.fixture
def workdir(tmp_path):
  """Of a run that has saved step 3."""
  resume.write(config(), tmp_path)
  (tmp_path / 'checkpoints' / '3').mkdir(parents=True)
  return tmp_path


def test_settings_survive_json_and_leave_out_what_is_free():
  mine = resume.settings(config())
  assert json.loads(json.dumps(mine)) == mine
  assert mine['warm_start.band'] == [0.0, 1.0]
  assert 'rollout.group' in mine and 'reward.limit_s' in mine
  assert 'loss.eps_low' in mine  # unset is a setting too
  for name in ('num_steps', 'eval.samples', 'mesh.data', 'reward.workers'):
    assert name not in mine


@pytest.mark.parametrize(
  'values',
  [
    {},
    {'num_steps': 7},
    {'mesh.tensor': 2},
    {'log.tensorboard': False},
    {'checkpoint.keep': 9},
    {'eval.models': ('pair',)},
    {'reward.workers': 7},
  ],
  ids=lambda values: next(iter(values), 'none'),
)
def test_free_keys_may_change(values, workdir):
  resume.check(config(**values), workdir)


def test_a_newer_release_may_go_on_with_an_older_run(workdir, caplog):
  old = config()
  del old['rollout']['draft_context']
  resume.write(old, workdir)
  with caplog.at_level('WARNING'):
    resume.check(config(), workdir)
  assert 'goes on with rollout.draft_context=0' in caplog.text
  with pytest.raises(ValueError, match='rollout.p was') as error:
    resume.check(config(**{'rollout.p': 0.25}), workdir)
  assert 'draft_context' not in str(error.value)


def test_others_are_refused_with_both_values(workdir):
  new = config(**{'rollout.p': 0.25, 'loss.eps_low': 0.1})
  with pytest.raises(ValueError, match='holds a run of another') as error:
    resume.check(new, workdir)
  assert 'rollout.p was 0.5 and is 0.25' in str(error.value)
  assert 'loss.eps_low was None and is 0.1' in str(error.value)
  assert 'rollout.group' not in str(error.value)


def test_warm_started_weights_are_held_to_their_config(workdir):
  (workdir / 'checkpoints').rename(workdir / 'initial')
  with pytest.raises(ValueError, match='seed was 0 and is 1'):
    resume.check(config(seed=1), workdir)


def test_a_workdir_without_saved_weights_is_free(workdir):
  half = workdir / 'checkpoints' / '3.orbax-checkpoint-tmp'
  (workdir / 'checkpoints' / '3').rename(half)
  resume.check(config(seed=1), workdir)


def test_a_key_of_one_version_only_is_named(workdir):
  resume.write(config() | {'gone': 1}, workdir)
  with pytest.raises(ValueError, match='gone was 1 and is absent'):
    resume.check(config(), workdir)


def test_num_steps_is_fixed_where_the_schedule_ends_at_it(workdir):
  cosine = lambda steps: config(
    **{'optimizer.schedule': 'cosine', 'num_steps': steps}
  )
  resume.write(cosine(5), workdir)
  with pytest.raises(ValueError, match='num_steps was 5 and is 6'):
    resume.check(cosine(6), workdir)


def test_a_workdir_is_made_or_refused(tmp_path):
  new = resume.opened(f'{tmp_path}/a/b')
  assert new.is_dir() and resume.opened(new) == new
  (tmp_path / 'file').write_text('')
  for name in ('file', 'file/below'):
    with pytest.raises(ValueError, match=f'{name} is no directory and cannot'):
      resume.opened(tmp_path / name)


def test_one_process_at_a_time(tmp_path):
  with resume.held(tmp_path):
    for _ in range(2):
      with (
        pytest.raises(ValueError, match='another process trains in'),
        resume.held(tmp_path),
      ):
        pass
  with resume.held(tmp_path):  # the first has gone
    pass


def test_the_trainer_holds_its_workdir(tmp_path, monkeypatch):
  started = []
  monkeypatch.setattr(
    train.setup_lib, 'setup', lambda *_, **__: started.append(1)
  )
  with (
    resume.held(tmp_path),
    pytest.raises(ValueError, match='another process trains in'),
  ):
    train.run(small_run.config(), tmp_path)
  assert not started and not (tmp_path / 'config.json').exists()
