"""Plain greedy decoding against parallel decoding, on one model object, in one interleaved run.

Needs the extra `medusa` (torch). The rooms: `modes` says what is compared, `sets` on which prompts, `prefilled` keeps
their keys and values, `lane` decodes them in one mode, `rounds` interleaves the modes, `differing` compares what they
said, `first_token` measures a warm prefix, `figures` turns runs into numbers; `table` and `picture` show them.
"""
