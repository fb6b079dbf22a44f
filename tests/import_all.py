"""Imports every module of ours with all extras absent.

  python tests/import_all.py [folder in which tandem is installed]

A script, for a process of its own: what is imported stays imported.
"""

import importlib
import importlib.metadata
import pathlib
import sys

# What the extras of setup.py bring, by import name.
EXTRAS = (
  'accelerate',
  'datasets',
  'gguf',
  'ipykernel',
  'libtpu',
  'matplotlib',
  'nbclient',
  'nbformat',
  'pytest',
  'reasoning_gym',
  'ruff',
  'tensorboardX',
  'torch',
  'wandb',
)


def module_names(root: pathlib.Path) -> list[str]:
  """Names of the modules under a folder that holds `tandem`."""
  folders = {'tandem': root / 'tandem'}
  # A checkout has tandem/kernels as a link, which rglob does not follow.
  if (root / 'kernels').is_dir():
    folders['tandem.kernels'] = root / 'kernels'
  names = set()
  for package, folder in folders.items():
    for path in folder.rglob('*.py'):
      parts = path.relative_to(folder).with_suffix('').parts
      names.add('.'.join((package, *parts)).removesuffix('.__init__'))
  return sorted(names)


def main() -> None:
  checkout = pathlib.Path(__file__).resolve().parents[1]
  root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else checkout).resolve()
  for name in EXTRAS:
    sys.modules[name] = None  # `import name` then raises ImportError
  sys.path.insert(0, str(root))
  names = module_names(root)
  differ = set(names) ^ set(module_names(checkout))
  if differ:
    raise SystemExit(f'{root} and the checkout differ in {sorted(differ)}')
  for name in names:
    file = pathlib.Path(importlib.import_module(name).__file__).resolve()
    if root not in file.parents:
      raise SystemExit(f'{name} comes from {file}, not from {root}')
  print(f'{len(names)} modules imported from {root}')


if __name__ == '__main__':
  main()
