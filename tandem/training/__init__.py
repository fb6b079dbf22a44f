"""The parts that `tandem.train` calls: mesh, optimizer, state, records."""
