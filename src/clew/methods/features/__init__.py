"""The single feature that training added: crosscoders over two checkpoints, and steering by what they find.

Question: what does the trained model represent that its base does not, and does that cause the new behaviour?
For: who studies what training changed in a model.
Paper: E175, arXiv 2606.26474. Command: ``clew audit diff``. Page: docs/crosscoder.md.
One-line rule it must beat: the difference of the mean hidden states; telling the base model to do it.
"""
