"""Tries changes of the rules that tests must notice: all of them, or a sample drawn by chance.

`python -m tests.mutants [--sample N] [--seed S] [NAME…]`. The same seed draws the same sample from the same rules. What was tried
before is not tried again: a run that was stopped goes on.
"""

import argparse
import random
from collections import Counter
from typing import Any

from mutmut import __main__ as mutmut
from mutmut.state import state
from mutmut.stats import status_by_exit_code

CAUGHT = {"killed", "timeout"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev mutants")
    parser.add_argument("names", nargs="*", help="of mutants, with * for any part")
    parser.add_argument("--sample", type=int, metavar="N", help="so many, drawn by chance")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    tried: list[Any] = []
    all_of = mutmut.collect_source_file_mutation_data

    def drawn(*, mutant_names: Any) -> Any:
        found, files = all_of(mutant_names=mutant_names)
        found.sort(key=lambda one: one[1])
        if asked.sample is not None:
            found = random.Random(asked.seed).sample(found, min(asked.sample, len(found)))
        tried.extend(found)
        fastest_first(state().tests_by_mangled_function_name, state().duration_by_test)
        return found, files

    mutmut.collect_source_file_mutation_data = drawn
    # In the order in which they were drawn: what was tried of a sample when it is stopped is a sample, too.
    mutmut.estimated_worst_case_time = lambda _: 0.0
    try:
        mutmut._run(asked.names, asked.processes)
    finally:
        report([(name, file.exit_code_by_key[name]) for file, name, _ in tried])


def fastest_first(tests_of: Any, duration_of: dict[str, float]) -> None:
    """A change is given up at the first test that notices it: most are noticed by one of milliseconds, and some functions are called
    by simulations of a minute."""
    for function, tests in tests_of.items():
        tests_of[function] = sorted(tests, key=lambda test: duration_of.get(test, 0.0))


def report(tried: list[tuple[str, int | None]]) -> None:
    said = {name: status_by_exit_code[code] for name, code in tried if code is not None}
    caught = sum(status in CAUGHT for status in said.values())
    by_module: dict[str, Counter[str]] = {}
    for name, status in said.items():
        by_module.setdefault(name.rsplit(".", 1)[0], Counter())[status] += 1
    for module, counts in sorted(by_module.items()):
        print(f"{module}: {', '.join(f'{count} {status}' for status, count in sorted(counts.items()))}")
    for name, status in sorted(said.items()):
        if status not in CAUGHT:
            print(f"{status}: {name}")
    print(f"{caught} of {len(said)} were caught; {len(tried) - len(said)} are left to try")
    print("See a change: .venv/bin/mutmut show NAME")


if __name__ == "__main__":
    main()
