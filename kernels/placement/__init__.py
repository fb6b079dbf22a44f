"""On what devices arrays lie: what a Pallas call must know of a mesh."""
