"""The golden fixtures of all families: name -> recipe (golden_recipe.recipe)."""

import golden_fp8
import golden_granite
import golden_nemotron
import golden_qwen

fixtures = {
    **golden_granite.fixtures,
    **golden_nemotron.fixtures,
    **golden_qwen.fixtures,
    **golden_fp8.fixtures,
}
