"""Comparisons side by side: a variant of a persona against what there is, on recorded missions or given briefs, in mirrors of the image."""
