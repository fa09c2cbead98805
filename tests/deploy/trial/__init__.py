"""The chart on a real cluster: installed, used, broken, upgraded, removed. `./dev test-kubernetes --cluster` runs it."""
