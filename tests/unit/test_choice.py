"""Which model thinks: what the settings name, what `auto` takes of an Ollama, and what is made on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batos.bridge import selection
from batos.bridge.capabilities import Capabilities
from batos.bridge.installed_models import BESIDE, UNKNOWN_CACHE, Candidate, best_model, cache_of
from batos.bridge.profiles import TAG_CHARS, is_own_model, load_profile, persona_model_name
from batos.config import Settings, load
from batos.errors import ConfigError
from batos.mind.codex import load_codex, voices, with_roles

GB = 10**9
BUDGET = 7 * GB
VOICES = voices(load_codex())


def candidate(name: str, billions: float = 4, *, size: float = 2.5, **can: Any) -> Candidate:
    known = Capabilities(**{"parameters": int(billions * GB), "context": 32_768, "tools": True, **can})
    return Candidate(name, "d" * 64, int(size * GB), 100_000, known)


def settings(folder: Path, **given: Any) -> Settings:
    return load({"data": str(folder), **given}, environ={})


@pytest.mark.parametrize(
    ("found", "taken"),
    [
        ([], None),
        ([candidate("a:4b"), candidate("b:8b", 8, size=5)], "b:8b"),
        ([candidate("a:4b"), candidate("b:70b", 70, size=40)], "a:4b"),  # does not fit
        ([candidate("a:4b"), candidate("e:7b", 7, chats=False)], "a:4b"),
        ([candidate("a:4b"), candidate("c:480b-cloud", 480, size=0, remote=True)], "a:4b"),
        ([candidate("a:4b"), candidate("b:4.5b", 4.5, tools=False)], "a:4b"),
        ([candidate("a:4b"), candidate("b:4.5b", 4.5, context=4096)], "a:4b"),
        ([candidate("a:4b"), candidate("b:6b", 6, tools=False)], "b:6b"),
        ([candidate("a:0.1b", 0.13)], None),
        ([candidate("a:4b", context=1024)], None),
        ([replace(candidate("batos/robin:a"), ours=True)], None),
        ([candidate("a:4b", parameters=None)], None),
    ],
)
def test_auto_takes_the_best_that_fits(found: list[Candidate], taken: str | None) -> None:
    chosen = best_model(found, BUDGET)
    assert (chosen and chosen.name) == taken


def test_auto_says_what_it_took_and_why(tmp_path: Path) -> None:
    chosen = selection.choose_profile(settings(tmp_path), VOICES, [candidate("a:4b"), candidate("b:8b", 8, size=5)], "here:1")
    assert (chosen.profile.name, chosen.profile.base) == ("own", "b:8b")
    told, word = chosen.why.split("; ")
    assert told == "b:8b is the best of 2 chat models of the Ollama at here:1 that fits 6.9 GB (inference.memory_bytes)"
    assert word == "`batos models use NAME` takes another"
    assert not chosen.profile.models[0].pulled
    assert chosen.profile.personas["robin"] == "batos/robin:b-8b"
    assert chosen.profile.model_of("base") == "b:8b"
    assert chosen.profile.embedder == load_profile("embedded").embedder


def test_auto_without_an_ollama_and_without_a_model(tmp_path: Path) -> None:
    small = [candidate("a:0.1b", 0.1)]
    for found, host, why in ((None, "", "no Ollama of yours answers"), (small, "here:1", "has no chat model that is larger and fits")):
        chosen = selection.choose_profile(settings(tmp_path), VOICES, found, host)
        assert chosen.profile == load_profile("embedded")
        assert why in chosen.why
    assert "the Ollama at here:1 does not say" in selection.choose_profile(settings(tmp_path), VOICES, None, "here:1").why


def test_a_model_that_is_named(tmp_path: Path) -> None:
    chosen = selection.choose_profile(settings(tmp_path, model="big:70b"), VOICES, [candidate("big:70b", 70, size=40)], "here:1")
    assert chosen.profile.base == "big:70b"
    assert "though it takes" in chosen.why
    assert chosen.profile.options["num_ctx"] == 2048
    unknown = selection.choose_profile(settings(tmp_path, model="new"), VOICES, None)
    assert unknown.profile.models[0].pulled
    assert unknown.profile.personas["brick"] == "batos/brick:new"
    with pytest.raises(ConfigError, match="minilm does not answer messages"):
        selection.choose_profile(settings(tmp_path, model="minilm"), VOICES, [candidate("minilm:latest", chats=False)])


@pytest.mark.parametrize(("size", "context", "answer"), [(2.5, 8192, 1024), (6.2, 4096, 512), (6.5, 2048, 256)])
def test_context_and_answer_are_what_fits(size: float, context: int, answer: int, tmp_path: Path) -> None:
    chosen = selection.choose_profile(settings(tmp_path, memory_budget_bytes=BUDGET), VOICES, [candidate("a:8b", 8, size=size)])
    assert (chosen.profile.options["num_ctx"], chosen.profile.options["num_predict"]) == (context, answer)
    small = selection.choose_profile(settings(tmp_path, model="a"), VOICES, [candidate("a:latest", context=512)])
    assert (small.profile.options["num_ctx"], small.profile.options["num_predict"]) == (512, 256)


def test_one_persona_with_a_model_of_its_own(tmp_path: Path) -> None:
    chosen = selection.choose_profile(settings(tmp_path, model="robin=a:4b", profile="workstation"), VOICES, [candidate("a:4b")])
    assert chosen.profile.personas["robin"] == "batos/robin:a-4b"
    assert chosen.profile.personas["brick"] == "brick:workstation"
    assert chosen.profile.made["robin"].from_ == "a:4b"
    assert chosen.why.endswith("ROBIN speaks with a:4b")
    both = selection.choose_profile(settings(tmp_path, model="b:8b,robin=a:4b"), VOICES, None).profile
    assert (both.personas["robin"], both.personas["babs"]) == ("batos/robin:a-4b", "batos/babs:b-8b")


def test_a_persona_without_a_role_gets_one() -> None:
    codex = load_codex()
    plain = codex.model_copy(update={"personas": {"carl": codex.personas["robin"].model_copy(update={"model": "base"})}})
    assert voices(plain) == {}
    assert voices(with_roles(plain, {"carl": "a:4b"}))["carl"].system.startswith("You are CARL. ")
    assert with_roles(plain, ()) is plain


def test_a_persona_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'robbin' is not a persona \(did you mean 'robin'\?\); there are robin"):
        selection.check_personas(settings(tmp_path, model="robbin=a:4b"), VOICES)


@pytest.mark.parametrize("value", ["über", "robin=", "=a", "a:4b,b:8b", "robin=a,robin=b", "Robin=a", "a=b=c"])
def test_names_of_models_that_are_none(value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"setting 'inference\.model'"):
        settings(tmp_path, model=value)


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "profiles.toml").write_text('[mine]\nmodels = [{ name = "a:4b" }]\noptions = { num_ctx = 4096 }\n')
    chosen = selection.choose_profile(settings(tmp_path, profile="mine"), VOICES, None)
    assert chosen.profile.name == "mine"
    assert chosen.profile.base == "a:4b"
    assert chosen.profile.embedder == load_profile("embedded").embedder
    assert chosen.profile.personas["robin"] == "batos/robin:a-4b"
    assert chosen.profile.made["robin"].parameters == {"temperature": 0.8}
    with pytest.raises(ConfigError, match="allowed are auto, embedded, mine, workstation"):
        selection.choose_profile(settings(tmp_path, profile="yours"), VOICES, None)


def test_modelfiles_of_ones_own_go_before_the_codex(tmp_path: Path) -> None:
    (tmp_path / "profiles.toml").write_text('[mine]\nmodels = [{ name = "a:4b" }]\npersonas = { robin = "r:mine", brick = "b:mine" }\n')
    folder = tmp_path / "modelfiles" / "mine"
    folder.mkdir(parents=True)
    (folder / "robin.Modelfile").write_text("FROM a:4b\n")
    made = selection.choose_profile(settings(tmp_path, profile="mine", modelfiles=str(folder.parent)), VOICES, None).profile.made
    assert "robin" not in made
    assert made["brick"].from_ == "a:4b"


def test_names_of_personas_models() -> None:
    assert persona_model_name("robin", "qwen3:8b") == "batos/robin:qwen3-8b"
    assert persona_model_name("robin", "qwen3") == "batos/robin:qwen3"
    assert persona_model_name("robin", "hf.co/some/Qwen3-GGUF:Q4_K_M") == "batos/robin:hf.co-some-qwen3-gguf-q4_k_m"
    assert len(persona_model_name("robin", "x" * 200).partition(":")[2]) == TAG_CHARS
    assert is_own_model("batos/robin:qwen3-8b")
    assert is_own_model("smollm2:embedded")
    assert not is_own_model("llama3.1:8b")  # the workstation profile rests on it, and it is the user's all the same


def test_what_a_model_takes() -> None:
    llama = {
        "general.architecture": "llama", "llama.block_count": 32, "llama.embedding_length": 4096, "llama.attention.head_count": 32,
        "llama.attention.head_count_kv": 8,
    }  # fmt: skip
    assert cache_of(llama) == 32 * 8 * 2 * 128 * 2
    assert cache_of({**llama, "llama.attention.key_length": 64, "llama.attention.value_length": 64}) == 32 * 8 * 2 * 64 * 2
    assert cache_of({}) == cache_of({**llama, "llama.attention.head_count_kv": [8, 8]}) == UNKNOWN_CACHE
    one = candidate("a:4b", context=1000)
    assert one.memory(8192) == one.bytes + 1000 * one.cache + BESIDE
