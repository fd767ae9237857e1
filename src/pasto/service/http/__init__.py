"""The running system over HTTP: one table of routes, from which router, key check, pages and OpenAPI come."""
