"""What was measured and chosen here, in the forms that serving engines take.

One module an engine: `vllm`, `sglang`, `llama_cpp`, `assisted` (transformers), and
`choices` for trees. Each names the version that it was written for, and checks what it
gives against a schema that is kept in `schemas` with the place it was read from. What
an engine cannot take is refused; nothing is bent to fit. An engine is never imported
to export to it.
"""
