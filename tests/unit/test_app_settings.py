"""Settings: refused by name, never half-read, and who counts as this machine alone."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from greenfast.app.cli.config import TESTS, unread_variables
from greenfast.app.settings import Settings, is_loopback, setting_table
from greenfast.app.wiring import Services
from greenfast.search.errors import UsageError
from greenfast.search.targets import RUN_DEADLINE_S


def test_every_setting_has_a_variable_of_its_own_and_a_doc():
    variables = [variable for variable, _, doc in setting_table() if doc]
    assert len(set(variables)) == len(fields(Settings)) and all(
        variable.startswith("GREENFAST_") for variable in variables
    )


def test_how_long_a_run_may_take_is_a_setting_of_every_target(tmp_path):
    services = Services(
        Settings.from_environment(
            {"GREENFAST_DATA": str(tmp_path), "GREENFAST_RUN_DEADLINE_S": "7"}
        )
    )
    assert services.target("emulator:h200")._run_deadline_s == 7.0
    assert services.target("emulator:h200", 2.0)._run_deadline_s == 2.0
    assert Settings().run_deadline_s == RUN_DEADLINE_S == 30.0
    services.close()


def test_what_is_given_is_read_and_the_rest_is_default():
    settings = Settings.from_environment(
        {
            "GREENFAST_DATA": "/tmp/x",
            "GREENFAST_PORT": "0",
            "GREENFAST_ALLOWED_HOSTS": "Box, lab.example ,",
        }
    )
    assert (settings.data, settings.port, settings.host) == (Path("/tmp/x"), 0, "127.0.0.1")
    assert settings.allowed_hosts == ("box", "lab.example")
    assert settings.database == "sqlite:////tmp/x/greenfast.sqlite3"


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("GREENFAST_PORT", "65536"),
        ("GREENFAST_PORT", "-1"),
        ("GREENFAST_PORT", "٨٧٤١"),
        ("GREENFAST_PORT", "8_7"),
        ("GREENFAST_LEASE_S", "٣"),
        ("GREENFAST_ABLATION_S", "much"),
        ("GREENFAST_LEASE_S", "nan"),
        ("GREENFAST_LEASE_S", "0"),
        ("GREENFAST_WORKERS", "two"),
        ("GREENFAST_WINDOW", "0"),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_variable(variable, text):
    with pytest.raises(UsageError) as refused:
        Settings.from_environment({variable: text})
    assert refused.value.code == "bad_setting" and variable in refused.value.message


@pytest.mark.parametrize(
    "token", ["short", "sixteen chars ok", "sixteen-chars-ö-", "sixteen-chars\n-ok"]
)
def test_a_token_that_is_short_or_no_header_can_hold_is_refused_and_not_shown(token):
    with pytest.raises(UsageError) as refused:
        Settings.from_environment({"GREENFAST_TOKEN": token})
    assert refused.value.code == "weak_token" and token not in str(refused.value)


@pytest.mark.parametrize(
    ("host", "alone"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.4", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_only_loopback_is_this_machine_alone(host, alone):
    assert is_loopback(host) is alone


def test_a_misspelt_variable_is_told_and_one_that_is_read_is_not():
    root = Path(__file__).resolve().parents[2]
    code = [
        path
        for part in ("app", "db", "greenfast", "search")
        for path in (root / part).rglob("*.py")
    ]
    read = {
        name for path in code for name in re.findall(r'"(GREENFAST_[A-Z_]+)"', path.read_text())
    }
    assert len(read) > 30 and list(unread_variables(read - {TESTS, "GREENFAST_"})) == []
    assert list(unread_variables(["GREENFAST_WINDWO", "HOME", "GREENFAST_FOO"])) == [
        "nothing reads GREENFAST_FOO",
        "nothing reads GREENFAST_WINDWO (did you mean GREENFAST_WINDOW?)",
    ]


def test_a_value_that_is_no_number_is_told_what_it_may_be():
    for variable, part in (("GREENFAST_WINDOW", "a whole number"), ("GREENFAST_POLL_S", "0.1 to")):
        with pytest.raises(UsageError) as error:
            Settings.from_environment({variable: "abc"})
        assert part in str(error.value) and "literal" not in str(error.value)
