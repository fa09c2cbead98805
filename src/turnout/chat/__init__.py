"""A chat request, from its key to a replica: admission, limits, seats, routes, demand, usage. The relay carries its bytes."""
