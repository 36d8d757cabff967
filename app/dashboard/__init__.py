"""The pages: rendered by the server, readable without JavaScript, updated in place with it."""
