"""Making decoding heads for a model from nothing but the model: it answers prompts, and the heads learn its answers.

Needs the extra `medusa` (torch). `prompts` and `selection` say what is asked, `answers` what the model says; `corpus`,
`distilling`, `recipe` and `training` teach the heads; `evaluation` says how good they are. `run` is all of it in order,
`report` what is shown of it.
"""
