"""Pure request parsing, reply classes and the OpenAPI document. Internal."""
