"""What images of earlier versions call the Primitives: by the functions and modules that they were then.

The table is complete: since they have stable names, a Primitive keeps its name wherever its function goes, and needs no row here.
"""

from __future__ import annotations

FORMER = {
    "batos.autotelic.voices.try_voice_": "autotelic.try_voice_",
    "batos.autotelic.weights.weights_back_": "autotelic.weights_back_",
    "batos.memory.objects.chunks_": "memory.chunks_",
    "batos.memory.objects.mentioned_by_": "memory.mentioned_by_",
    "batos.memory.objects.mentions_": "memory.mentions_",
    "batos.memory.objects.neighbours_": "memory.neighbours_",
    "batos.memory.objects.source_": "memory.source_",
    "batos.memory.objects.summarised_": "memory.summarised_",
    "batos.mind.forge.put_in_place": "forge.put_in_place",
    "batos.mind.forge.reify": "forge.reify",
    "batos.mind.forge.study": "forge.study",
    "batos.mind.forge.try_out": "forge.try_out",
    "batos.mind.forge.write": "forge.write",
    "batos.mind.gists.gist_": "memory.gist_",
    "batos.mind.grants.grant_": "method.grant_",
    "batos.mind.learning.forget_exemplar_": "persona.forget_exemplar_",
    "batos.mind.memories.forget_": "memory.forget_",
    "batos.mind.memories.recall_": "memory.recall_",
    "batos.mind.memories.remember_": "memory.remember_",
    "batos.mind.psm.ask_user_": "persona.ask_user_",
    "batos.mind.psm.synthesize_response_for_": "persona.synthesize_response_for_",
    "batos.mind.psm.think_": "persona.think_",
    "batos.mind.states.complete": "psm.complete",
    "batos.mind.states.decompose": "psm.decompose",
    "batos.mind.states.delegate": "psm.delegate",
    "batos.mind.states.failed": "psm.failed",
    "batos.mind.states.idle": "psm.idle",
    "batos.mind.states.synthesize": "psm.synthesize",
    "batos.mind.summarising.summarise_": "memory.summarise_",
    "batos.mind.versions.learn_": "method.learn_",
    "batos.mind.versions.revert_": "method.revert_",
}
"""The stable name of each Primitive by what images call it that an earlier version wrote."""
