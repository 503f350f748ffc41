"""Recipes: which files a Modelfile means, and what goes into a request."""

from __future__ import annotations

from pathlib import Path

import pytest

from batos.bridge.model_builder import Recipe, recipe_from_modelfile
from batos.bridge.model_status import ModelUnavailable
from batos.bridge.modelfile import parse_modelfile


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def recipe(folder: Path, text: str) -> Recipe:
    return recipe_from_modelfile(parse_modelfile(text), folder)


def test_a_model_as_base(tmp_path: Path) -> None:
    made = recipe(
        tmp_path, "FROM llama3.1:8b\nSYSTEM hi\nPARAMETER stop a\nPARAMETER mirostat 1\nREQUIRES v0.14.0\nRENDERER q\nMESSAGE user hi\n"
    )
    assert made.request({}) == {
        "from": "llama3.1:8b",
        "system": "hi",
        "parameters": {"stop": ["a"]},
        "messages": [{"role": "user", "content": "hi"}],
        "renderer": "q",
        "requires": "0.14.0",
    }


def test_a_file_and_a_projector(tmp_path: Path) -> None:
    write(tmp_path, "w.gguf", "sub/p.gguf")
    made = recipe(tmp_path, f"FROM ./w.gguf\nFROM {tmp_path}/sub/p.gguf\n")
    assert (made.base, made.files) == ("", {"w.gguf": tmp_path / "w.gguf", "p.gguf": tmp_path / "sub" / "p.gguf"})
    assert made.request({path: f"sha256:{path.name}" for path in made.paths}) == {
        "files": {"w.gguf": "sha256:w.gguf", "p.gguf": "sha256:p.gguf"}
    }


def test_a_folder_of_weights(tmp_path: Path) -> None:
    write(tmp_path, *(f"m/{n}" for n in ("model-1-of-2.safetensors", "model-2-of-2.safetensors", "config.json", "1_Pooling/config.json")))
    write(tmp_path, "m/tokenizer.model", "m/notes.txt", "m/extra.gguf")
    made = recipe(tmp_path, "FROM m\nADAPTER lora\n".replace("ADAPTER lora\n", ""))
    assert set(made.files) == {
        "model-1-of-2.safetensors", "model-2-of-2.safetensors", "config.json", "1_Pooling/config.json", "tokenizer.model",
    }  # fmt: skip
    assert [p.name for p in made.converted] == ["model-1-of-2.safetensors", "model-2-of-2.safetensors"]


def test_an_adapter_is_a_file_or_a_folder(tmp_path: Path) -> None:
    write(tmp_path, "lora/adapter_model.safetensors", "lora/adapter_config.json", "lora.gguf")
    assert set(recipe(tmp_path, "FROM a\nADAPTER ./lora\n").adapters) == {"adapter_model.safetensors", "adapter_config.json"}
    assert recipe(tmp_path, "FROM a\nADAPTER lora.gguf\n").adapters == {"lora.gguf": tmp_path / "lora.gguf"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("FROM ./none.gguf\n", "none.gguf does not exist"),
        ("FROM none.gguf\n", "none.gguf does not exist"),
        ("FROM empty\n", "no weights in .*empty"),
        ("FROM a\nFROM b\n", "b is not a file"),
        ("FROM w.gguf\nFROM b\n", "b is not a file"),
        ("FROM a\nADAPTER ./none\n", "ADAPTER: there is no .*none"),
        ("FROM a\nADAPTER w.gguf\nADAPTER w.gguf\n", "2 ADAPTERs; Ollama applies one"),
    ],
)
def test_what_cannot_be_built_is_said(tmp_path: Path, text: str, says: str) -> None:
    write(tmp_path, "w.gguf", "empty/notes.txt")
    with pytest.raises(ModelUnavailable, match=says) as error:
        recipe(tmp_path, text)
    assert error.value.remedy


def test_the_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    write(tmp_path, "w.gguf")
    made = recipe(tmp_path, "FROM w.gguf\nSYSTEM hi\n")
    digests = {tmp_path / "w.gguf": "sha256:1"}
    assert made.fingerprint(digests, "") == recipe(tmp_path, "# other words\nfrom  w.gguf\nSYSTEM hi\n").fingerprint(digests, "")
    assert made.fingerprint(digests, "") != made.fingerprint({tmp_path / "w.gguf": "sha256:2"}, "")
    assert made.fingerprint(digests, "") != recipe(tmp_path, "FROM w.gguf\nSYSTEM ho\n").fingerprint(digests, "")
    on = recipe(tmp_path, "FROM a\n")
    assert on.fingerprint({}, "base1") != on.fingerprint({}, "base2")
