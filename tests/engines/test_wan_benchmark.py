"""The benchmark of Wan runs where there is no GPU, on a tiny shape, so that it does not rot."""

from benchmarks.wan import measure


async def test_benchmark_measures_every_path_on_a_cpu(single_thread: None) -> None:
    table = await measure()
    assert not [note for note in table.notes if "failed" in note]
    rows = {str(row[0]): row for row in table.rows}
    for figure in ("forward tiny, s", "step with guidance tiny, s", "forward tiny, TFLOP/s"):
        stock, exact, fp8 = rows[figure][1], rows[figure][2], rows[figure][4]
        assert stock is not None and exact is not None and fp8 is not None
    error = rows["error against fp32 over 1 blocks, %"]
    assert error[2] == 0.0 and isinstance(error[4], float) and 0 < error[4] < 5
    assert any("No GPU" in note for note in table.notes)
