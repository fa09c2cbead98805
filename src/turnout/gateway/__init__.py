"""The HTTP application: what wraps every request, how errors look, and the page."""
