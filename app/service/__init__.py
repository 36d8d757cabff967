"""The serving process: the web application, its server and its workers."""
