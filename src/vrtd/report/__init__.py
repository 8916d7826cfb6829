"""Building blocks of pages and figures."""
