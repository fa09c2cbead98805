"""What to type where a part is not installed: the names of the package's extras, as errors and `turnout doctor` say them."""

LOCAL = "pip install 'turnout[local]'"
"""The engines for a machine's CPU, with the tiny models."""

RENDERS = f"{LOCAL}, or 'turnout[cuda]' for GPUs"
RAY = "pip install 'turnout[ray]'"
OIDC = "pip install 'turnout[oidc]'"
KUBERNETES = "pip install 'turnout[kubernetes]'"
