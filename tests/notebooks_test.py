"""Notebooks: their form, and a run of each on a small made-up run."""

import ast
import json
import os
import pathlib

import nbclient
import nbformat
import pytest

from tests.analysis import fake_run

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / 'notebooks').glob('*.ipynb'))


def code(notebook):
  """The code of a notebook, shell and magic lines as `pass`."""
  lines = []
  for cell in notebook.cells:
    if cell.cell_type == 'code':
      for line in cell.source.splitlines():
        magic = line.lstrip()[:1] in ('!', '%')
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(f'{indent}pass' if magic else line)
  return lines


def test_there_are_notebooks():
  assert NOTEBOOKS


@pytest.mark.parametrize('path', NOTEBOOKS, ids=lambda path: path.stem)
def test_form(path):
  notebook = nbformat.read(path, as_version=4)
  nbformat.validate(notebook)
  first = notebook.cells[0]
  assert first.cell_type == 'markdown'
  for wanted in ('colab-badge', '**Hardware:**', '**Time:**'):
    assert wanted in first.source, wanted
  assert '## Next' in notebook.cells[-1].source
  lines = code(notebook)
  assert len([line for line in lines if line.strip()]) <= 100
  tree = ast.parse('\n'.join(lines))
  definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
  assert not [
    node
    for node in ast.walk(tree)
    if isinstance(node, (*definitions, ast.Lambda))
  ]
  for cell in notebook.cells:
    if cell.cell_type == 'code':
      assert cell.outputs == [], 'strip the outputs before committing'
      assert cell.execution_count is None


def test_training_dynamics(tmp_path, monkeypatch):
  fake_run.write(tmp_path / 'run')
  monkeypatch.setenv('WORKDIR', str(tmp_path / 'run'))
  monkeypatch.setenv('IPYTHONDIR', str(tmp_path / 'ipython'))
  monkeypatch.setenv(
    'PYTHONPATH', os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')])
  )
  # The made-up run is read, so nothing may be trained or installed.
  monkeypatch.setenv('PATH', str(tmp_path))
  notebook = nbformat.read(
    ROOT / 'notebooks' / 'training_dynamics.ipynb', as_version=4
  )
  done = nbclient.NotebookClient(
    notebook,
    timeout=120,
    kernel_name='python3',
    resources={'metadata': {'path': str(ROOT / 'notebooks')}},
  ).execute()
  outputs = [
    output
    for cell in done.cells
    if cell.cell_type == 'code'
    for output in cell.outputs
  ]
  shown = [output.data for output in outputs if 'data' in output]
  assert any('image/png' in data for data in shown)
  assert any('srcdoc' in data.get('text/html', '') for data in shown)
  printed = ''.join(output.get('text', '') for output in outputs)
  assert 'run senior: 0.370±0.024 at step 0' in printed
  assert '\x1b[4;38;5;166m one is' in printed
  assert str(tmp_path) not in json.dumps(shown)
