"""A gang's ranks as Ray actors in the bundles of one placement group. The only place, with `wiring/on_ray`, that
knows Ray; whoever imports its modules needs the extra `ray`."""
