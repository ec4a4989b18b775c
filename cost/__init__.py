"""What a tier costs, from dated rates that the user supplied.

The package is bare for now: ``replicate`` already counts requests and bytes by
billing class (:mod:`tiers.metered`), which is what the model will be fed with.
"""
