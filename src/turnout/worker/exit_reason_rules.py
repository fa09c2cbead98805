"""What an engine's log says: how far it has loaded, and why it ended, in words that tell a user what to change. Pure."""

import re
import signal
from dataclasses import dataclass

_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Symptom:
    """`says` may use what `pattern` caught as {0}."""

    pattern: re.Pattern[str]
    says: str


def _symptom(pattern: str, says: str) -> Symptom:
    return Symptom(re.compile(pattern, re.IGNORECASE), says)


# The first that matches wins, so the more telling stand first.
SYMPTOMS = (
    _symptom(
        r"larger than the (?:maximum|available)[^\n]*KV cache|KV cache is needed, which is larger than",
        "too little GPU memory for the context: lower max_model_len, or raise gpu_memory_utilization",
    ),
    _symptom(
        r"Free memory on device[^\n]*less than desired GPU memory utilization",
        "the GPU had less free memory than gpu_memory_utilization asks for: another process holds some of it",
    ),
    _symptom(
        r"CUDA out of memory|torch\.OutOfMemoryError|CUDA error: out of memory|cudaMalloc failed: out of memory"
        r"|HIP out of memory|No available memory for the cache blocks",
        "out of GPU memory: the model and its cache do not fit; lower max_model_len or gpu_memory_utilization,"
        " quantize, or use more GPUs",
    ),
    _symptom(
        r"MemoryError|std::bad_alloc|Cannot allocate memory|failed to allocate (?:\S+ )?buffer|ENOMEM",
        "out of memory on the machine",
    ),
    _symptom(
        r"Address already in use|couldn't bind HTTP server socket|errno 98\b",
        "its port was taken by another program",
    ),
    _symptom(r"unrecognized arguments?: ([^\n]+)", "it does not know the argument {0}"),
    _symptom(r"error: argument ([^\n]+)", "it refused an argument: {0}"),
    _symptom(r"cannot run ([^\n:]+): [^\n]*", "the program {0} is not installed, or cannot be run"),
    _symptom(
        r"No CUDA GPUs are available|no CUDA-capable device|Failed to infer device type",
        "it found no GPU that it can use",
    ),
    _symptom(
        r"driver version is insufficient|driver is too old", "the GPU's driver is too old for this engine"
    ),
    _symptom(r"no kernel image is available", "the engine was not built for this GPU"),
    _symptom(
        r"error while loading shared libraries: ([^\s:]+)|([^\s:]+\.so[.\d]*): cannot open shared object file",
        "a library is missing: {0}",
    ),
    _symptom(
        r"gated repo|Access to model [^\n]* is restricted|401 Client Error",
        "the weights need permission: accept their licence, and give the worker a token (HF_TOKEN)",
    ),
    _symptom(
        r"'([^'\n]+)' is not a file|failed to open GGUF file '([^'\n]+)'|Repository Not Found[^\n]*"
        r"|([^\s]+) is not a local folder"
        r"|Invalid repository ID or local directory specified: '?([^'\n]+)'?|does not appear to have a file named"
        r"|(\S+) holds no model: there is no model_index"
        r"|needs the package ([^\s,]+)|Repo id must be in the form [^\n]*: '([^'\n]+)'",
        "the weights were not found: {0}",
    ),
    _symptom(
        r"couldn't connect to 'https://huggingface|outgoing traffic has been disabled|offline mode is enabled"
        r"|Temporary failure in name resolution",
        "the weights are not on this machine, and could not be fetched",
    ),
    _symptom(
        r"invalid magic characters|not a valid gguf|Error while deserializing header|tensor .* data is not within",
        "the weights are damaged or of another format",
    ),
    _symptom(
        r"Model architectures? ([^\n]*?) (?:is|are) not supported|unknown model architecture: ([^\n]+)",
        "the engine does not know this kind of model: {0}",
    ),
    _symptom(
        r"(?:must be )?divisible by tensor[ _]parallel[ _]size",
        "the model cannot be split by this tensor_parallel_size",
    ),
    _symptom(r"No space left on device", "the disk is full"),
    # vLLM warns of this one beforehand, in backquotes.
    _symptom(r"(?<!`)OSError: \[Errno 24\]", "it ran out of file descriptors"),
    # Late, and only as Python itself puts it: engines also mention packages that they can do without.
    _symptom(
        r"ModuleNotFoundError: No module named '([^'\n]+)'|python\S*: No module named (\S+)",
        "a Python package is missing: {0}",
    ),
)

_SIGNALS: dict[int, str] = {
    signal.SIGKILL: "it was killed (signal 9): most often the machine ran out of memory",
    signal.SIGTERM: "it was told to leave (signal 15) by someone else",
    signal.SIGSEGV: "it crashed (signal 11, segmentation fault)",
    signal.SIGABRT: "it crashed (signal 6, abort)",
    signal.SIGILL: "it crashed (signal 4): the engine was built for another processor",
    signal.SIGBUS: "it crashed (signal 7): shared memory or the disk may be full",
}


_LOADING = re.compile(r"\bloading\b[^\n\r%]*?\b(\d{1,3}) ?%", re.IGNORECASE)


def load_progress(log_tail: str) -> str:
    """`loading 40 %`, as vLLM and our ranks last said it; empty for engines that do not."""
    found = _LOADING.findall(log_tail)
    return f"loading {min(100, int(found[-1]))} %" if found else ""


def explain_exit(code: int, log_tail: str) -> str:
    """One sentence for a user. `code` is negative for a signal; `log_tail` is the end of the engine's output."""
    for symptom in SYMPTOMS:
        if found := symptom.pattern.search(log_tail):
            caught = next((group for group in found.groups() if group), found[0]).strip()
            return symptom.says.format(caught)[:_LONGEST]
    if code < 0:
        return _SIGNALS.get(-code, f"it was ended by signal {-code}")
    last = log_tail.strip().rpartition("\n")[2].strip()
    outcome = "it left by itself" if code == 0 else f"it ended with exit code {code}"
    return f"{outcome}: {last}"[:_LONGEST] if last else outcome
