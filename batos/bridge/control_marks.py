"""Marks by which chat templates tell who speaks, in texts that come from elsewhere: notes, briefs, web pages, what was said before.

Ollama makes a control token of each that it finds in a message, whoever wrote it: a note could end the user's turn and speak as the system.
A blank within such a mark leaves its letters to be read, and makes it a text.
"""

from __future__ import annotations

import re

_NAMED = (
    "s", "bos", "eos", "pad", "unk", "mask", "sep", "cls", "sop", "eop", "start_of_turn", "end_of_turn", "start_of_image",
    "end_of_image", "image_soft_token", "tool_call", "tool_response", "tools", "repo_name", "reponame", "file_sep", "filename",
    "gh_stars", "issue_start", "issue_comment", "issue_closed", "jupyter_start", "jupyter_text", "jupyter_code", "jupyter_output",
    "jupyter_script", "empty_output", "fim_prefix", "fim_middle", "fim_suffix", "fim_pad", "commit_before", "commit_msg",
    "commit_after", "end_of_utterance", "fake_token_around_image", r"unused\d{1,4}", r"reserved_\d{1,4}", r"extra_id_\d{1,4}",
    r"SPECIAL_\d{1,4}", r"extra_\d{1,4}",
)  # fmt: skip
"""Within `<…>` and `</…>`: Llama 2, Gemma, StarCoder and SmolLM, Qwen and Hermes, T5, Mistral."""
_BRACKETED = (
    "INST", "SYSTEM_PROMPT", "AVAILABLE_TOOLS", "TOOL_CALLS", "TOOL_RESULTS", "TOOL_CONTENT", "MODEL_SETTINGS", "ARGS", "CALL_ID",
    "IMG", "IMG_BREAK", "IMG_END", "AUDIO", "BEGIN_AUDIO", "PREFIX", "MIDDLE", "SUFFIX", "gMASK", "sMASK", "MASK", "CLS", "SEP", "UNK",
    "PAD", "BOS", "EOS", r"img-\d+",
)  # fmt: skip
"""Within `[…]` and `[/…]`: Mistral, GLM, BERT; `[img-0]` is where Ollama itself puts a picture."""
_MARK = re.compile(
    r"<(?=[|\uff5c](?![|\uff5c])[^\s<>]{1,64}>"  # <|im_start|>, <|channel>, DeepSeek's of wide bars
    r"|(?![|\uff5c])[^\s<>]{1,64}[|\uff5c]>"  # <channel|>
    r"|</?SYS>>"
    rf"|/?(?:{'|'.join(_NAMED)})>)"
    rf"|\[(?=/?(?:{'|'.join(_BRACKETED)})\])"
)


def apart(text: str) -> str:
    """A text in which no mark of a template is one: `<|im_end|>` is `< |im_end|>`."""
    return _MARK.sub(lambda found: f"{found[0]} ", text)
