"""What programs and people call: logins, limits, and parts on their way into the store."""
