"""The golden fixtures of all families: name -> recipe (recipe.recipe)."""

from golden import (
    bailing,
    bamba,
    falcon,
    fp8,
    granite,
    kimi,
    lfm2,
    lfm3,
    llama,
    mamba,
    minimax,
    nemotron,
    olmo,
    qwen,
    windows,
)

families = (
    granite,
    nemotron,
    qwen,
    bamba,
    lfm2,
    lfm3,
    falcon,
    llama,
    mamba,
    windows,
    olmo,
    minimax,
    kimi,
    bailing,
    fp8,
)
fixtures = {name: one for family in families for name, one in family.fixtures.items()}
