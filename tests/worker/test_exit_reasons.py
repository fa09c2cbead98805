"""What a user is told when an engine ends. Log lines are of the engines' own making, cut short."""

import pytest

from turnout.worker.exit_reason_rules import explain_exit, load_progress

CASES = [
    (
        1,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has",
        "out of GPU memory",
    ),
    (1, "ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", "out of GPU memory"),
    (1, "ValueError: No available memory for the cache blocks. Try increasing", "out of GPU memory"),
    (
        1,
        "ValueError: Free memory on device (3.1/79.1 GiB) on startup is less than desired GPU memory utilization",
        "another process holds some of it",
    ),
    (
        1,
        "ValueError: the model's max seq len (131072) (16.0 GiB KV cache is needed, which is larger than the rest)",
        "lower max_model_len",
    ),
    (-9, "INFO loading weights", "ran out of memory"),
    (-11, "", "segmentation fault"),
    (-4, "", "another processor"),
    (-15, "", "signal 15"),
    (-40, "", "signal 40"),
    (1, "std::bad_alloc", "out of memory on the machine"),
    (2, "vllm serve: error: unrecognized arguments: --foo 3", "the argument --foo 3"),
    (2, "vllm serve: error: argument --dtype: invalid choice: 'x'", "--dtype: invalid choice"),
    (1, "OSError: [Errno 98] Address already in use", "port was taken"),
    (1, "srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 5", "port was taken"),
    (127, "x: error while loading shared libraries: libcudart.so.12: cannot open", "libcudart.so.12"),
    (1, "ImportError: libcublas.so.12: cannot open shared object file: No such file", "libcublas.so.12"),
    (1, "ModuleNotFoundError: No module named 'vllm'", "package is missing: vllm"),
    (1, "/usr/bin/python3: No module named vllm", "package is missing: vllm"),
    (3, "WARNING limit: errors like `OSError: [Errno 24] Too many open files`.", "exit code 3"),
    (1, "OSError: [Errno 24] Too many open files: 'x'", "file descriptors"),
    (1, "HFValidationError: Repo id must be in the form 'a' or 'b/a': '/w/y'. Use", "not found: /w/y"),
    (
        1,
        "WARNING: ImportError(\"No module named 'vllm._C'\")\nOSError: acme/none is not a local folder",
        "not found: acme/none",
    ),
    (127, "cannot run vllm: No such file or directory", "vllm is not installed"),
    (1, "'/my weights/x.gguf' is not a file", "not found: /my weights/x.gguf"),
    (1, "gguf_init_from_file: failed to open GGUF file '/w/x.gguf' (No such file", "not found: /w/x.gguf"),
    (
        1,
        "OSError: acme/none is not a local folder and is not a valid model identifier",
        "not found: acme/none",
    ),
    (1, "You are trying to access a gated repo.\n401 Client Error", "need permission"),
    (1, "OSError: We couldn't connect to 'https://huggingface.co' to load the files", "could not be fetched"),
    (1, "llama_model_load: error loading model: unknown model architecture: 'zork'", "kind of model: 'zork'"),
    (1, "ValueError: Model architectures ['ZorkLM'] are not supported for now.", "['ZorkLM']"),
    (1, "Total number of attention heads (40) must be divisible by tensor parallel size (3).", "split"),
    (1, "RuntimeError: No CUDA GPUs are available", "no GPU"),
    (1, "OSError: [Errno 28] No space left on device", "disk is full"),
    (7, "line one\nline two\n", "exit code 7: line two"),
    (7, "", "exit code 7"),
    (0, "", "left by itself"),
]


@pytest.mark.parametrize(("code", "tail", "words"), CASES)
def test_an_exit_is_put_into_words(code: int, tail: str, words: str) -> None:
    assert words in explain_exit(code, tail)


def test_the_root_cause_is_found_above_the_last_words() -> None:
    tail = (
        "(EngineCore) torch.OutOfMemoryError: CUDA out of memory.\n"
        + "traceback\n" * 200
        + "RuntimeError: init failed"
    )
    assert "out of GPU memory" in explain_exit(1, tail)


def test_words_stay_short() -> None:
    assert len(explain_exit(1, "error: argument " + "x" * 5000)) <= 300
    assert len(explain_exit(1, "y" * 5000)) <= 300


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("Loading safetensors checkpoint shards:   0% Completed\rLoading safetensors checkpoint shards:  50% Comp", "loading 50 %"),
        ("2026-11-16 [info     ] loading 85 %  gang=g", "loading 85 %"),
        ("load_tensors: loading model tensors\n.......... 100% of nothing", ""),
        ("loading 850 %", "loading 100 %"),
        ("", ""),
    ],
)  # fmt: skip
def test_how_far_an_engine_has_loaded_is_read_from_its_log(log: str, words: str) -> None:
    assert load_progress(log) == words
