"""Which models there are, which machines, and what runs where. `core_rules` decides with `scale_rules`, `place_rules` and
`tend_rules`; `manager_loop` carries it out and is the only writer. Models and workers register here (`model_routes`,
`worker_routes`), and `hosts` has those who run gangs elsewhere."""
