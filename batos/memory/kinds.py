"""Kinds of documents."""

MISSION, FAILURE = "mission", "failure"
"""Kinds of documents that are made of missions: what was answered, and what went wrong."""
NOTE = "note"
"""The kind of the documents that missions remember."""
STATEMENT = "statement"
"""The kind of the documents of what the user said in a brief."""
SUMMARY, DIGEST = "summary", "digest"
"""Kinds of documents that say what others hold; `of` is what. A digest is of missions, which the curator archived."""
KINDS = (
    "text", "markdown", "html", "pdf", "code", "conversation", "document", "table", "mail",
    NOTE, STATEMENT, MISSION, FAILURE, SUMMARY, DIGEST,
)  # fmt: skip
"""Kinds of documents that there can be: those of files, what missions noted, and the above."""
UNTITLED = (STATEMENT, MISSION, FAILURE, SUMMARY, DIGEST)
"""Kinds whose titles are briefs, or say what they are of: no document is found by such a title."""
