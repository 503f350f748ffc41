"""Memory (O-RAG): documents as objects of the image, cut by meaning, found by words and vectors together.

Its persistent classes are written into every record under the name `batos.memory.<Class>`; that name never changes.
"""
