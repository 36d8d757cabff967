"""The pages: rendered by the server, readable without JavaScript, kept current by it where there is some."""
