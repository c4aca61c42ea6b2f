"""The golden fixtures of all families: name -> recipe (golden_recipe.recipe)."""

import golden_bailing
import golden_bamba
import golden_falcon
import golden_fp8
import golden_granite
import golden_kimi
import golden_lfm2
import golden_lfm3
import golden_llama
import golden_mamba
import golden_minimax
import golden_nemotron
import golden_olmo
import golden_qwen
import golden_windows
import golden_zamba

families = (
    golden_granite,
    golden_nemotron,
    golden_qwen,
    golden_bamba,
    golden_lfm2,
    golden_lfm3,
    golden_falcon,
    golden_llama,
    golden_mamba,
    golden_windows,
    golden_olmo,
    golden_minimax,
    golden_kimi,
    golden_bailing,
    golden_fp8,
    golden_zamba,
)
fixtures = {name: one for family in families for name, one in family.fixtures.items()}
