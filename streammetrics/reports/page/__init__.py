"""The HTML page: SVG charts, templates, style and script."""
