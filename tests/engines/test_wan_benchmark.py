"""The benchmark of Wan runs where there is no GPU, on a tiny shape, so that it does not rot."""

from benchmarks.wan import measure


async def test_benchmark_measures_every_path_on_a_cpu(single_thread: None) -> None:
    table = await measure()
    assert not [note for note in table.notes if "failed" in note]
    rows = {str(row[0]): row for row in table.rows}
    for figure in ("forward tiny, s", "step with guidance tiny, s", "forward tiny, TFLOP/s"):
        assert None not in rows[figure][1::2], "stock, and each of our paths beside it"
    error = rows["error against fp32 over 1 blocks, %"]
    exact, *lossy = (value for value in error[2::2] if isinstance(value, float))
    assert exact == 0.0 and len(lossy) == 3 and all(0 < value < 5 for value in lossy)
    assert any("No GPU" in note for note in table.notes)
