"""What the page shows: its pictures, its template, style and script."""
