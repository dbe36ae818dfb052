"""What `deploy/` ships agrees with the program, with itself, and with the tools that read it."""

import argparse
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from app_client import make_client
from loopback_server import TOKEN
from pumit.server.serve import ServeSettings, add_arguments
from pumit.server.sessions.limits import Limits
from pumit.wire.protocol import PATH_CLAIM

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "pumit@.service").read_text(encoding="utf-8")
NGINX = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVERS = {name: service for name, service in COMPOSE["services"].items() if name != "nginx"}


def unit_command():
    """The arguments of `pumit serve` in the unit, for instance 0."""
    joined = UNIT.replace("\\\n", " ")
    command = re.search(r"^ExecStart=(\S+) serve (.*)$", joined, re.MULTILINE)
    return shlex.split(command[2].replace("%i", "0"))


def options_of(arguments):
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    "arguments",
    [unit_command(), *(service["command"] for service in SERVERS.values())],
    ids=["systemd", *SERVERS],
)
def test_every_option_exists_and_the_settings_are_accepted(arguments):
    options = options_of(arguments)
    settings = ServeSettings(
        TOKEN, uds=options.uds, instance=options.instance, drain_s=options.drain_seconds
    )
    assert settings.uds == Path(f"/run/pumit/{settings.instance}/http.sock")
    assert options.token_file
    assert options.metrics_token_file
    assert Limits(max_sessions=options.max_sessions, sleep_after_s=options.sleep_after)


def test_there_is_time_to_drain_and_memory_beyond_the_sessions():
    unit = dict(re.findall(r"^(\w+)=(.*)$", UNIT, re.MULTILINE))
    options = options_of(unit_command())
    assert int(unit["TimeoutStopSec"]) >= options.drain_seconds + 60
    assert int(unit["MemoryMax"].removesuffix("G")) * 1024 > options.max_memory_mib
    for service in SERVERS.values():
        options = options_of(service["command"])
        assert (
            int(service["stop_grace_period"].removesuffix("m")) * 60 >= options.drain_seconds + 60
        )
        assert int(service["mem_limit"].removesuffix("g")) * 1024 > options.max_memory_mib


def test_systemd_understands_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    # Programs that are not on this machine would be complained about.
    unit = UNIT.replace("/opt/pumit/bin/pumit", "/bin/true")
    unit = unit.replace("/usr/bin/nvidia-modprobe", "/bin/true")
    (tmp_path / "pumit@.service").write_text(unit)
    shutil.copy(DEPLOY / "pumit.target", tmp_path)
    done = subprocess.run(
        ["systemd-analyze", "verify", "./pumit@0.service", "./pumit.target"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    error_output = [line for line in done.stderr.splitlines() if "pumit" in line]
    assert done.returncode == 0, done.stderr
    assert not error_output


@pytest.mark.parametrize("name", SERVERS)
def test_a_container_has_no_network_no_swap_and_nothing_to_write(name):
    service = SERVERS[name]
    assert service["network_mode"] == "none"
    assert "ports" not in service
    assert service["read_only"] is True
    assert service["mem_limit"] == service["memswap_limit"]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["ulimits"]["core"] == 0
    assert service["build"] == {"context": "..", "dockerfile": "deploy/Dockerfile"}
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_each_container_has_a_gpu_a_socket_and_a_health_check_of_its_own():
    for name, service in SERVERS.items():
        number = name.removeprefix("pumit-")
        options = options_of(service["command"])
        assert options.instance == number
        devices = service["deploy"]["resources"]["reservations"]["devices"]
        assert devices[0]["device_ids"] == [number]
        volume = f"socket-{number}:{options.uds.parent}"
        assert volume in service["volumes"]
        assert volume in COMPOSE["services"]["nginx"]["volumes"]
        assert f"socket-{number}" in COMPOSE["volumes"]
        assert service["healthcheck"]["test"][-1] == str(options.uds)
        for secret in service["secrets"]:
            assert secret in COMPOSE["secrets"]


def test_nginx_alone_is_published_and_has_its_files():
    nginx = COMPOSE["services"]["nginx"]
    assert nginx["ports"] == ["443:443", "80:80"]
    assert "./nginx.conf:/etc/nginx/conf.d/default.conf:ro" in nginx["volumes"]
    for secret in nginx["secrets"]:
        assert f" {secret['target']};" in NGINX
        assert secret["source"] in COMPOSE["secrets"]


def test_nginx_knows_every_server_that_is_started():
    for name in SERVERS:
        number = name.removeprefix("pumit-")
        # In its own group and in the one for new sessions.
        assert NGINX.count(f"unix:/run/pumit/{number}/http.sock") == 2
        assert f'"~^{number}\\." pumit_{number};' in NGINX
        assert f"location = /metrics/{number} {{" in NGINX
    assert f"location = {PATH_CLAIM} {{" in NGINX
    assert len(re.findall(r"server unix:", NGINX)) == 2 * len(SERVERS)


def test_the_health_check_tells_a_living_server_from_none(fake_worker, tmp_path):
    script = DEPLOY / "healthcheck.py"
    spec = importlib.util.spec_from_file_location("healthcheck", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.is_healthy(str(tmp_path / "none"))
    (tmp_path / "token").write_text(TOKEN)
    path = str(tmp_path / "s")
    with fake_worker("--uds", path, "--token-file", str(tmp_path / "token")):
        assert module.is_healthy(path)
        assert subprocess.run([sys.executable, str(script), path]).returncode == 0
    assert not module.is_healthy(path)


def test_the_image_installs_what_the_project_declares():
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.findall(r'pumit-\*\.whl\)\[([\w,]+)\]"', dockerfile)
    assert extras == ["server,train"]
    for extra in extras[0].split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE)
    script = re.search(r'^pumit = "(.*)"$', project, re.MULTILINE)
    assert script
    assert 'ENTRYPOINT ["/opt/pumit/bin/pumit", "serve"]' in dockerfile
    minimum = re.search(r'requires-python = ">=3\.(\d+)"', project)
    for minor in re.findall(r"^FROM python:3\.(\d+)-slim", dockerfile, re.MULTILINE):
        assert int(minor) >= int(minimum[1])
    # All that is copied is let through to the build, and exists.
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, re.MULTILINE)
    for source in " ".join(copied).split():
        assert f"!{source}" in allowed
        assert (ROOT / source).exists()
    user, group = re.search(r"^USER (\d+):(\d+)$", dockerfile, re.MULTILINE).groups()
    for volume in COMPOSE["volumes"].values():
        assert f"uid={user},gid={group}" in volume["driver_opts"]["o"]
    assert COMPOSE["services"]["nginx"]["user"].endswith(f":{group}")


def test_prometheus_asks_where_nginx_answers():
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    assert [job["metrics_path"] for job in config["scrape_configs"]] == [
        f"/metrics/{name.removeprefix('pumit-')}" for name in SERVERS
    ]
    for job in config["scrape_configs"]:
        assert f"location = {job['metrics_path']} {{" in NGINX
        assert job["scheme"] == "https"
    for file in config["rule_files"]:
        assert (DEPLOY / file).is_file()


def test_alerts_ask_for_metrics_that_exist():
    rules = yaml.safe_load((DEPLOY / "pumit_alerts.yml").read_text(encoding="utf-8"))["groups"][0][
        "rules"
    ]
    with make_client() as http:
        text = http.get("/metrics").text
    known = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    for rule in rules:
        for name in re.findall(r"pumit_\w+", rule["expr"]):
            assert name.removesuffix("_bucket") in known, rule["alert"]


def test_the_unit_keeps_scans_in_memory_and_the_service_in_its_place():
    lines = UNIT.splitlines()
    for line in (
        "Type=notify",
        "DynamicUser=yes",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "PrivateTmp=yes",
        "PrivateNetwork=yes",
        "MemorySwapMax=0",
        "LimitCORE=0",
        "Restart=on-failure",
        "LoadCredential=token:/etc/pumit/token",
    ):
        assert line in lines
    assert "CUDA_VISIBLE_DEVICES=%i" in UNIT
