"""Write report pages as HTML: SVG charts, templates, style and script."""
