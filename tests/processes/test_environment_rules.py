"""Which variables reach whom."""

from turnout.processes.environment_rules import for_computing, for_services

GIVEN = {
    "PATH": "/bin",
    "CUDA_VISIBLE_DEVICES": "0",
    "HF_TOKEN": "hub",
    "LC_ALL": "C.UTF-8",
    "https_proxy": "http://proxy",
    "AWS_SECRET_ACCESS_KEY": "s3",
    "DATABASE_PASSWORD": "x",
    "OTEL_EXPORTER_OTLP_HEADERS": "authorization=x",
    "TURNOUT_REDIS_URL": "redis://:x@host",
    "MANAGER_URL": "https://elsewhere",
    "MY_ENGINE_OPTION": "1",
}


def test_those_who_compute_inherit_only_what_is_known_to_be_of_use() -> None:
    assert set(for_computing(GIVEN)) == {"PATH", "CUDA_VISIBLE_DEVICES", "HF_TOKEN", "LC_ALL", "https_proxy"}


def test_an_operator_can_name_more_but_none_of_our_settings() -> None:
    more = for_computing(GIVEN, ("MY_*", "TURNOUT_*", "MANAGER_URL"))
    assert set(more) - set(for_computing(GIVEN)) == {"MY_ENGINE_OPTION"}


def test_services_inherit_all_but_our_settings() -> None:
    assert set(GIVEN) - set(for_services(GIVEN)) == {"TURNOUT_REDIS_URL", "MANAGER_URL"}
