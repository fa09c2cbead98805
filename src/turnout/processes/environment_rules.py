"""Which variables a child process inherits. Pure."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

# `turnout worker` reads these; a worker that `turnout up` starts must not join somebody else's gateway by them.
_WORKERS = frozenset(
    {
        *("MANAGER_URL", "PUBLIC_URL", "WORKER_HOST", "WORKER_ID", "WORKER_PORT"),
        *("WORKER_GATEWAY_FINGERPRINT", "WORKER_ALLOW_PLAINTEXT"),
    }
)

# What workers, engines and ranks may have. A service's own secrets (AWS_*, passwords in variables that an operator named) are
# not among them, whatever they are called.
_COMPUTING = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "POD_NAME", "NODE_NAME", "TZ", "LANG", "LC_*"),
    *(
        "TERM",
        "NO_COLOR",
        "TMPDIR",
        "TMP",
        "TEMP",
        "XDG_*",
        "VIRTUAL_ENV",
        "PYTHON*",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
    ),
    *(
        "CUDA*",
        "NVIDIA_*",
        "NCCL_*",
        "CUDNN*",
        "CUBLAS*",
        "HIP_*",
        "ROCR_*",
        "HSA_*",
        "UCX_*",
        "FI_*",
        "GLOO_*",
        "TP_*",
    ),
    *("TORCH*", "PYTORCH_*", "TRITON_*", "VLLM_*", "FLASH*", "XLA_*", "GGML_*", "LLAMA_*"),
    *("OMP_*", "MKL_*", "KMP_*", "OPENBLAS_*", "NUMEXPR_*", "MALLOC_*", "OTEL_SERVICE_NAME"),
    *(
        "HF_*",
        "HUGGINGFACE_*",
        "TRANSFORMERS_*",
        "DIFFUSERS_*",
        "TOKENIZERS_*",
        "SAFETENSORS_*",
        "MODELSCOPE_*",
    ),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)


def for_services(environ: Mapping[str, str]) -> dict[str, str]:
    """For gateways, managers and Redis. Our settings reach children by the resolved file alone, or else a variable would
    outrank a flag."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith("TURNOUT_") and name not in _WORKERS
    }


def for_computing(environ: Mapping[str, str], more: Sequence[str] = ()) -> dict[str, str]:
    """For workers, engines and ranks: only what is known to be of use to them, and the names that the operator adds."""
    allowed = (*_COMPUTING, *more)
    return {
        name: value
        for name, value in for_services(environ).items()
        if any(fnmatchcase(name, pattern) for pattern in allowed)
    }
